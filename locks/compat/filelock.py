"""The lock of filelock: `from locks.compat.filelock import FileLock` instead of `from filelock import FileLock`.

The path is only a name: no file is made.
"""

from __future__ import annotations

import os
import threading
from contextlib import ContextDecorator
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, TypeVar
from weakref import WeakValueDictionary

import locks
from locks.compat.holding import Block, Holding, theirs

__all__ = ["AcquireReturnProxy", "BaseFileLock", "FileLock", "SoftFileLock", "Timeout"]


class _Errors:
    """The error, where filelock is not installed."""

    class Timeout(TimeoutError):
        """The lock could not be acquired in time."""

        def __init__(self, lock_file: str) -> None:
            super().__init__(lock_file)
            self.lock_file = lock_file

        def __str__(self) -> str:
            return f"The file lock '{self.lock_file}' could not be acquired."


Timeout = theirs("filelock", _Errors.Timeout)
F = TypeVar("F", bound="FileLock")


class _Here(threading.local):
    """What the objects of this thread have acquired, by the lock id."""

    def __init__(self) -> None:
        self.held: WeakValueDictionary[tuple[str, str], Holding] = WeakValueDictionary()


_here = _Here()


class _Singletons(type):
    """Returns the same object for each call with the same path and `is_singleton=True`."""

    _made: ClassVar[WeakValueDictionary[tuple[type, str], Any]] = WeakValueDictionary()
    _making = threading.Lock()

    def __call__(cls, lock_file: str | os.PathLike[str], *args: Any, **options: Any) -> Any:
        made = super().__call__(lock_file, *args, **options)
        if not made.is_singleton:
            return made
        with cls._making:
            known = cls._made.setdefault((cls, os.path.abspath(made.lock_file)), made)
        if known.options != made.options:
            raise ValueError(
                f"{made.lock_file} has a singleton with other arguments, {known.options}; pass the same ones, not {made.options}"
            )
        return known


class FileLock(Block, ContextDecorator, metaclass=_Singletons):
    """A lock with the arguments of filelock's: re-entrant for the object, and for each thread that uses it.

    Args:
        lock_file: Its name; the lock id is `("file", path)`, with the real path.
        timeout: Seconds that `acquire` waits at most; less than 0 for ever.
        mode: Not used: there is no file.
        thread_local: Whether each thread acquires the lock for itself. Otherwise the object is the holder, in all threads.
        blocking: Whether `acquire` waits.
        is_singleton: Whether all objects of this class with this path are one object.
        poll_interval: Not used: nobody polls.
    """

    def __init__(
        self,
        lock_file: str | os.PathLike[str],
        timeout: float = -1,
        mode: int = 0o644,
        thread_local: bool = True,
        *,
        blocking: bool = True,
        is_singleton: bool = False,
        poll_interval: float = 0.05,
    ) -> None:
        self.lock_file = os.fspath(lock_file)
        self.timeout = timeout
        self.mode = mode
        self.blocking = blocking
        self.is_singleton = is_singleton
        self.poll_interval = poll_interval
        self.options = (timeout, mode, thread_local, blocking, poll_interval)
        self._is_thread_local = thread_local
        self._local: Any = threading.local() if thread_local else SimpleNamespace()
        if not thread_local:
            self._local.now = _Now()
        self._held: set[Holding] = set()  # in all threads

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.lock_file!r}>"

    @property
    def lock_id(self) -> tuple[str, str]:
        """The lock id, with the real path by now."""
        return ("file", os.path.realpath(self.lock_file))

    def is_thread_local(self) -> bool:
        """Whether each thread acquires the lock for itself."""
        return self._is_thread_local

    @property
    def _now(self) -> _Now:
        try:
            found: _Now = self._local.now
        except AttributeError:  # in this thread for the first time
            found = self._local.now = _Now()
        return found

    @property
    def is_locked(self) -> bool:
        """Whether this object, in this thread, holds it."""
        held = self._now.held
        return held is not None and held.owned()

    @property
    def lock_counter(self) -> int:
        """How often this object, in this thread, has acquired it."""
        return self._now.count

    def acquire(
        self,
        timeout: float | None = None,
        poll_interval: float | None = None,
        *,
        blocking: bool | None = None,
    ) -> AcquireReturnProxy:
        """Acquire the lock, once more if it is held already.

        Args:
            timeout: As for the lock; `None` takes the lock's.
            poll_interval: Not used.
            blocking: As for the lock; `None` takes the lock's.

        Returns:
            A block that releases the lock.

        Raises:
            Timeout: Others hold it.
            LockLost: It was held, and was lost.
            MisuseError: The program has no lock servers.
        """
        limit: float | None = self.timeout if timeout is None else timeout
        if not (self.blocking if blocking is None else blocking):
            limit = 0
        elif limit is not None and limit < 0:
            limit = None
        now = self._now
        if not now.changing.acquire(timeout=-1 if limit is None else limit):
            raise Timeout(self.lock_file)
        try:
            if now.held is None:
                self._take(now, limit)
            elif not now.held.owned():
                raise _lost(now.held)
            now.count += 1
        finally:
            now.changing.release()
        return AcquireReturnProxy(self)

    def _take(self, now: _Now, limit: float | None) -> None:
        lock_id = self.lock_id
        other = _here.held.get(lock_id)
        if limit is None and other is not None and other.owned():
            raise RuntimeError(
                f"Deadlock: {self.lock_file} is held by another object of this thread, and would be waited for without an end; "
                "use one object, or is_singleton=True"
            )
        new = Holding(lambda owner: locks.Lock(lock_id, owner=owner))
        try:
            if not new.acquire(limit):
                raise Timeout(self.lock_file)
            self._held.add(new)
            now.held = _here.held[lock_id] = new
        except BaseException:
            new.owner.end()
            raise

    def release(self, force: bool = False) -> None:
        """Undo one `acquire`; does nothing if the lock is not held.

        Args:
            force: Whether to undo all of them.

        Raises:
            LockLost: It was lost meanwhile.
        """
        now = self._now
        with now.changing:
            held = now.held
            if held is None:
                return
            now.count = 0 if force else now.count - 1
            if now.count == 0:
                now.held = None
                self._held.discard(held)
                held.release()

    def __enter__(self: F) -> F:
        self.acquire()
        return self

    def __del__(self) -> None:
        for held in getattr(self, "_held", ()):
            held.owner.end()


SoftFileLock = FileLock
BaseFileLock = FileLock


class _Now:
    """What an object holds now, in a thread or in all of them."""

    def __init__(self) -> None:
        self.held: Holding | None = None
        self.count = 0
        self.changing = threading.Lock()


class AcquireReturnProxy:
    """A block that releases a lock that was acquired: `with lock.acquire(timeout=5):`."""

    def __init__(self, lock: FileLock) -> None:
        self.lock = lock

    def __enter__(self) -> FileLock:
        return self.lock

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.lock.__exit__(kind, error, trace)


def _lost(held: Holding) -> locks.LockLost:
    return locks.LockLost(
        f"lost the lock {held.lock!r}; others may hold it now. Release it before it is acquired anew",
        lock_ids=(held.lock.lock_id,),
    )
