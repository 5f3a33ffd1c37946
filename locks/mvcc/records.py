"""The lock table's records: a `Guard` for each request, a `KeyLock` for each key, and the sorted map.

A lock is in the map while it is held or reserved. The map is a dictionary with a sorted list of its
keys. So a look-up of one key costs the same for any number of keys, and a range is a slice
(decision 0039).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from locks.errors import MisuseError
from locks.lock_ids import shown
from locks.mvcc.errors import InvalidKey, TableFull
from locks.mvcc.model import (
    Key,
    LockState,
    Outcome,
    Place,
    Request,
    Span,
    Strength,
    Timestamp,
    Txn,
    TxnDeadlock,
)

__all__ = ["Ending", "Guard", "KeyLock", "LockMap", "Standing", "by_number"]

Ending = Outcome | TxnDeadlock
"""How a transaction ended: by an update, or as the victim of a deadlock, which must abort."""

by_number = attrgetter("number")


Standing = tuple[Key, Txn, float]
"""A present wait: its key, the transaction that blocked it when it began, and since when."""


class Guard:
    """One request in the lock table.

    Attributes:
        number: Its sequence number; smaller ones came earlier.
        txn: Its transaction.
        request: What it reads and writes.
        skipped: The keys that its last scan left out, with `wait="skip locked"`.
    """

    __slots__ = (
        "ending",
        "number",
        "places",
        "request",
        "skipped",
        "standing",
        "table",
        "txn",
        "waits_at",
    )

    def __init__(self, table: object, number: int, txn: Txn, request: Request) -> None:
        self.table: object | None = table  # None when the request was dequeued
        self.number = number
        self.txn = txn
        self.request = request
        self.skipped: tuple[Key, ...] = ()
        self.standing: Standing | None = None  # as far as noted; see `Contentions`
        # Where it waits now, where it has a reservation or a place as writer, and why its wait
        # ended if not by a release.
        self.waits_at: KeyLock | None = None
        self.places: dict[KeyLock, None] = {}
        self.ending: Ending | None = None

    def __repr__(self) -> str:
        if self.table is None:
            state = "dequeued"
        elif self.waits_at is not None:
            state = f"waits at {self.waits_at.key!r}"
        else:
            state = "runs"
        return f"<Guard {self.number} of transaction {self.txn.id}: {state}>"


class KeyLock:
    """The state of one key; see `locks.mvcc.LockState`."""

    __slots__ = (
        "contended",
        "holder",
        "key",
        "last_committed",
        "queue",
        "readers",
        "reservation",
        "roaming",
        "strength",
    )

    def __init__(self, key: Key) -> None:
        self.key = key
        self.holder: Txn | None = None
        self.strength: Strength = "intent"  # of the holder
        self.reservation: Guard | None = None
        self.queue: list[Guard] = []
        self.roaming: list[
            Guard
        ] = []  # members of the queue whose transactions also wait elsewhere
        self.readers: list[Guard] = []
        self.last_committed: Timestamp | None = None
        self.contended = False  # whether it counts in its holder's `ActiveTxn.contended`

    def insert(self, line: list[Guard], guard: Guard) -> None:
        """Put a guard at its place in the queue, or among the readers."""
        if not line or line[-1].number < guard.number:
            line.append(guard)
        else:
            line.insert(bisect_left(line, guard.number, key=by_number), guard)

    def remove(self, line: list[Guard], guard: Guard) -> None:
        """Take a guard out of the queue, or out of the readers."""
        del line[bisect_left(line, guard.number, key=by_number)]

    def seen(self) -> LockState:
        """The state that users see."""
        return LockState(
            self.key,
            self.holder,
            None if self.reservation is None else self._place(self.reservation),
            tuple(map(self._place, self.queue)),
            tuple(map(self._place, self.readers)),
            self.last_committed,
            None if self.holder is None else self.strength,
        )

    def _place(self, guard: Guard) -> Place:
        return Place(guard.number, guard.txn, guard.waits_at is self)


class LockMap:
    """The locks by their keys, in the order of the keys.

    Args:
        limit: How many there may be.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._locks: dict[Key, KeyLock] = {}
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def all(self) -> Iterable[KeyLock]:
        """All locks, in no particular order."""
        return self._locks.values()

    def get(self, key: Key) -> KeyLock | None:
        """The lock of a key, if there is one.

        Raises:
            InvalidKey: The key can't be hashed.
        """
        try:
            return self._locks.get(key)
        except Exception as error:  # whatever a key's own methods raise
            raise _invalid(key, error) from None

    def within(self, span: Span | None) -> list[KeyLock]:
        """The locks of a span, or all, in order.

        Raises:
            InvalidKey: The span can't be compared with the keys.
        """
        if span is None:
            return [self._locks[key] for key in self._keys]
        if not isinstance(span, Span):
            raise MisuseError(f"{shown(span)} is no Span", value=shown(span))
        start, end = span
        if end is None:
            lock = self.get(start)
            return [] if lock is None else [lock]
        try:
            first = bisect_left(self._keys, start)
            keys = self._keys[first : bisect_left(self._keys, end, first)]
        except Exception as error:  # whatever a key's own methods raise
            raise _invalid(span, error) from None
        return [self._locks[key] for key in keys]

    def add(self, key: Key) -> KeyLock:
        """Put a key in that has no lock yet.

        Raises:
            InvalidKey: The key can't be hashed, or has no place in the order of the others.
            TableFull: There are as many as there may be.
        """
        lock, keys = KeyLock(key), self._keys
        if len(keys) >= self._limit:
            raise TableFull(
                f"the lock table has {self._limit} locks, as many as it may have: there is no place "
                f"for {key!r}. End transactions, or make a table with a higher max_locks",
                limit=self._limit,
            )
        try:
            if type(key) is Span:
                raise TypeError("a lock is on one key, this is a span")
            place = bisect_left(keys or [key], key)
            # NaN, or a set, can be compared, but is neither before nor after some others.
            follows = place == 0 or keys[place - 1] < key
            precedes = key < keys[place] if place < len(keys) else key == key
            if not (follows and precedes):
                raise TypeError("it is neither smaller nor larger than another key")
            self._locks[key] = lock
        except Exception as error:  # whatever a key's own methods raise
            raise _invalid(key, error) from None
        keys.insert(place, key)
        return lock

    def remove(self, key: Key) -> None:
        """Take a key out."""
        del self._locks[key]
        del self._keys[bisect_left(self._keys, key)]


def _invalid(key: Key, error: Exception) -> InvalidKey:
    return InvalidKey(
        f"{shown(key)} can't be a key of this table ({error}); use text, bytes, numbers or tuples, "
        "all keys of one kind",
        key=repr(key),
    )
