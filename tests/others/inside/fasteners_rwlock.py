"""A plugin of pytest for fasteners' tests: `fasteners.ReaderWriterLock`, made of a `locks.RWLock`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import fasteners

import locks

new = itertools.count()


class ReaderWriterLock:
    """The names of theirs, with a lock of ours."""

    WRITER, READER = "w", "r"

    def __init__(self) -> None:
        self._lock = locks.RWLock(("lock", next(new)))
        self._reader, self._writer = self._lock.read_lock(), self._lock.write_lock()

    @property
    def owner(self) -> str | None:
        modes = {holder.mode for holder in locks.holders(self._lock.lock_id)}
        return None if not modes else self.WRITER if "write" in modes else self.READER

    @property
    def has_pending_writers(self) -> bool:
        return any(each.mode == "write" for each in locks.queue(self._lock.lock_id).waiting)

    def _has(self, mode: str) -> bool:
        return self._reader.owned() and self.owner == mode

    def is_reader(self) -> bool:
        return self._has(self.READER)

    def is_writer(self, check_pending: bool = True) -> bool:
        return self._has(self.WRITER)

    def acquire_read_lock(self) -> None:
        self._reader.acquire()

    def acquire_write_lock(self) -> None:
        self._writer.acquire()

    def release_read_lock(self) -> None:
        self._reader.release()

    def release_write_lock(self) -> None:
        self._writer.release()

    @contextmanager
    def read_lock(self) -> Iterator[ReaderWriterLock]:
        with self._reader:
            yield self

    @contextmanager
    def write_lock(self) -> Iterator[ReaderWriterLock]:
        with self._writer:
            yield self


fasteners.ReaderWriterLock = ReaderWriterLock
