"""A plugin of pytest: `filelock.FileLock`, made of a `locks.Lock` that the programs of this machine share."""

from __future__ import annotations

import os

import filelock

import locks


class FileLock:
    """The names of theirs, with a lock of ours: its id is the path."""

    def __init__(self, lock_file: str | os.PathLike[str], timeout: float = -1) -> None:
        self.lock_file = os.fspath(lock_file)
        self._lock = locks.RLock(
            ("file", os.path.abspath(self.lock_file)), timeout=None if timeout < 0 else timeout
        )

    def acquire(self) -> FileLock:
        if not self._lock.acquire():
            raise filelock.Timeout(self.lock_file)
        return self

    def release(self) -> None:
        self._lock.release()

    @property
    def is_locked(self) -> bool:
        return self._lock.owned()

    def __enter__(self) -> FileLock:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


filelock.FileLock = FileLock
locks.start(servers="local")
