"""The lock table: which locks are held, which requests wait for them, and which one is next.

Theory of operation
-------------------
A transaction's uncommitted write of a key, its *intent*, is a lock on the key until the transaction
is over. A lock of the strength "update" has no write yet. It keeps other writers away, and becomes
an intent when it is acquired as one. `LockStates` keeps a sorted map from keys to locks that are
held or reserved (`Lines` has the steps at one lock).

A *request* of a transaction reads and writes keys, and is represented by a `Guard`. Guards are
numbered in the order of their arrival. A request scans all its keys, waits at the first lock that
blocks it, and then scans again with the same guard, so it keeps its place in the order.

    holder        reader   waits if the lock is an intent, not later than its own timestamp
                  writer   waits
    reservation   reader   continues
                  writer   waits if the reservation is an older request's; takes a younger one's

Requests of the same transaction never wait for each other. A request with a wait policy other than
"block" never waits: it is refused at the first lock that blocks it, or leaves such keys out. Then
it is in no queue, so no edge of the wait-for graph goes through it.

When a lock is released, all its readers continue, and the first writer in the queue gets the
*reservation*: it may scan again, and no later request can get ahead of it at this key, however long
it waits for its other keys. When it is dequeued without having written, the next writer gets the
reservation.

A writer that is no longer next (an older one took its reservation, or a transaction has acquired
the lock) is in the queue by its number, without waiting here.

**Invariants** (`tests/mvcc/invariants.py` checks them after each operation)

* A key has a holder or a reservation, never both; a key with neither is not in the map.
* Without a holder, no request waits to read.
* The queue and the readers are in the order of their numbers. The reservation is older than all
  requests in the queue. No request is in the queue twice, and no request of the transaction of the
  holder or of the reservation.
* A waiting reader's timestamp is not before the holder's, and the holder's lock is an intent.
* A request that does not block never waits. Its only place in a queue is that of a reservation that
  was taken from it.

Every operation checks what it was given first; when it raises, it has changed nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from locks.errors import InvalidOption, MisuseError, assert_never
from locks.mvcc.contention import Contentions
from locks.mvcc.deadlocks import STEPS, Deadlocks
from locks.mvcc.errors import BadTimestamp, LockNotAvailable, TableFull, UnknownGuard
from locks.mvcc.lines import Lines
from locks.mvcc.model import (
    Aborted,
    Committed,
    Intent,
    Key,
    LockState,
    Moved,
    Outcome,
    Request,
    Span,
    Statistics,
    Strength,
    Timestamp,
    Txn,
    TxnDeadlock,
    TxnId,
    Update,
)
from locks.mvcc.records import Ending, Guard, KeyLock
from locks.mvcc.waiting import Endings, check_timestamp, ended_error, locked_error, not_available

__all__ = ["MAX_LOCKS", "MAX_WAITERS", "REMEMBERED", "LockStates"]

REMEMBERED = 10_000
"""How many finished transactions are remembered."""

MAX_LOCKS = 1_000_000
MAX_WAITERS = 100_000

Parts = list[tuple[bool, list[KeyLock]]]
"""The locks that a request meets, span by span, and whether it writes there."""


class LockStates:
    """The lock table, as a pure state machine.

    Args:
        detect: Whether a deadlock is resolved when it arises; otherwise only when
            `resolve_deadlocks` is called.
        remembered: How many finished transactions are remembered, to detect their later use.
        max_locks: How many keys may be held or reserved.
        max_waiters: How many requests may wait at once.
        steps: How many edges of the wait-for graph one turn looks at.

    Attributes:
        woken: Guards whose wait is over, in order: released, or lost (`Guard.ending` says why). The
            user of the table takes them out.
        changed: Guards that began or stopped waiting, those of `woken` included, until `stamp`.
        searches: The transactions with an unfinished search for deadlocks (`go_on_searching`).
    """

    def __init__(
        self,
        *,
        detect: bool = True,
        remembered: int = REMEMBERED,
        max_locks: int = MAX_LOCKS,
        max_waiters: int = MAX_WAITERS,
        steps: int = STEPS,
    ) -> None:
        self._detect = detect
        self._lines = lines = Lines(max_locks)
        self._locks = lines.locks
        self._waits = lines.waits
        self.woken = lines.woken
        self.changed = lines.changed
        self._max_waiters = max_waiters
        self._guards: dict[int, Guard] = {}
        self._endings = Endings(remembered)
        self._deadlocks = Deadlocks(lines.waits, self._give_up, steps)
        self.searches: Collection[TxnId] = self._deadlocks.searches
        self._contentions = Contentions(lines.waits)
        self._last_number = 0
        self._pushes = 0

    # --- Operations -----------------------------------------------------------------------------

    def scan_and_enqueue(
        self, request: Request, txn: Txn, guard: Guard | None = None
    ) -> tuple[bool, Guard]:
        """Look for locks that block a request; wait at the first one.

        Args:
            request: What is read and written.
            txn: The request's transaction.
            guard: The guard that the first scan of this request has returned.

        Returns:
            Whether it has to wait, and its guard.
        """
        if not isinstance(request, Request):
            raise MisuseError(f"{request!r} is no Request", request=repr(request))
        self._waits.check(txn)
        if guard is not None:
            self._check_rescan(guard, request, txn)
        self._endings.check(txn)
        # Found before anything is changed: a span that can't be compared with the keys raises.
        parts = [(True, self._locks.within(span)) for span in request.writes]
        if request.reads:
            parts += [(False, self._locks.within(span)) for span in request.reads]
        if guard is None:
            guard = Guard(self, self._last_number + 1, txn, request)
            if request.wait != "block":
                self._pass_by(guard, parts)
            elif self._lines.waiting >= self._max_waiters:
                self._check_full(guard, parts)
            self._last_number += 1
            self._guards[guard.number] = guard
        else:
            before, guard.txn = guard.txn, txn
            if request.wait != "block":
                try:
                    self._pass_by(guard, parts)
                except LockNotAvailable:
                    guard.txn = before
                    raise
            elif guard.waits_at is not None:
                self._lines.stop_waiting(guard)
        lines, reserved = self._lines, False
        for writes, locks in parts:
            for lock in locks:
                if lines.in_the_way(lock, guard, writes) is not None:
                    if request.wait == "block":
                        lines.wait_at(lock, guard, writes)
                        self._look_for_deadlocks(txn.id)
                        return True, guard
                elif writes and lock.reservation is not None:
                    lines.claim(lock, guard)
                    reserved = reserved or lock.reservation is guard
        if reserved:
            self._look_for_deadlocks(txn.id)
        return False, guard

    def _pass_by(self, guard: Guard, parts: Parts) -> None:
        """A request that does not wait: refuse it at the first lock in its way, or note them all."""
        skipped = []
        for writes, locks in parts:
            for lock in locks:
                holder = self._lines.in_the_way(lock, guard, writes)
                if holder is not None:
                    if guard.request.wait == "error":
                        raise not_available(lock, holder, guard.txn)
                    skipped.append(lock.key)
        guard.skipped = tuple(dict.fromkeys(skipped))

    def add_discovered_lock(self, guard: Guard, intent: Intent) -> bool:
        """Take in a lock that was not in the table: its intent was found in the store.

        Returns:
            Whether the guard has to wait. If not, scan again at once: the transaction of the
            intent is known to be finished, or the intent does not block the request.
        """
        self.check_guard(guard)
        if not isinstance(intent, Intent):
            raise MisuseError(f"{intent!r} is no Intent", intent=repr(intent))
        key, txn = intent
        self._waits.check(txn)
        self._endings.check(guard.txn)
        lock = self._locks.get(key)
        writes = self._writes(guard, key)
        if self._endings.outcome(txn.id) is not None:
            return guard.waits_at is not None
        if lock is None:
            lock = self._locks.add(key)
        elif lock.holder is not None and lock.holder.id != txn.id:
            raise locked_error(lock, lock.holder, txn)
        self._lines.hold(lock, txn, "intent")
        if guard.request.wait == "block" and self._lines.in_the_way(lock, guard, writes):
            if guard.waits_at is None:
                self._lines.wait_at(lock, guard, writes)
            elif writes:
                self._lines.take_place(lock, guard)
        must_wait = guard.waits_at is not None  # even if it is a victim now, as `wait_for` reports
        self._look_for_deadlocks(txn.id, guard.txn.id)
        return must_wait

    def acquire_lock(self, key: Key, txn: Txn, strength: Strength = "intent") -> None:
        """Take in that a transaction has written an intent, or takes the key for itself."""
        self._waits.check(txn)
        self._endings.check(txn)
        if strength != "intent" and strength != "update":
            raise InvalidOption(
                f"strength={strength!r} is unknown; use one of {', '.join(get_args(Strength))}",
                value=repr(strength),
            )
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks.add(key)
        elif lock.holder is not None and lock.holder.id != txn.id:
            raise locked_error(lock, lock.holder, txn)
        self._lines.hold(lock, txn, strength)
        if lock.contended:
            self._look_for_deadlocks(txn.id)

    def dequeue(self, guard: Guard) -> None:
        """Take a request out: it is done, or given up. The locks of its transaction stay."""
        self.check_guard(guard)
        if guard.places or guard.waits_at is not None:
            self._lines.take_out(guard)
        guard.table = None
        del self._guards[guard.number]
        txn_state = self._waits.active.get(guard.txn.id)
        if txn_state is not None:
            txn_state.guards.pop(guard, None)
            self._waits.drop(guard.txn.id)
            self._look_for_deadlocks(guard.txn.id)

    def update_locks(self, where: Key | Span, update: Update) -> int:
        """Take in the outcome of a transaction's intents, at a key or in a span.

        Returns:
            How many locks have changed. Locks of other transactions never do.
        """
        if not isinstance(update, Update):
            raise MisuseError(
                f"{update!r} is not an update; use Committed, Aborted or Moved", update=repr(update)
            )
        txn = update.txn
        self._waits.check(txn)
        if isinstance(update, Committed):
            check_timestamp(update.timestamp)
            return self._finish(self._held(where, txn), txn, "committed", update.timestamp)
        if isinstance(update, Aborted):
            return self._finish(self._held(where, txn), txn, "aborted", None)
        if isinstance(update, Moved):
            check_timestamp(update.timestamp)
            return self._move(self._held(where, txn), txn, update.timestamp)
        return assert_never(update)

    def resolve_deadlocks(self, txn_id: TxnId) -> TxnDeadlock | None:
        """Look for cycles that go through a transaction, and break them; as far as one turn goes.

        Returns:
            The report of the last deadlock that was found.
        """
        self._deadlocks.search_from(txn_id)
        return self._deadlocks.go_on()

    def go_on_searching(self) -> None:
        """Go on with the searches for deadlocks (`searches`), as far as one turn goes."""
        self._deadlocks.go_on()

    def stamp(self, now: float) -> None:
        """Note when the waits of the guards in `changed` have begun or ended."""
        self._contentions.note(self.changed, now)
        self.changed.clear()

    def count_push(self) -> None:
        """Count a push, for the statistics."""
        self._pushes += 1

    # --- Questions ------------------------------------------------------------------------------

    def check_guard(self, guard: Guard) -> None:
        """Raise `UnknownGuard` unless it is the guard of a request that is in this table."""
        if not isinstance(guard, Guard):
            raise UnknownGuard(
                f"{guard!r} is not a guard; scan_and_enqueue returns one", guard=repr(guard)
            )
        if guard.table is not self:
            what = "was dequeued" if guard.table is None else "is of another lock table"
            raise UnknownGuard(f"{guard!r} {what}; scan again without it", guard=guard)

    def waits_for(self, guard: Guard) -> tuple[Txn, Key] | None:
        """The first transaction that a request waits for, and the key; `None` if it does not wait.

        Raises:
            UnknownGuard: It is not in this table.
            TxnDeadlockAborted: Its transaction is the victim of a deadlock.
            TransactionFinished: Its transaction was committed or aborted while it waited.
        """
        self.check_guard(guard)
        if guard.ending is not None:
            raise ended_error(guard.txn, guard.ending)
        lock = guard.waits_at
        return None if lock is None else (self._waits.front(lock), lock.key)

    def state(self, key: Key) -> LockState:
        """The state of a key; an empty one if there is none."""
        lock = self._locks.get(key)
        return LockState(key) if lock is None else lock.seen()

    def states(self, span: Span | None = None) -> tuple[LockState, ...]:
        """The states of a span, or of all keys that have one, in the order of the keys."""
        return tuple(lock.seen() for lock in self._locks.within(span))

    def locks(self, txn: Txn) -> tuple[Key, ...]:
        """The keys that a transaction has locked, in the order in which it locked them."""
        self._waits.check(txn)
        txn_state = self._waits.active.get(txn.id)
        return () if txn_state is None else tuple(txn_state.held)

    def statistics(self, now: float = 0.0) -> Statistics:
        """Figures; they are counted when they are asked for.

        Args:
            now: The time, for waits that are under way.
        """
        locks = self._locks.all()
        held = sum(lock.holder is not None for lock in locks)
        keys, txns = self._contentions.seen(self._guards.values(), now)
        return Statistics(
            keys=len(self._locks),
            held=held,
            reservations=len(self._locks) - held,
            queued_writers=sum(len(lock.queue) for lock in locks),
            waiting_readers=sum(len(lock.readers) for lock in locks),
            guards=len(self._guards),
            transactions=len(self._waits.active),
            remembered=len(self._endings),
            deadlocks=self._deadlocks.found,
            pushes=self._pushes,
            waiting=self._lines.waiting,
            searches=len(self.searches),
            contended_keys=keys,
            contended_transactions=txns,
        )

    # --- Ends -----------------------------------------------------------------------------------

    def _held(self, where: Key | Span, txn: Txn) -> list[KeyLock]:
        """The locks that a transaction holds at a key or in a span."""
        span = where if isinstance(where, Span) else Span(where)
        return [
            lock
            for lock in self._locks.within(span)
            if lock.holder is not None and lock.holder.id == txn.id
        ]

    def _finish(
        self, locks: list[KeyLock], txn: Txn, outcome: Outcome, committed: Timestamp | None
    ) -> int:
        """A transaction is committed or aborted, and these of its locks are released."""
        known = self._endings.outcome(txn.id)
        if known is not None and known != outcome:
            raise ended_error(txn, known)
        if committed is not None:
            for lock in locks:
                self._check_rises(lock, committed)
        self._end(txn.id, outcome)
        for lock in locks:
            self._lines.release(lock, committed)
        self._waits.drop(txn.id)
        return len(locks)

    def _move(self, locks: list[KeyLock], txn: Txn, timestamp: Timestamp) -> int:
        outcome = self._endings.outcome(txn.id)
        if outcome is not None:
            raise ended_error(txn, outcome)
        changed = 0
        for lock in locks:
            assert lock.holder is not None
            if lock.holder.timestamp < timestamp:
                self._lines.rise(lock, lock.holder._replace(timestamp=timestamp))
                changed += 1
        return changed

    def _end(self, txn_id: TxnId, ending: Ending) -> None:
        """Remember how a transaction has ended; its requests that wait are lost."""
        self._endings.note(txn_id, ending, self._waits.active)
        txn_state = self._waits.active.get(txn_id)
        if txn_state is not None:
            for guard in list(txn_state.waits):
                self._lines.lose(guard)
                guard.ending = ending

    def _give_up(self, deadlock: TxnDeadlock) -> None:
        self._end(deadlock.victim.id, deadlock)

    def _look_for_deadlocks(self, txn_id: TxnId, other_id: TxnId | None = None) -> None:
        if self._detect:
            self._deadlocks.search_from(txn_id)
            if other_id is not None:
                self._deadlocks.search_from(other_id)
            if self.searches:
                self._deadlocks.go_on()

    # --- Checks ---------------------------------------------------------------------------------

    def _check_rescan(self, guard: Guard, request: Request, txn: Txn) -> None:
        self.check_guard(guard)
        same = guard.request is request or guard.request == request
        if guard.txn.id != txn.id or not same:
            raise MisuseError(
                f"{guard!r} is not the guard of this request; a new request begins without one",
                guard=guard,
            )
        if txn.timestamp < guard.txn.timestamp:
            raise BadTimestamp(
                f"transaction {txn.id} scanned at {guard.txn.timestamp} and can't go back to "
                f"{txn.timestamp}",
                timestamp=txn.timestamp,
            )

    def _check_full(self, guard: Guard, parts: Parts) -> None:
        """Refuse a new request that would have to wait: there are as many as there may be."""
        if any(
            self._lines.in_the_way(lock, guard, writes) for writes, locks in parts for lock in locks
        ):
            raise TableFull(
                f"{self._max_waiters} requests wait in the lock table, as many as may: the one of "
                f"transaction {guard.txn.id} can't. Try again later, or make a table with a higher "
                "max_waiters",
                limit=self._max_waiters,
            )

    def _writes(self, guard: Guard, key: Key) -> bool:
        """Whether a request writes a key that it found an intent at; otherwise it reads it."""
        try:
            if any(span.covers(key) for span in guard.request.writes):
                return True
            if any(span.covers(key) for span in guard.request.reads):
                return False
        except TypeError:
            pass  # a key of another kind is in none of them
        raise MisuseError(
            f"key {key!r} is in no span of the request of {guard!r}; it can't have met an intent "
            "there",
            key=key,
        )

    def _check_rises(self, lock: KeyLock, timestamp: Timestamp) -> None:
        holder = lock.holder
        if holder is not None and timestamp < holder.timestamp:
            raise BadTimestamp(
                f"transaction {holder.id} can't be committed at {timestamp}: its lock on {lock.key!r} "
                f"is at {holder.timestamp}, and readers before that have gone on",
                timestamp=timestamp,
            )
