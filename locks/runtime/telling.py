"""Calls of the program's functions: watchers, monitors, and what is called when locks are lost.

Each function has its calls in their order, one at a time, and no function waits for another one. A *worker* makes the calls that are due. If one of them
takes long, a further worker goes on with those of the other functions; so there are as many workers as functions that block, and one more.
A worker is a native thread. In a program that is monkey-patched it is a greenlet in the executor's hub, where such programs expect to be.

What a function has not yet been called with is bounded: if it is too far behind, the oldest calls are left out, and counted.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import gevent
from gevent import getcurrent

from locks.runtime.callables import check_begun
from locks.runtime.clock import monotonic
from locks.runtime.hub_life import Timer
from locks.runtime.native import native_lock
from locks.runtime.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from gevent.hub import Hub

__all__ = ["MOST_CALLS", "Teller"]

logger = logging.getLogger("locks.runtime")

MOST_CALLS = 100_000  # of one function that wait; a group may have thousands of changes at once
MOST_WORKERS = 200
PATIENCE = 0.05  # seconds that the other functions wait for one
SLOW = 1.0  # seconds; a call that takes longer is logged


def _throw(error: BaseException) -> None:
    raise error


class _Line:
    """The calls of one function.

    Attributes:
        calls: The arguments of those that wait.
        left_out: How many were left out since the function returned last.
        begun: When the present call began.
        worker: The worker that makes it; `None` if there is no present call.
        is_logged: Whether the present call was logged.
    """

    __slots__ = ("begun", "calls", "function", "is_logged", "left_out", "worker")

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self.calls: deque[tuple[Any, ...]] = deque()
        self.left_out = 0
        self.begun = 0.0
        self.worker: object = None
        self.is_logged = False

    @property
    def name(self) -> str:
        """What the log calls the function."""
        function = getattr(self.function, "target", self.function)
        name = getattr(function, "__qualname__", None)
        return repr(function) if name is None else f"{getattr(function, '__module__', '?')}.{name}"


class Teller:
    """Calls functions, each in its own order; made by an executor, in whose hub `tell` is called.

    Args:
        begin: Begins a worker.
        run_soon: Has the executor call a function.
    """

    def __init__(
        self, begin: Callable[[Callable[[], object]], object], run_soon: Callable[..., object]
    ) -> None:
        self._begin = begin
        self._run_soon = run_soon
        self._lock = native_lock()
        self._lines: dict[Hashable, _Line] = {}  # by function; those with calls, or a present one
        self._due: deque[_Line] = deque()  # those with calls, and without a present one
        self._running: dict[_Line, None] = {}
        self._workers = 0
        self._quiet: list[Waiter] = []  # who waits until all calls are made
        self._timer: Timer | None = None
        self._hub: Hub | None = None  # in which the timer runs; `None` if it does not

    def tell(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Call a function, after its earlier calls. Functions that are equal are one."""
        with self._lock:
            line = self._lines.get(function)
            if line is None:
                line = self._lines[function] = _Line(function)
                self._due.append(line)
            line.calls.append(args)
            is_first = False
            if len(line.calls) > MOST_CALLS:
                line.calls.popleft()
                line.left_out += 1
                is_first = line.left_out == 1
            more = self._workers == 0
            self._workers += more
        if more:
            self._begin(self._work)
        if is_first:
            logger.warning(
                "%s does not keep up: %s calls wait; the oldest ones are left out",
                line.name,
                MOST_CALLS,
            )
        if self._hub is not gevent.get_hub():
            self._watch(gevent.get_hub())

    def is_here(self) -> bool:
        """Whether it is one of its workers that calls this."""
        here = getcurrent()
        with self._lock:
            return any(line.worker is here for line in self._running)

    def wait(self, timeout: float) -> bool:
        """Wait until all calls are made, if nobody asks for more; returns whether they are, in time."""
        waiter = Waiter()
        with self._lock:
            if not self._lines:
                return True
            self._quiet.append(waiter)
        return waiter.wait(timeout)

    def _work(self) -> None:
        """The life of a worker."""
        while True:
            with self._lock:
                if not self._due:
                    self._workers -= 1
                    return
                line = self._due.popleft()
                args = line.calls.popleft()
                line.worker = getcurrent()
                line.begun = monotonic()
                self._running[line] = None
            try:
                check_begun(line.function(*args), line.name)
            except (
                gevent.GreenletExit
            ):  # the worker was killed; another one begins when it is missed
                self._ended(line)
                with self._lock:
                    self._workers -= 1
                return
            except KeyboardInterrupt as error:
                self._run_soon(partial(_throw, error))  # the executor knows whose it is
            except BaseException:
                logger.exception("a callback failed: %s", line.name)
            self._ended(line)
            del line, args

    def _ended(self, line: _Line) -> None:
        """A call has returned."""
        quiet: list[Waiter] = []
        with self._lock:
            left_out, line.left_out = line.left_out, 0
            took = monotonic() - line.begun if line.is_logged else 0.0
            if self._running.pop(line, line) is line:
                return  # its hub was destroyed
            self._put_back(line)
            if not self._lines:
                quiet, self._quiet = self._quiet, quiet
        for waiter in quiet:
            waiter.wake()
        if took:
            logger.warning("%s has returned after %.1f s", line.name, took)
        if left_out:
            logger.warning("%s was not called %s times, as it did not keep up", line.name, left_out)

    def _put_back(self, line: _Line) -> None:
        """There is no present call of this function any more."""
        line.worker, line.is_logged = None, False
        if line.calls:
            self._due.append(line)
        else:
            del self._lines[line.function]

    def _watch(self, hub: Hub) -> None:
        """Look now and then whether the workers get on, as long as there is anything to do."""
        if self._hub is not None:  # it was destroyed, and its greenlets with it
            with self._lock:
                lost, self._running, self._workers = self._running, {}, 0
                for line in lost:
                    self._put_back(line)
        self._hub = hub
        self._timer = Timer(hub, PATIENCE, partial(gevent.spawn, self._look), PATIENCE)

    def close(self) -> None:
        """No more calls come: stop looking, unless one still runs. In the hub."""
        with self._lock:
            if not self._lines and self._timer is not None:
                self._timer.close()
                self._hub = None

    def _look(self) -> None:
        """Do calls take long? Then log that, and go on with the others."""
        now = monotonic()
        slow = []
        with self._lock:
            for line in self._running:
                if now - line.begun >= SLOW and not line.is_logged:
                    line.is_logged = True
                    slow.append(line.name)
            more = 0
            if all(now - line.begun >= PATIENCE for line in self._running):
                more = min(len(self._due), max(1, self._workers), MOST_WORKERS - self._workers)
            self._workers += more
            if not self._lines:
                assert self._timer is not None
                self._timer.close()
                self._hub = None
        for _ in range(more):
            self._begin(self._work)
        for name in slow:
            logger.warning(
                "%s has taken more than %g s and still runs; its further calls wait for it",
                name,
                SLOW,
            )
