"""`time`, `threading` and `queue` of the standard library in virtual time, for the clients of a simulation.

The clock of `time` is the simulation's for clients, and the real one for all other callers.
`threading.Lock` and `RLock` make locks whose waits let other clients run. The standard library
itself makes `Condition`, `Event`, `Semaphore`, `Barrier` and `Queue` from these. A thread that a
client starts is a client.

Only names that are looked up during the patch are replaced. A lock that was made before, or `from
time import sleep` in the module under test, is not changed. A module that a client imports stays
after the patch, and so do its locks: they are real ones. The watchdog names the line of a client
that hangs in one.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from unittest import mock

from gevent import getcurrent, monkey

from locks.errors import MisuseError
from locks_lab.applications.application import Application, Client

__all__ = ["is_patched", "patched"]

FOR_EVER = -1
MADE_OF_LOCKS = (
    (threading, "Event"),
    *((queue, name) for name in ("LifoQueue", "PriorityQueue", "Queue")),
)
"""Names that gevent replaces in a monkey-patched program, and that are restored during this patch."""


class _Lock:
    """A `threading.Lock`. At `acquire` others may go first."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._held = False
        self._waiting: deque[Client] = deque()
        self._taker: Client | None = None

    def acquire(self, blocking: bool = True, timeout: float = FOR_EVER) -> bool:
        application = self._application
        application.pause()
        if not self._held:
            self._take()
            return True
        if not blocking or timeout == 0:
            return False
        client = application.caller()
        if client is None:
            raise MisuseError(
                "a lock of threading that is held can't be waited for outside of a client"
            )
        until = None if timeout == FOR_EVER else application.time + timeout
        taker = self._taker
        if (
            taker is not None and taker is not client
        ):  # not the lock of a condition that it waits for
            client.awaits = f"a lock of threading that {taker.name} took"
            application.note(
                client.name, f"waits for {client.awaits}", place=application.place(client)
            )
        self._waiting.append(client)
        try:
            while self._held:
                left = None if until is None else until - application.time
                if left is not None and left <= 0:
                    return False
                application.wait(left)
            self._take()
            return True
        finally:
            client.awaits = ""
            self._waiting.remove(client)

    def _take(self) -> None:
        self._held = True
        self._taker = self._application.caller()
        if self._taker is not None:
            self._application.guards.setdefault(self._taker, []).append(self)

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if self._taker is not None:
            self._application.guards[self._taker].remove(self)
        for client in self._waiting:  # the first one takes it
            self._application.ready(client)

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _RLock(_Lock):
    """A `threading.RLock`."""

    def __init__(self, application: Application) -> None:
        super().__init__(application)
        self._owner: Client | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = FOR_EVER) -> bool:
        me = self._application.caller()
        if self._count and self._owner is me:
            self._count += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            super().release()

    # Methods that `threading.Condition` needs.

    def _is_owned(self) -> bool:
        return bool(self._count) and self._owner is self._application.caller()

    def _release_save(self) -> int:
        count, self._count, self._owner = self._count, 0, None
        super().release()
        return count

    def _acquire_restore(self, count: int) -> None:
        super().acquire()
        self._owner, self._count = self._application.caller(), count


def _is_imported() -> bool:
    """Whether the caller is a module that is being imported."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def is_patched(lock: object) -> bool:
    """Whether a lock of `threading` is in virtual time."""
    return isinstance(lock, _Lock)


class _Real:
    """The real classes, for a real thread."""

    lock = staticmethod(threading.Lock)
    rlock = staticmethod(threading.RLock)
    start = threading.Thread.start
    join = threading.Thread.join
    is_alive = threading.Thread.is_alive


@contextmanager
def patched(application: Application, begin: Callable[..., Client]) -> Iterator[None]:
    """Patch the standard library for a while.

    Args:
        application: Whose clients see it.
        begin: Adds a client.
    """
    main = getcurrent()  # not the thread: in a monkey-patched program greenlets are threads
    threads: dict[threading.Thread, Client] = {}

    def is_client() -> bool:
        return application.here() is not None

    def made(kind: type[_Lock], real: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> Any:
            is_of_another = not is_client() and getcurrent() is not main
            return real() if is_of_another or _is_imported() else kind(application)

        return make

    def sleep(seconds: float) -> None:
        if is_client():
            application.sleep(seconds, says_so=True)
        else:
            real_sleep(seconds)

    def clock(real: Callable[[], float], zero: float = 0.0) -> Callable[[], float]:
        return lambda: zero + application.time if is_client() else real()

    def start(self: threading.Thread) -> None:
        if not is_client():
            if getcurrent() is main:
                raise MisuseError(
                    f"thread {self.name} is begun outside of a client, where patch=True has no thread for it: begin it in a client, "
                    "or make a client of it"
                )
            _Real.start(self)
        elif self in threads:
            raise RuntimeError("threads can only be started once")
        else:
            threads[self] = begin(self.run, name=self.name)

    def is_alive(self: threading.Thread) -> bool:
        client = threads.get(self)
        return _Real.is_alive(self) if client is None else not client.dead

    def join(self: threading.Thread, timeout: float | None = None) -> None:
        client = threads.get(self)
        if client is None:
            _Real.join(self, timeout)
            return
        until = None if timeout is None else application.time + timeout
        while not client.dead and (until is None or application.time < until):
            application.sleep(PAUSE)

    real_sleep = time.sleep
    lock, rlock = made(_Lock, _Real.lock), made(_RLock, _Real.rlock)
    monotonic = clock(time.monotonic)
    changes: list[tuple[Any, str, Any]] = [
        (time, "sleep", sleep),
        (time, "monotonic", monotonic),
        (time, "perf_counter", clock(time.perf_counter)),
        (time, "time", clock(time.time, time.time())),
        (threading, "Lock", lock),
        (threading, "RLock", rlock),
        (threading, "_allocate_lock", lock),
        (threading, "_time", monotonic),
        (threading.Thread, "start", start),
        (threading.Thread, "join", join),
        (threading.Thread, "is_alive", is_alive),
        (queue, "time", monotonic),
        (queue, "SimpleQueue", queue._PySimpleQueue),  # type: ignore[attr-defined]
        *(
            (where, name, monkey.get_original(where.__name__, name))
            for where, name in MADE_OF_LOCKS
        ),
    ]
    for where, name, there in changes:
        if not hasattr(where, name):
            raise MisuseError(
                f"this Python has no {where.__name__}.{name}: patch=True needs it ({there})"
            )
    try:
        with _all(changes):
            yield
    finally:
        pools = sys.modules.get("concurrent.futures.thread")
        for thread in (
            threads if pools is not None else ()
        ):  # they must not be joined when Python ends
            pools._threads_queues.pop(thread, None)  # type: ignore[union-attr]


PAUSE = 0.01  # seconds between two checks of a caller that joins a thread


@contextmanager
def _all(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    patches = [mock.patch.object(where, name, there) for where, name, there in changes]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
