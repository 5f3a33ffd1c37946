"""Bridges: blocking code that is run by a task of asyncio or trio, which must not block.

The code runs in a greenlet, a *bridge*. When it would block, it switches back to its parent with
the place where it waits. The parent waits for that in its own way, and then switches back, or
throws an exception into the bridge. So the rules for waits, and for withdrawing requests, are
written once for threads, greenlets and tasks. `locks.aio` has the parent's part.

**At the interpreter's end**, no thread may be in a bridge. Before Python 3.14, a daemon thread that
needs the interpreter after that is ended by unwinding its stack. If a greenlet runs, the stack
below belongs to another greenlet, and the process dies of SIGSEGV. So a handler of `atexit` makes
such threads pause briefly before each step in a bridge.
"""

from __future__ import annotations

import atexit
import sys
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol

import greenlet
from gevent import Greenlet, monkey
from gevent.hub import Hub

from locks.errors import MisuseError
from locks.runtime import port
from locks.runtime.clock import monotonic
from locks.runtime.first_use import loaded
from locks.runtime.native import get_ident, is_main_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["Bridge", "Parked", "foreign_loop", "is_in_event_loop", "is_in_trio"]


MOST_IDLE = 32  # bridges that a thread keeps
PAUSE = (
    1.0  # seconds, of other threads before each step in a bridge, from when the interpreter ends
)
CO_COROUTINE = 0x80  # as in `inspect`, which takes long to import
PATIENCE = 1.0  # seconds to wait then until none of them is in one
_idle: Any = monkey.get_original("_thread", "_local")()  # by native thread
_ends = False  # whether the interpreter does
_sleep = monkey.get_original("time", "sleep")


class Parked(Protocol):
    """Where the parent of a bridge waits."""

    def release(self) -> None:
        """End the wait. From any thread, also twice, without blocking; `RuntimeError` if it is over."""


class Bridge(greenlet.greenlet):
    """Runs functions, one after the other, for clients that may not block.

    A new greenlet costs as much as ten calls (Python gives it its own stack), so bridges are
    reused. Idle ones end with their thread. Merely dropping them would not do: the traceback of an error
    may refer to a bridge for longer than its thread lives, and what a greenlet of a dead thread refers to is never freed.

    Attributes:
        client: The client for which it runs a function now.
        park: Makes a place where the client's parent can wait.
    """

    client: Any
    park: Callable[[], Parked]

    def __init__(self) -> None:
        super().__init__(Bridge._work)
        self._result: Any = None
        self._error: BaseException | None = None
        self._runs = False  # whether the function has neither returned nor raised
        self._dropped: BaseException | None = None  # set when the parent no longer waits for it

    @staticmethod
    def idle() -> Bridge:
        """One of this thread that runs nothing."""
        known: _Idle | None = _idle.__dict__.get("bridges")
        return known.bridges.pop() if known is not None and known.bridges else Bridge()

    def begin_function(
        self, function: Callable[[], object], client: Any, park: Callable[[], Parked]
    ) -> tuple[Parked, float | None] | None:
        """Run a function; returns what to wait for before `go_on` or `fail`, or `None` if it has returned."""
        if _ends:
            _pause()
        self.client = client
        self.park = park
        self.parent = greenlet.getcurrent()
        self.gr_context = copy_context()
        if not self:  # it is new, and would keep what it is begun with
            self.switch()
        self._runs = True
        return self.switch(function)  # type: ignore[no-any-return]

    def go_on(self) -> tuple[Parked, float | None] | None:
        """The wait is over.

        Raises:
            RuntimeError: It has begun in another thread.
        """
        if _ends:
            _pause()
        try:
            here = greenlet.getcurrent()
            if (
                self.parent is not here
            ):  # a loop may be run in one greenlet, and then in another one
                self.parent = here
            return self.switch()  # type: ignore[no-any-return]
        except (greenlet.error, ValueError) as error:
            raise RuntimeError(
                "a task that waits for locks was continued in another thread; run its event loop in one thread"
            ) from error

    def fail(self, error: BaseException) -> tuple[Parked, float | None] | None:
        """Raise an exception in the function, because the parent got it in its wait."""
        if _ends:
            _pause()
        try:
            here = greenlet.getcurrent()
            if self.parent is not here:
                self.parent = here
            return self.throw(error)  # type: ignore[no-any-return]
        except (greenlet.error, ValueError):
            # A task that was dropped, and is cleared away by another thread. So is the bridge, in
            # its own thread.
            raise error from None

    def outcome(self) -> Any:
        """Return the function's result, or raise its exception. The bridge can be used again.

        Raises:
            MisuseError: The function has not finished: another switch than a wait has brought the
                caller back.
        """
        if self._runs:
            raise MisuseError(
                "a function called for a coroutine switched to another greenlet, which returned to the event loop too early; "
                "switch only to greenlets that switch back to their caller"
            )
        result, error = self._result, self._error
        self._result = self._error = self._dropped = None
        # An idle bridge keeps no reference to its last client.
        del self.client, self.park
        self.gr_context = None
        _keep(self)
        if error is not None:
            try:
                raise error
            finally:
                del error
        return result

    def wait(self, parked: Parked, timeout: float | None) -> None:
        """In the bridge: make the parent wait; exceptions of its wait are raised here.

        A dropped parent no longer waits, even if the function waits on its way out.
        """
        if self._dropped is not None:
            raise self._dropped
        assert self.parent is not None
        try:
            self.parent.switch((parked, timeout))
        except (GeneratorExit, greenlet.GreenletExit) as error:
            self._dropped = error
            raise

    @staticmethod
    def _work() -> None:
        while True:
            bridge = greenlet.getcurrent()
            assert isinstance(bridge, Bridge)
            assert bridge.parent is not None
            function = bridge.parent.switch(None)  # it is idle
            try:
                bridge._result = function()
            except BaseException as error:
                bridge._error = error
            bridge._runs = False
            del function


class _Idle:
    """The idle bridges of a thread; they end with it."""

    def __init__(self) -> None:
        self.bridges: list[Bridge] = []

    def __del__(self, elsewhere: type[Exception] = greenlet.error) -> None:
        # The class is bound: at the interpreter's end this module may be empty before.
        with suppress(elsewhere):  # a forked child clears away what was of the parent's threads
            for bridge in self.bridges:
                bridge.throw()


def _keep(bridge: Bridge) -> None:
    """Have an idle bridge used again, or end it. Not by the caller, whose frame the traceback of an error may keep."""
    known: _Idle = _idle.__dict__.get("bridges") or _idle.__dict__.setdefault("bridges", _Idle())
    if len(known.bridges) < MOST_IDLE:
        known.bridges.append(bridge)
    else:
        bridge.throw()


_STEPS = frozenset(
    each.__code__ for each in (Bridge.begin_function, Bridge.go_on, Bridge.fail, Bridge._work)
)


def _pause() -> None:
    """Before a step in a bridge, while the interpreter ends: that of a daemon thread is likely to be its last one."""
    if not is_main_thread():
        _sleep(PAUSE)


def _is_in_bridge(frame: FrameType | None) -> bool:
    """Whether a thread is in a step that it does in a bridge, from its innermost frame."""
    if frame is not None and frame.f_code is _pause.__code__:
        return False
    while frame is not None and frame.f_code not in _STEPS:
        frame = frame.f_back
    return frame is not None


@atexit.register
def _leave_bridges() -> None:
    """The interpreter ends: from now on other threads pause before they are in a bridge; wait until none is in one."""
    global _ends
    _ends = True
    until = monotonic() + PATIENCE
    while monotonic() < until and any(
        _is_in_bridge(frame)
        for ident, frame in sys._current_frames().items()
        if ident != get_ident()
    ):
        _sleep(0.001)


def _runs_event_loop(current: greenlet.greenlet) -> bool:
    """Whether an event loop in the caller's thread would be blocked by a wait of the caller.

    It would if the caller is a thread's main greenlet, a greenlet that this one has switched to (as
    SQLAlchemy runs plain functions for coroutines), or that of a simulation's event loop. A bridge
    does not block the loop, and greenlets of gevent or of a simulation wait by themselves.
    """
    if current.parent is None:
        return True
    if type(current) is Bridge:
        return False
    if (world := port.world()) is not port.REAL:
        return world.is_event_loop(current)
    above: greenlet.greenlet | None = current
    while above is not None:
        if isinstance(above, (Greenlet, Hub)):
            return False
        above = above.parent
    return True


def is_in_event_loop() -> bool:
    """Whether the caller runs in a coroutine or a callback of an event loop, and so must not block.

    The loop is that of asyncio, of trio, or one of `_FOREIGN`. There are two exceptions. A cell of a notebook may
    block: it runs in the event loop of its kernel, which has no other work. A module that a
    coroutine imports may block as well: web servers import programs before they serve requests.
    """
    return (
        (_is_in_asyncio() or (not sys.modules.keys().isdisjoint(_LOOPS) and _is_in_another_loop()))
        and _runs_event_loop(greenlet.getcurrent())
        and not _may_block_its_loop()
    )


def _is_in_asyncio() -> bool:
    # Another thread may be importing it. This is faster than `loaded`.
    running = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    return running is not None and running() is not None


def _is_in_another_loop() -> bool:
    return is_in_trio() or foreign_loop() is not None


def _is_in_reactor(reactor: Any) -> bool:
    if reactor.running:
        return bool(sys.modules["twisted.python.threadable"].isInIOThread())
    # `task.react` calls its function before the reactor runs.
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "twisted.internet.defer":
        frame = frame.f_back
    return frame is not None


def _is_in_curio(meta: Any) -> bool:
    return bool(meta.curio_running())


def _is_in_green_thread(hubs: Any) -> bool:
    hub = getattr(hubs._threadlocal, "hub", None)
    return hub is not None and greenlet.getcurrent().parent is hub.greenlet


_FOREIGN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "twisted.internet.reactor": (
        _is_in_reactor,
        "Twisted's reactor. Call a function that locks in a thread: `await deferToThread(function)`",
    ),
    "curio.meta": (
        _is_in_curio,
        "curio's kernel. Call a function that locks in a thread: `await curio.run_in_thread(function)`",
    ),
    "eventlet.hubs": (
        _is_in_green_thread,
        "eventlet's hub. Call a function that locks in a native thread: `eventlet.tpool.execute(function)`",
    ),
}
_LOOPS = frozenset(("trio", *_FOREIGN))


def foreign_loop() -> str | None:
    """The event loop in whose thread the caller runs, and what to do there, if `locks.aio` does not support it."""
    if _is_in_asyncio():
        return None
    for name, (runs_here, what) in _FOREIGN.items():
        module = loaded(name)
        if module is not None and runs_here(module):
            return what
    return None


def is_in_trio() -> bool:
    """Whether trio runs in the caller's thread, and with it the caller."""
    trio = sys.modules.get("trio")
    lowlevel = getattr(trio, "lowlevel", None)  # it may be about to be imported
    if lowlevel is None:
        return False
    if hasattr(lowlevel, "in_trio_run"):
        return bool(lowlevel.in_trio_run())
    try:  # an older trio
        lowlevel.current_trio_token()
    except RuntimeError:
        return False
    return True


def _may_block_its_loop() -> bool:
    """Whether the caller is no coroutine, but a module that one imports, or a cell of a notebook."""
    frame: FrameType | None = sys._getframe()
    is_import = False
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_flags & CO_COROUTINE:
            is_cell = frame.f_code.co_name == "<module>" or name.startswith("IPython.")
            return is_import or (is_cell and "ipykernel" in sys.modules)
        is_import = is_import or name == "importlib._bootstrap"
        frame = frame.f_back
    return False
