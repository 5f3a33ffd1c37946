"""Tasks as clients: calls for tasks, and the ends of tasks.

A task's owner ends with the task: when the task is done; when it was dropped before, together with its loop; and when
its loop was closed and will never continue it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

from gevent import getcurrent

from locks.errors import MisuseError
from locks.node.client.clients import plain_label
from locks.node.client.owner import Owner
from locks.node.client.refusals import IN_TRIO
from locks.runtime.bridge import Bridge, is_in_trio
from locks.runtime.callables import check_ran
from locks.runtime.monitor import acting

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["Awaiting", "Suspended", "at_once", "call", "current_owner", "drive", "for_its_caller"]

T = TypeVar("T")
C = TypeVar("C", bound="Callable[..., Any]")

_OWNER = "_locks_owner"  # the attribute of a task that holds its owner
_for_its_caller: set[CodeType] = set()
FAR = 10 * 365 * 86400.0  # seconds; no loop runs that long


class _Parked:
    """The wait of a task for the event that its bridge waits for."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()

    def release(self) -> None:
        """End the wait; see `Parked`."""
        # Thread-safe also in the loop's own thread: this may run in a signal handler or another greenlet while the loop sleeps.
        self._loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout: float | None) -> None:
        """Wait, for at most `timeout` seconds."""
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

    The call is made for the task. Use it for functions that `locks.aio` lacks: `await aio.call(locks.holders, lock_id)`. Don't
    use it for code that waits for other things than `locks`: that still blocks the loop.

    Args:
        function: The function.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Returns:
        The result of the function.

    Raises:
        CancelledError: The task was cancelled; the wait is withdrawn.
        MisuseError: The function returned a coroutine, whose body was not run.
        Exception: The function raised it.
    """
    bridge = Bridge.idle()
    step = bridge.begin_function(
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
        park = partial(_Parked, asyncio.get_running_loop())
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


def for_its_caller(function: C) -> C:
    """Mark a coroutine function that acquires something for the task that awaits it; run as a separate task, it would be useless."""
    _for_its_caller.add(function.__code__)
    return function


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
    if is_in_trio():
        raise MisuseError(f"locks.aio is for asyncio, and this is a task of trio. {IN_TRIO}")
    owner = acting.get()
    if isinstance(owner, Owner):
        return owner
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop is running
        task = None
    if task is None:
        raise MisuseError(
            "no task is running (this is a callback of the event loop): make the call in a task, "
            "asyncio.create_task(...), or act for an owner, `with owner.acting()`"
        )
    found: Owner | None = getattr(task, _OWNER, None)
    if found is None:
        found = _owner_of(task)
    return found


def _owner_of(task: asyncio.Task[Any]) -> Owner:
    if getattr(task.get_coro(), "cr_code", None) in _for_its_caller:
        raise MisuseError(
            "acquire was run as a separate task, and the lock would be released as soon as that task "
            "ends. Await it in the task that needs the lock. `asyncio.wait_for` makes a separate task before "
            "Python 3.12, so pass the time limit to acquire: `await lock.acquire(timeout=1)`"
        )
    owner = Owner(plain_label(f"task {task.get_name()}"), tied_to=task)
    setattr(task, _OWNER, owner)
    _ends_with(task, owner, "its task was dropped")
    _ends_of(task.get_loop()).owners.add(owner)
    return owner


_drops: dict[int, ref[Any]] = {}


def _ends_with(task: asyncio.Task[Any], owner: Owner, reason: str) -> None:
    """End an owner when its task was dropped without being done."""
    key = id(owner)

    def dropped(_: object) -> None:
        _drops.pop(key, None)
        owner.end(reason)

    _drops[key] = ref(task, dropped)


class _Ends:
    """Notices that a loop was closed: only a timer that is never due refers to it, and a closed loop drops its timers.

    Attributes:
        owners: The owners of tasks that ran in the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.owners: WeakSet[Owner] = WeakSet()
        loop.call_later(FAR, self._never)

    def _never(self) -> None:
        """The callback of the timer; never called."""

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
