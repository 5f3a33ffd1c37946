"""Tasks as clients: calls for tasks. What depends on the event loop is in `on_asyncio` and `on_trio`."""

from __future__ import annotations

import sys
from asyncio import current_task
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gevent import getcurrent

from locks.aio import on_asyncio
from locks.aio.loops import EventLoop
from locks.node.client.owner import Owner
from locks.runtime.bridge import Bridge, is_in_trio
from locks.runtime.callables import check_ran
from locks.runtime.monitor import acting

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["Awaiting", "Suspended", "at_once", "call", "current_owner", "drive", "running"]

T = TypeVar("T")


async def call(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function of `locks` that may wait, without blocking the event loop.

    The call is made for the task. Use it for functions that `locks.aio` lacks: `await aio.call(locks.holders, lock_id)`. Don't
    use it for code that waits for other things than `locks`: that still blocks the loop.

    Args:
        function: The function.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Returns:
        The result of the function.

    Raises:
        CancelledError: The task was cancelled; the wait is withdrawn. In trio it is `Cancelled`.
        MisuseError: The function returned a coroutine, whose body was not run.
        Exception: The function raised it.
    """
    loop = running()
    if loop.before is not None:
        await loop.before()
    bridge = Bridge.idle()
    step = bridge.begin_function(
        partial(function, *args, **kwargs), current_owner(), partial(loop.Parked, loop.here())
    )
    if step is not None:
        await drive(bridge, step)
    elif loop.after is not None:
        await loop.after()
    return check_ran(bridge.outcome(), "the function", "await it without call()")  # type: ignore[no-any-return]


async def drive(
    bridge: Bridge, step: tuple[Any, float | None] | None, until: object = None
) -> bool:
    """Await the waits of a bridge, until its function has returned, or reaches a given wait.

    Returns:
        Whether the function has returned.
    """
    while step is not None:
        parked, timeout = step
        if parked is until:
            return False
        try:
            await parked.wait(timeout)
        except BaseException as error:
            step = bridge.fail(error)
        else:
            step = bridge.go_on()
    return True


class Awaiting(Generic[T]):
    """Lets a function that runs in `call` await something in its task: `Awaiting(coroutine).result()`.

    Args:
        coroutine: The task itself awaits it, as it would without a bridge.
    """

    __slots__ = ("_awaitable", "_found")

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._awaitable = awaitable
        self._found: list[T] = []

    def release(self) -> None:
        """Do nothing: this wait can't be ended early; see `Parked`."""

    async def wait(self, timeout: float | None) -> None:
        """Await it; called in the task."""
        self._found.append(await self._awaitable)

    def result(self) -> T:
        """Wait for its result and return or raise it; called in the bridge."""
        bridge = getcurrent()
        assert isinstance(bridge, Bridge)
        bridge.wait(self, None)
        return self._found[0]


class Suspended(Generic[T]):
    """Lets a function that runs in `call` stop in the middle, while its task does something else.

    With it, an `async with` block can run inside an operation that is written once, as a function that calls another function:

        async with block.during(function):  # which calls block.suspend(value)
            ...  # with block.value

    An exception of the block is raised in the function by `suspend`. If the block is cancelled, so is the function.

    Attributes:
        value: The value that the function passed; `None` if it returned without suspending.
    """

    def __init__(self) -> None:
        self.value: T | None = None

    def release(self) -> None:
        """Do nothing: only the task ends this wait; see `Parked`."""

    def suspend(self, value: T) -> None:
        """Let the block run; called in the function."""
        self.value = value
        bridge = getcurrent()
        assert isinstance(bridge, Bridge)
        bridge.wait(self, None)

    @asynccontextmanager
    async def during(self, function: Callable[[], object]) -> AsyncIterator[None]:
        """Run a function until it suspends, then the block, then the rest of the function."""
        bridge = Bridge.idle()
        loop = running()
        park = partial(loop.Parked, loop.here())
        if await drive(bridge, bridge.begin_function(function, current_owner(), park), until=self):
            bridge.outcome()
            yield
            return
        try:
            yield
        except BaseException as error:
            await drive(bridge, bridge.fail(error))
        else:
            await drive(bridge, bridge.go_on())
        bridge.outcome()


def at_once(function: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
    """Call a function that does not wait, for the task."""
    token = acting.set(current_owner())
    try:
        return function(*args)
    finally:
        acting.reset(token)


def current_owner() -> Owner:
    """The owner that the running task acts for, or else the task's own owner.

    Raises:
        MisuseError: No task is running here.
    """
    owner = acting.get()
    if isinstance(owner, Owner):
        return owner
    try:
        return current_task()._locks_owner  # type: ignore[union-attr, no-any-return]
    except (AttributeError, RuntimeError):  # no task of asyncio, or its first call
        return running().task_owner()


def running() -> EventLoop:
    """The kind of event loop that runs the caller. Where one runs in a task of the other, it is that of the inner task."""
    if "trio" not in sys.modules or not is_in_trio():
        return on_asyncio
    with suppress(RuntimeError):  # no loop of asyncio is running
        if current_task() is not None:
            return on_asyncio
    from locks.aio import on_trio

    return on_trio
