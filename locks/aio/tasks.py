"""Tasks as clients: what is called for them, and when they have ended.

A task's owner ends with the task: when it is done; when it was dropped before that, as its loop was; and when the
loop is closed, and will never go on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import CodeType
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

from gevent import getcurrent

from locks.errors import MisuseError
from locks.node.client.clients import plain_label
from locks.node.client.owner import Owner
from locks.node.client.refusals import IN_TRIO
from locks.runtime import acting
from locks.runtime.bridge import Bridge, is_in_trio
from locks.runtime.callables import check_ran

__all__ = ["Awaiting", "Suspended", "at_once", "call", "current_owner", "drive", "for_its_caller"]

T = TypeVar("T")
C = TypeVar("C", bound="Callable[..., Any]")

_OWNER = "_locks_owner"  # the attribute of a task that holds its owner
_for_its_caller: set[CodeType] = set()
FAR = 10 * 365 * 86400.0  # seconds; no loop runs as long


class _Parked:
    """Where a task waits for what its bridge waits for."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()

    def release(self) -> None:
        """End the wait; see `Parked`."""
        # Also in the loop's own thread: that may be in a signal handler, or in another greenlet, while the loop sleeps.
        self._loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout: float | None) -> None:
        """Wait, at most for some seconds."""
        if timeout is None:
            await self._future
            return
        timer = self._loop.call_later(timeout, self._resume)
        try:
            await self._future
        finally:
            timer.cancel()


async def call(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function of `locks` that may wait, without blocking the event loop.

    It is called for the task. For what has no counterpart in `locks.aio`: `await aio.call(locks.holders, lock_id)`. It
    is not for code that waits for other things than `locks`: that blocks the loop as ever.

    Args:
        function: The function.
        *args: What it is called with.
        **kwargs: The same, by name.

    Returns:
        What it has returned.

    Raises:
        CancelledError: The task was cancelled; what was waited for is withdrawn.
        MisuseError: It has returned a coroutine, of which nothing was run.
        Exception: What the function has raised.
    """
    bridge = Bridge.idle()
    step = bridge.begin(
        partial(function, *args, **kwargs),
        current_owner(),
        partial(_Parked, asyncio.get_running_loop()),
    )
    if step is not None:
        await drive(bridge, step)
    return check_ran(bridge.outcome(), "the function", "await it without call()")  # type: ignore[no-any-return]


async def drive(
    bridge: Bridge, step: tuple[Any, float | None] | None, until: object = None
) -> bool:
    """Wait for what a bridge waits for, until its function has returned, or waits for something that is named.

    Returns:
        Whether it has returned.
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
    """What a function that is run by `call` has its task await: `Awaiting(coroutine).result()`.

    Args:
        coroutine: It is awaited by the task itself, as if that had done so without a bridge.
    """

    __slots__ = ("_awaitable", "_found")

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._awaitable = awaitable
        self._found: list[T] = []

    def release(self) -> None:
        """Nobody ends this wait; see `Parked`."""

    async def wait(self, timeout: float | None) -> None:
        """In the task: await it."""
        self._found.append(await self._awaitable)

    def result(self) -> T:
        """In the bridge: wait for it; return what comes of it, or raise that."""
        bridge = getcurrent()
        assert isinstance(bridge, Bridge)
        bridge.wait(self, None)
        return self._found[0]


class Suspended(Generic[T]):
    """What lets a function that is run by `call` stop in its middle, while its task does something else.

    So an `async with` block can be run within what is written, once, as a function that calls another one:

        async with block.during(function):  # which calls block.suspend(value)
            ...  # with block.value

    What the block raises is raised in the function by `suspend`. If that is cancelled, so is the function.

    Attributes:
        value: What the function has given; `None` if it has returned without.
    """

    def __init__(self) -> None:
        self.value: T | None = None

    def release(self) -> None:
        """Nobody ends this wait but its task; see `Parked`."""

    def suspend(self, value: T) -> None:
        """In the function: let the block run."""
        self.value = value
        bridge = getcurrent()
        assert isinstance(bridge, Bridge)
        bridge.wait(self, None)

    @asynccontextmanager
    async def during(self, function: Callable[[], object]) -> AsyncIterator[None]:
        """Run a function until it suspends, then the block, and then the rest of the function."""
        bridge = Bridge.idle()
        park = partial(_Parked, asyncio.get_running_loop())
        if await drive(bridge, bridge.begin(function, current_owner(), park), until=self):
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


def for_its_caller(function: C) -> C:
    """Mark a coroutine function that acquires something for the task that awaits it: as a task of its own it would have it in vain."""
    _for_its_caller.add(function.__code__)
    return function


def at_once(function: Callable[..., T], *args: Any) -> T:
    """Call a function for the task that does not wait for anything."""
    token = acting.set(current_owner())
    try:
        return function(*args)
    finally:
        acting.reset(token)


def current_owner() -> Owner:
    """Whom the running task acts for, or else its own owner.

    Raises:
        MisuseError: No task is running here.
    """
    if is_in_trio():
        raise MisuseError(f"locks.aio is for asyncio, and this is a task of trio. {IN_TRIO}")
    owner = acting.get()
    if isinstance(owner, Owner):
        return owner
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        task = None
    if task is None:
        raise MisuseError(
            "no task is running here (it is a callback of the event loop): call it in a task, "
            "asyncio.create_task(...), or act for an owner, `with owner.acting()`"
        )
    found: Owner | None = getattr(task, _OWNER, None)
    if found is None:
        found = _owner_of(task)
    return found


def _owner_of(task: asyncio.Task[Any]) -> Owner:
    if getattr(task.get_coro(), "cr_code", None) in _for_its_caller:
        raise MisuseError(
            "an acquire is run as a task of its own: what it acquires would be released at once, for that task "
            "would end. Await it in the task that is to have the lock. `asyncio.wait_for` makes a task of it before "
            "Python 3.12, so give it the time limit itself: `await lock.acquire(timeout=1)`"
        )
    owner = Owner(plain_label(f"task {task.get_name()}"), tied_to=task)
    setattr(task, _OWNER, owner)
    _ends_with(task, owner, "its task was dropped")
    _ends_of(task.get_loop()).owners.add(owner)
    return owner


_drops: dict[int, ref[Any]] = {}


def _ends_with(task: asyncio.Task[Any], owner: Owner, reason: str) -> None:
    """End an owner when a task is no more that was never done."""
    key = id(owner)

    def dropped(_: object) -> None:
        _drops.pop(key, None)
        owner.end(reason)

    _drops[key] = ref(task, dropped)


class _Ends:
    """Notices that a loop was closed: a timer that is never due, and that the loop drops then, is all that holds it.

    Attributes:
        owners: Those whose tasks ran in the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.owners: WeakSet[Owner] = WeakSet()
        loop.call_later(FAR, self._never)

    def _never(self) -> None:
        """What the timer would do."""

    def __del__(self) -> None:
        for owner in list(self.owners):
            owner.end("its event loop was closed")


_ends: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Ends]] = WeakKeyDictionary()


def _ends_of(loop: asyncio.AbstractEventLoop) -> _Ends:
    known = _ends.get(loop)
    found = None if known is None else known()
    if found is None:
        found = _Ends(loop)
        _ends[loop] = ref(found)
    return found
