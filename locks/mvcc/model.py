"""The words of the lock table: transactions, keys and spans, requests, updates, and what is seen.

Everything here is an immutable value.

A *key* is any value that can be hashed and compared with the other keys of its table: text, bytes,
numbers, tuples. A *timestamp* is an integer >= 0; larger is later.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from locks.errors import InvalidOption

__all__ = [
    "Aborted",
    "Committed",
    "Contention",
    "Intent",
    "Key",
    "LockState",
    "LongWait",
    "Moved",
    "Outcome",
    "Place",
    "Request",
    "Span",
    "Statistics",
    "Strength",
    "Timestamp",
    "Txn",
    "TxnDeadlock",
    "TxnId",
    "TxnWait",
    "Update",
    "WaitPolicy",
]

Key = Any
"""Hashable, and comparable with the other keys of the table."""

Timestamp = int
TxnId = Hashable
Outcome = Literal["committed", "aborted"]

WaitPolicy = Literal["block", "error", "skip locked"]
"""What a request does where a lock is in its way: it waits, is refused, or leaves the key out."""

Strength = Literal["intent", "update"]
"""How a lock is held: with an uncommitted write, or so that nobody else writes before its holder."""


class Txn(NamedTuple):
    """What the lock table knows of a transaction.

    Attributes:
        id: Its reference. No two transactions have the same, also when one runs again after an
            abort. Ids are comparable; larger means younger, as with a serial number.
        timestamp: What it reads at, and what its next intent is written at. It may rise.
        priority: Of a deadlock's transactions the one with the lowest priority is the victim, if
            all have one.
    """

    id: TxnId
    timestamp: Timestamp
    priority: int | None = None


class Span(NamedTuple):
    """A key alone, or all keys of a range.

    Attributes:
        start: The first key.
        end: The first key that is no longer in the range; `None`: only `start`.
    """

    start: Key
    end: Key = None

    def covers(self, key: Key) -> bool:
        """Whether a key is in it."""
        if self.end is None:
            return bool(key == self.start)
        return bool(self.start <= key < self.end)


@dataclass(frozen=True, init=False)
class Request:
    """What a request reads and writes.

    Spans and plain keys may be given: `Request(reads=[Span("a", "c")], writes=["x"])`.

    Args:
        reads: What is read.
        writes: What is written.
        wait: What it does where a lock is in its way. `"block"`: it waits; `"error"`: its scan raises
            `LockNotAvailable`; `"skip locked"`: it leaves those keys out (`Guard.skipped`).

    Raises:
        InvalidOption: A key is not hashable or not sortable, a span is empty, no list is given, or
            the wait policy is unknown.
    """

    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    wait: WaitPolicy = "block"

    # Typed apart from the fields: more is accepted than is kept.
    def __init__(
        self,
        reads: Iterable[Key | Span] = (),
        writes: Iterable[Key | Span] = (),
        wait: WaitPolicy = "block",
    ) -> None:
        object.__setattr__(self, "reads", _spans(reads) if reads else ())
        object.__setattr__(self, "writes", _spans(writes) if writes else ())
        if wait != "block":
            if wait not in get_args(WaitPolicy):
                raise InvalidOption(
                    f"wait={wait!r} is unknown; use one of {', '.join(get_args(WaitPolicy))}",
                    value=repr(wait),
                )
            object.__setattr__(self, "wait", wait)

    @property
    def is_read_only(self) -> bool:
        """Whether it writes nothing."""
        return not self.writes


def _spans(places: Iterable[Key | Span]) -> tuple[Span, ...]:
    if isinstance(places, (str, bytes, Span)):
        raise InvalidOption(
            f"{places!r} is not a list of keys and spans; write [{places!r}]", value=repr(places)
        )
    spans = []
    try:
        for place in places:
            span = place if type(place) is Span else Span(place)
            if span.end is None:
                hash(span.start)
                _ = span.start < span.start  # raises if keys like this have no order
            elif not span.start < span.end:
                raise InvalidOption(
                    f"{span!r} is empty: its end is not after its start; for a key alone write "
                    f"Span({span.start!r})",
                    value=repr(span),
                )
            spans.append(span)
    except TypeError as error:
        raise InvalidOption(
            f"{places!r} has a key that can't be in a lock table ({error}); use text, bytes, "
            "numbers or tuples",
            value=repr(places),
        ) from None
    return tuple(spans)


class Intent(NamedTuple):
    """An uncommitted write that was found in the store.

    Attributes:
        key: Where.
        txn: Whose, with the timestamp at which it is written.
    """

    key: Key
    txn: Txn


class Committed(NamedTuple):
    """The transaction was committed, and its intents have become versions."""

    txn: Txn
    timestamp: Timestamp


class Aborted(NamedTuple):
    """The transaction was aborted, and its intents are gone."""

    txn: Txn


class Moved(NamedTuple):
    """The transaction's intents were moved to a later timestamp; its locks stay held."""

    txn: Txn
    timestamp: Timestamp


Update = Committed | Aborted | Moved


# --- Deadlocks ----------------------------------------------------------------------------------


class TxnWait(NamedTuple):
    """One edge of the wait-for graph.

    Attributes:
        waiter: The transaction that waits.
        holder: The one that it waits for: it holds the lock, has the reservation, or stands ahead in the queue.
        key: At which key.
        held: Whether it holds the lock.
    """

    waiter: Txn
    holder: Txn
    key: Key
    held: bool

    def __str__(self) -> str:
        has = "holds it" if self.held else "is ahead"
        return f"{self.waiter.id} waits for {self.key!r}, where {self.holder.id} {has}"


class TxnDeadlock(NamedTuple):
    """Report of one deadlock that was resolved.

    Attributes:
        victim: The transaction that has to abort.
        cycle: The edges, beginning with one of the victim; each holder is the next waiter.
        rule: Why it is this one, in words.
    """

    victim: Txn
    cycle: tuple[TxnWait, ...]
    rule: str

    @property
    def ids(self) -> tuple[TxnId, ...]:
        """The transactions of the cycle, each waiting for the next."""
        return tuple(wait.waiter.id for wait in self.cycle)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"transaction {self.victim.id} has to abort: {self.rule}",
                *(f"  {wait}" for wait in self.cycle),
            ]
        )


# --- What is seen -------------------------------------------------------------------------------


class Place(NamedTuple):
    """A request in a lock state.

    Attributes:
        number: The sequence number of its guard.
        txn: Its transaction.
        waits: Whether it waits just here. If not, it keeps its place and goes on elsewhere.
    """

    number: int
    txn: Txn
    waits: bool


class LockState(NamedTuple):
    """The state of one key at one moment.

    Attributes:
        key: The key.
        holder: The transaction that holds the lock, at the lock's timestamp.
        reservation: Which request is the next to write.
        queued_writers: The other requests that want to write, in their order.
        waiting_readers: The requests that wait to read, in their order.
        last_committed_timestamp: The latest commit at this key while a request stood in line.
        strength: How it is held: `"intent"` or `"update"`; `None` without a holder.
    """

    key: Key
    holder: Txn | None = None
    reservation: Place | None = None
    queued_writers: tuple[Place, ...] = ()
    waiting_readers: tuple[Place, ...] = ()
    last_committed_timestamp: Timestamp | None = None
    strength: Strength | None = None


class LongWait(NamedTuple):
    """One wait.

    Attributes:
        txn: The transaction that waited.
        holder: The one in its way when the wait began.
        key: At which key.
        seconds: How long.
        over: Whether it is over.
    """

    txn: Txn
    holder: Txn
    key: Key
    seconds: float
    over: bool


class Contention(NamedTuple):
    """The waits at one key, or of one transaction.

    Attributes:
        of: The key, or the transaction's id.
        waits: How many.
        seconds: How long they took together.
        longest: The longest of them.
    """

    of: Key | TxnId
    waits: int
    seconds: float
    longest: LongWait


class Statistics(NamedTuple):
    """Figures of a lock table.

    Attributes:
        keys: Keys that have a state.
        held: Locks that are held.
        reservations: Keys that are reserved.
        queued_writers: Places of writers in all queues.
        waiting_readers: Readers that wait.
        guards: Requests that are not dequeued yet.
        transactions: Transactions that hold locks, or have requests in line.
        remembered: Transactions remembered as finished.
        deadlocks: Deadlocks resolved so far.
        pushes: Pushes so far.
        waiting: Requests that wait.
        searches: Searches for deadlocks that go on in the next turns.
        contended_keys: The keys that were waited for, the longest waits in all first.
        contended_transactions: The transactions that waited, likewise.
    """

    keys: int
    held: int
    reservations: int
    queued_writers: int
    waiting_readers: int
    guards: int
    transactions: int
    remembered: int
    deadlocks: int
    pushes: int
    waiting: int
    searches: int
    contended_keys: tuple[Contention, ...]
    contended_transactions: tuple[Contention, ...]
