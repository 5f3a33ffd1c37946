"""`locks.aio` in the event loops of asyncio; an `EventLoop`.

A task's owner ends with the task: when the task is done; when it was dropped before, together with its loop; and when
its loop was closed and will never continue it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from locks.aio.loops import new_owner, no_task
from locks.node.client.owner import Owner

__all__ = ["Parked", "after", "before", "here", "poster", "sleep", "task_owner"]

FAR = 10 * 365 * 86400.0  # seconds; no loop runs that long

here = asyncio.get_running_loop
sleep = asyncio.sleep
before: Callable[[], Awaitable[None]] | None = None
after: Callable[[], Awaitable[None]] | None = None


class Parked:
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


def poster() -> Callable[..., object]:
    """See `EventLoop`."""
    return asyncio.get_running_loop().call_soon_threadsafe


def task_owner() -> Owner:
    """See `EventLoop`. The task has none yet: `current_owner` finds it as an attribute."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop is running
        task = None
    if task is None:
        raise no_task("asyncio.create_task(...)")
    hint = "`asyncio.wait_for` makes a separate task before Python 3.12, so pass the time limit to acquire"
    owner = new_owner(task.get_name(), task.get_coro(), hint, tied_to=task)
    task._locks_owner = owner  # type: ignore[attr-defined]
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
