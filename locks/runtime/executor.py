"""Where a node's own background work runs.

A program that is monkey-patched, or already lives in a gevent hub, gets the work done in that hub.
Any other program gets a native daemon thread with a hub of its own, so that a client that computes
for a minute neither looks dead nor holds up others.

One greenlet, the worker, does what `run_soon` is given, in order. It waits for work as an idle
greenlet: it keeps neither the process nor a loop running, so a program that blocks for ever in its
own hub gets gevent's `LoopExit` as it always would. In a thread of its own, the thread's main
greenlet waits for `stop` and so keeps that loop running; it also takes what gevent throws at main
greenlets (`SystemExit` from some greenlet) without ending.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import gevent
from gevent import monkey

from locks.runtime.waiter import Channel, Event, Waiter, get_hub_if_exists

if TYPE_CHECKING:
    from collections.abc import Callable

    from gevent.hub import Hub

__all__ = ["Executor"]

logger = logging.getLogger("locks")

T = TypeVar("T")


class Executor:
    """One hub and, in it, the greenlet that does the background work. Made by `Executor.choose`.

    Attributes:
        hub: the hub that the work runs in.
    """

    hub: Hub
    _worker: gevent.Greenlet[..., None]

    def __init__(self, *, own_thread: bool) -> None:
        self._work: Channel[tuple[Callable[..., object], tuple[Any, ...]] | None] = Channel()
        self._stopping = False
        self._worker_ended = Event()
        self._thread: threading.Thread | None = None
        if own_thread:
            ready = Waiter()
            self._thread = threading.Thread(
                target=self._run_thread, args=(ready,), name="locks-home", daemon=True
            )
            self._thread.start()
            ready.wait()
        else:
            self._start_worker()

    @classmethod
    def choose(cls) -> Executor:
        """Return an executor in the caller's hub, or else in a thread of its own."""
        in_place = (
            monkey.is_module_patched("threading")
            or monkey.is_module_patched("socket")
            or get_hub_if_exists() is not None
        )
        return cls(own_thread=not in_place)

    @property
    def is_own_thread(self) -> bool:
        """Whether the work runs in a thread of its own, not in the program's hub."""
        return self._thread is not None

    def run_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Have the worker call `function(*args)`, after everything that it was given before.

        From any thread. The function may block cooperatively; what comes next waits for it. An
        exception is logged.

        Raises:
            RuntimeError: after `stop`.
        """
        if self._stopping:
            raise RuntimeError("this home was stopped")
        self._work.send((function, args))

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the hub, from any thread, and return what it returns.

        Raises:
            RuntimeError: after `stop`.
        """
        if get_hub_if_exists() is self.hub:
            return function(*args)
        outcome: list[T | BaseException] = []
        waiter = Waiter()

        def work() -> None:
            try:
                outcome.append(function(*args))
            except BaseException as error:
                outcome.append(error)
            finally:
                waiter.wake()

        self.run_soon(work)
        waiter.wait()
        (result,) = outcome
        if isinstance(result, BaseException):
            raise result
        return result

    def stop(self, timeout: float | None = None) -> bool:
        """Do what is queued, then end the worker and the thread, if it has one.

        If the executor has a thread of its own, greenlets that other code started in its hub end
        with it, without notice. If the worker itself calls this, it ends after the present call.

        Returns:
            Whether all ended in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._stopping:
            self._stopping = True
            self._work.send(None)
        if gevent.getcurrent() is self._worker:
            return False
        if not self._worker_ended.wait(timeout):
            return False
        thread = self._thread
        if thread is None or get_hub_if_exists() is self.hub:
            return True
        # All that it still does is to destroy its hub: a matter of microseconds.
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not thread.is_alive()

    def _start_worker(self) -> None:
        self.hub = gevent.get_hub()
        self._worker = gevent.spawn(self._run_worker)
        # Not in the worker: it may be killed before it ever runs.
        self._worker.rawlink(self._close)

    def _run_worker(self) -> None:
        while True:
            try:
                work = self._work.receive()
                if work is None:
                    return
                function, args = work
                function(*args)
            except gevent.GreenletExit:
                self._stopping = True  # the worker was killed
                raise
            except KeyboardInterrupt as error:
                # Not for us: it goes to the program's main greenlet, and the work goes on.
                self.hub.handle_system_error(type(error), error)
            except BaseException:
                logger.exception("background work failed")

    def _close(self, _worker: object) -> None:
        self._stopping = True
        self._work.close(_drop)
        self._worker_ended.open()

    def _run_thread(self, ready: Waiter) -> None:
        self._start_worker()
        ready.wake()
        while True:
            try:
                self._worker_ended.wait()
                break
            except BaseException:
                # gevent throws a `SystemExit` of any greenlet at the thread's main greenlet.
                logger.exception("a greenlet in the thread of locks tried to end it")
        self.hub.destroy()


def _drop(work: tuple[Callable[..., object], tuple[Any, ...]] | None) -> None:
    if work is not None:
        logger.warning("background work dropped, it came after the stop: %r", work[0])
