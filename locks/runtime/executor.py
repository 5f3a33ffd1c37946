"""The executor, which runs a node's background work.

If a program is monkey-patched, and first uses the node in its main thread, the work runs in the
main thread's hub. Any other program gets a native daemon thread with its own hub, even if the first
user has a hub: that hub would end with the user's thread. With a separate thread, a client that
computes for a minute neither looks dead nor blocks others.

One greenlet, the worker, runs the functions given to `run_soon`, in order. The program's own
functions are given to `tell`. Other workers call them (`locks.runtime.telling`), so a function that
blocks delays nothing else. The worker waits for work as an idle greenlet: it keeps neither the
process nor a loop running. So a program that blocks for ever in its own hub gets gevent's
`LoopExit` as usual. In a separate thread, the thread's main greenlet waits for `stop` and so keeps
that loop running. It also survives exceptions that gevent throws at main greenlets (`SystemExit`
from some greenlet).

**At the interpreter's end, the thread rests.** Before Python 3.14, a daemon thread that needs the
interpreter after that is ended at any point, by unwinding its stack. If one of its greenlets runs,
the stack below belongs to another greenlet, and in one of a hundred cases the process dies of
SIGSEGV. So a handler of `atexit` makes the thread sleep in its hub, where it does not need the
interpreter. A later handler that uses a lock wakes it again.

**Nobody waits for what has ended.** After `stop`, work is dropped: it is of a node that has ended. A `call`, whose caller waits, is refused with
`NodeNotRunning`, before the end and after it. When the separate thread ends, it first ends all greenlets of ours in its hub, so that those who wait
for an actor there are answered.

**The work outlives its worker.** If a worker is killed, another one takes its place in the same
hub, or, if the hub was destroyed, in a separate thread. Queued work stays queued, in order.
"""

from __future__ import annotations

import atexit
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import gevent
from gevent import monkey

from locks.errors import MisuseError, NodeNotRunning
from locks.runtime import hub_life, interrupts
from locks.runtime.away import begin_in_thread
from locks.runtime.clock import monotonic
from locks.runtime.native import is_main_thread, native_lock, start_thread
from locks.runtime.port import is_simulated
from locks.runtime.telling import Teller
from locks.runtime.waiter import (
    Channel,
    Event,
    Waiter,
    get_hub_if_exists,
    mailbox_if_exists,
    run_in_hub,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gevent.hub import Hub
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["Executor", "check_interpreter_lasts"]

logger = logging.getLogger("locks.runtime")

T = TypeVar("T")
STOPPED = "the program's node was stopped; start one with locks.start()"
LAST_CALLS = 5.0  # seconds to wait, when it is stopped, until the program's functions have returned
PATIENCE = 1.0  # seconds to wait, at the end, until the thread rests, or its greenlets have ended

# What a hub imports is imported with this module, so that a fork waits for it (`locks.runtime.forked`).
_IMPORTED = (gevent.config.loop, gevent.config.format_context)

Work = tuple["Callable[..., object]", tuple[Any, ...]]


def check_interpreter_lasts() -> None:
    """Raise `MisuseError` if the interpreter is ending, so that no thread can be started."""
    if sys.is_finalizing():
        raise MisuseError(
            "can't start the program's node: the interpreter is shutting down, and starts no more threads. Release objects that use "
            "locks in `__del__` before the program ends"
        )


class Executor:
    """One hub and, in it, the greenlet that does the background work. Made by `Executor.choose`.

    Attributes:
        hub: the hub that the work runs in.
    """

    hub: Hub
    _worker: gevent.Greenlet[..., None]

    def __init__(self, *, own_thread: bool) -> None:
        self._work: Channel[Work | None] = Channel()
        self._stopping = False
        self._done = False  # the worker has come to the end of the work
        self._ended = Event()
        self._timers: WeakSet[hub_life.Timer] = WeakSet()
        self._greenlets: WeakSet[gevent.Greenlet[..., None]] = WeakSet()
        self._movable = [True]  # taken by the caller that starts a thread in place of a dead hub
        self._join: Callable[[float | None], bool] | None = None
        begin = _begin_in_hub if _is_patched() else begin_in_thread
        self._teller = Teller(begin, self.run_soon)
        self.is_own_thread = own_thread
        """Whether the work runs in a thread of its own, not in the program's hub."""
        if own_thread:
            check_interpreter_lasts()
            # Waited for by the whole thread: other greenlets might wait for the lock that the
            # caller has.
            ready = native_lock()
            ready.acquire()
            try:
                self._start_thread(ready.release)
                ready.acquire()
            except BaseException:
                self._finish_soon()
                raise
        else:
            self._start_worker()

    @classmethod
    def choose(cls) -> Executor:
        """Return an executor in the main thread's hub, if that is right, or in a thread of its own."""
        return cls(own_thread=not (_is_patched() and is_main_thread()))

    def run_soon(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> bool:
        """Make the worker call `function(*args)`, after all earlier work.

        From any thread. The function may block cooperatively; later work waits for it. An exception
        is logged.

        Returns:
            Whether it will be called: not after `stop`.
        """
        if self._stopping:
            return False
        self._work.send((function, args))
        self._look_after()
        return True

    def tell(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        """Have a function of the program called, in its own order: it may block, which holds up nothing but its own further calls.

        From any thread. Functions that are equal are one function. An exception is logged. After `stop` it is not called.
        """
        if self.is_here():
            self._teller.tell(function, args)
        else:
            self.run_soon(self._teller.tell, function, args)

    def call(self, function: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
        """Call a function in the hub, from any thread, and return its result.

        Raises:
            NodeNotRunning: after `stop`, or if the call had not begun then.
            RuntimeError: the worker was killed meanwhile.
            MisuseError: the caller is in a simulation, which has its own node.
        """
        if is_simulated():
            raise MisuseError(
                "can't call a node that is not simulated from a simulation: leave node=... out"
            )
        if get_hub_if_exists() is self.hub:
            return function(*args)
        call = _Call(partial(function, *args))
        if not self.run_soon(call):
            call.refuse()
        call.done.wait()
        (result,) = call.outcome
        if isinstance(result, BaseException):
            raise result
        return result  # type: ignore[no-any-return]

    def spawn(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        """Start a long function in its own greenlet, which ends with the background work; only in the hub."""
        self._new_greenlet(function, *args).start()

    def spawn_later(
        self, seconds: float, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]
    ) -> None:
        """Likewise after some time."""
        self._new_greenlet(function, *args).start_later(seconds)

    def _new_greenlet(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> Any:
        greenlet = hub_life.new_greenlet(function, *args)
        self._greenlets.add(greenlet)
        return greenlet

    def new_timer(self, seconds: float, function: Callable[[], object]) -> hub_life.Timer:
        """Call a function in the hub after some time, unless the background work has ended; only in the hub."""
        timer = hub_life.Timer(self.hub, seconds, function)
        self._timers.add(timer)
        if self._ended.is_open:
            timer.close()
        return timer

    def run_later(
        self, seconds: float, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]
    ) -> None:
        """The same, from any thread."""
        run_in_hub(self.hub, self.spawn_later, seconds, function, *args)

    def is_here(self) -> bool:
        """Whether it is the worker that calls this."""
        return gevent.getcurrent() is self._worker

    def stop(self, timeout: float | None = None) -> bool:
        """Do the queued work, then end the worker and the thread, if it has one.

        If the executor has its own thread, greenlets that other code started in its hub end with
        it, without notice. If the worker itself calls this, it ends after the present call.

        Returns:
            Whether all ended in time.
        """
        deadline = None if timeout is None else monotonic() + timeout
        self._finish_soon()
        if self.is_here() or self._teller.is_here():
            if self._join is not None:  # the interpreter's end must not come into the hub's
                atexit.register(self._join, timeout)
            return False
        if not self._ended.wait(timeout):
            return False
        join = self._join
        if join is None or get_hub_if_exists() is self.hub:
            return True
        # It only destroys its hub now, which takes microseconds.
        return join(None if deadline is None else max(0.0, deadline - monotonic()))

    def leave_to_parent(self) -> None:
        """In a forked child: the work is the parent's. A worker in the forking thread's hub ends soon."""
        self._stopping = True
        self._work.clear()
        self._work.send(None)
        self._ended.open()
        if self._join is not None:
            atexit.unregister(self._join)
            atexit.unregister(self._rest)
            self._join = None  # the thread is not here

    def _finish_soon(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._work.send(None)
        self._look_after()

    def _look_after(self) -> None:
        """See to it that there is a worker: from any thread, without waiting."""
        hub, worker = getattr(self, "hub", None), getattr(self, "_worker", None)
        if hub is None or worker is None or self._ended.is_open:
            return  # it is being started, or has done all
        if hub.loop is None:
            self._move()
        elif worker.dead:
            # Its link does this, unless an exception from outside has torn that.
            run_in_hub(hub, self._worker_ended, worker)

    def _move(self) -> None:
        """Continue in a separate thread, because the hub was destroyed with its greenlets."""
        try:
            self._movable.pop()
        except IndexError:
            return  # another caller does it already
        self.is_own_thread = True
        self._start_thread(_nobody_waits)

    def _start_thread(self, ready: Callable[[], object]) -> None:
        self._join = start_thread(partial(self._run_thread, ready), "locks-home")
        atexit.unregister(self._rest)
        atexit.register(self._rest)

    def _rest(self) -> None:
        """The interpreter ends: have the thread sleep, when the program's functions have returned."""
        self._teller.wait(PATIENCE)
        mailbox = mailbox_if_exists(self.hub)
        if mailbox is None or self.hub.loop is None or self._ended.is_open:
            return
        rests = native_lock()
        rests.acquire()
        mailbox.post(mailbox.rest, rests.release)
        rests.acquire(timeout=PATIENCE)

    def _start_worker(self) -> None:
        self.hub = gevent.get_hub()
        self._worker = gevent.spawn(self._run_worker)
        # Not in the worker: it may be killed before it ever runs.
        self._worker.rawlink(self._worker_ended)

    def _run_worker(self) -> None:
        interrupts.in_background()
        while True:
            work = self._work.receive()
            if work is None:
                self._teller.wait(LAST_CALLS)
                self._done = True
                return
            function, args = work
            try:
                function(*args)
            except gevent.GreenletExit:
                raise  # the worker was killed
            except KeyboardInterrupt as error:
                # A second one, or not from our handler: pass it to the program's main greenlet, and
                # continue.
                self.hub.handle_system_error(type(error), error)
            except BaseException:
                logger.exception("a background task failed")

    def _worker_ended(self, worker: gevent.Greenlet[..., None]) -> None:
        """In the hub: close, or continue with another worker."""
        if worker is not self._worker or self._ended.is_open:
            return
        if self._done:
            atexit.unregister(self._rest)
            self._work.close(_drop)
            self._teller.close()
            for timer in list(self._timers):
                timer.close()
            gevent.killall(list(self._greenlets), block=False)
            self._ended.open()
        else:
            self._start_worker()

    def _run_thread(self, ready: Callable[[], object]) -> None:
        self._start_worker()
        hub = self.hub
        self._movable[:] = [True]
        ready()
        while not self._ended.is_open:
            try:
                self._ended.wait()
            except BaseException:
                # gevent throws a `SystemExit` of any greenlet at the thread's main greenlet.
                logger.exception("a greenlet in the background thread of locks tried to end it")
        # Unwind the greenlets that still wait there: they would keep the whole node in memory, like
        # the hub, and those who wait for them would wait for ever.
        hub_life.end(hub)
        hub.throw(gevent.GreenletExit)


def _begin_in_hub(function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
    """Call a function of the program in a greenlet: it may be the one that stops the node, so it goes on after that."""
    hub_life.new_greenlet(function, *args).start()


def _is_patched() -> bool:
    return monkey.is_module_patched("threading") or monkey.is_module_patched("socket")


def _nobody_waits() -> None:
    """The start signal of a thread that replaces another one: no caller waits for it."""


def _drop(work: Work | None) -> None:
    """Work has come too late."""
    if work is not None and isinstance(work[0], _Call):
        work[0].refuse()


class _Call:
    """A function that is called in the hub, for a caller that waits for its result.

    Attributes:
        done: The wait.
        outcome: The result, or the exception, when the wait is over.
    """

    __slots__ = ("_function", "done", "outcome")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.done = Waiter()
        self.outcome: list[Any] = []

    def __call__(self) -> None:
        try:
            self.outcome.append(self._function())
        except gevent.GreenletExit:
            error = RuntimeError(f"the background worker was killed in {self._function!r}")
            self.outcome.append(error)
            raise
        except BaseException as error:
            self.outcome.append(error)
        finally:
            self.done.wake()

    def refuse(self) -> None:
        """It is not called: the node has ended."""
        self.outcome.append(NodeNotRunning(STOPPED, nodes=()))
        self.done.wake()
