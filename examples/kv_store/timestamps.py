"""Timestamps: their source, and up to where each key has been read."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from locks.mvcc import Span

from .latches import overlap
from .storage import Storage

__all__ = ["Oracle", "ReadCache"]


class Oracle:
    """Gives out numbers that only rise, also from one run of the program to the next.

    The file says up to where numbers may have been given out. It is written once for each
    thousand; after a restart the oracle goes on above it.

    Args:
        storage: Where the ceiling is kept.
        block: For how many numbers at a time.
    """

    def __init__(self, storage: Storage, block: int = 1000) -> None:
        self._mutex = threading.Lock()
        self._storage = storage
        self._block = block
        self.last = self._ceiling = storage.number("ceiling")

    def next(self) -> int:
        """Return a number larger than any before."""
        with self._mutex:
            if self.last == self._ceiling:
                self._storage.set_number("ceiling", self.last + self._block)
                self._ceiling = self.last + self._block
            self.last += 1
            return self.last


class ReadCache:
    """The largest timestamp at which each key was read, and by which transaction.

    A key must be written above this timestamp; otherwise the reader would have missed a value that it
    should have seen. A transaction's own reads don't count.

    It holds what is needed, and sometimes more: when there are too many entries, all of them become
    one for all keys. Then writers move up that need not, which is harmless.

    Args:
        limit: The number of entries. Ranges are looked through one by one, so a tenth of it.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._mutex = threading.Lock()
        self._limit = limit
        self._low = 0
        self._keys: dict[str, tuple[int, int | None]] = {}
        self._ranges: dict[Span, tuple[int, int | None]] = {}

    def record(self, spans: Sequence[Span], timestamp: int, txn: int) -> None:
        """Remember that spans were read at a timestamp by a transaction."""
        with self._mutex:
            for span in spans:
                if span.end is None:
                    self._keys[span.start] = later(self._keys.get(span.start), timestamp, txn)
                else:
                    self._ranges[span] = later(self._ranges.get(span), timestamp, txn)
            if len(self._keys) > self._limit or len(self._ranges) > self._limit // 10:
                every = [*self._keys.values(), *self._ranges.values()]
                self._low = max(self._low, *(read for read, _ in every))
                self._keys.clear()
                self._ranges.clear()

    def latest(self, key: str, txn: int) -> int:
        """Return the largest timestamp at which the key was read by any other transaction."""
        span = Span(key)
        with self._mutex:
            found = [entry for other, entry in self._ranges.items() if overlap(span, other)]
            if key in self._keys:
                found.append(self._keys[key])
            return max([self._low, *(read for read, reader in found if reader != txn)])


def later(entry: tuple[int, int | None] | None, read: int, txn: int) -> tuple[int, int | None]:
    """Return the later one of an entry and a read; one with two readers belongs to neither."""
    if entry is None or entry[0] < read:
        return (read, txn)
    if entry[0] == read and entry[1] != txn:
        return (read, None)
    return entry
