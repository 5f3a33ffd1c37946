"""Coroutines that are cancelled at each place where they can be, in asyncio and in trio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, ClassVar, Literal
from unittest import mock

import trio

import locks
from locks import aio
from locks.aio import on_asyncio, on_trio
from locks.aio.tasks import running

__all__ = [
    "RUNS",
    "Cancelled",
    "beside",
    "cancel_everywhere",
    "event",
    "in_thread",
    "nothing_held",
    "pause",
    "together",
    "until",
]

When = Literal["waiting", "told", "woken"]  # "told": in trio alone
Work = Callable[[], Coroutine[Any, Any, Any]]
TICKS = 20_000
RUNS: dict[str, Callable[..., Any]] = {
    "asyncio": lambda function, *args: asyncio.run(function(*args)),
    "trio": trio.run,
}


# --- The same in both ------------------------------------------------------------------------------


async def pause(seconds: float = 0) -> None:
    """Let others run."""
    await running().sleep(seconds)


def event() -> Any:
    """An event of the loop."""
    return trio.Event() if running() is on_trio else asyncio.Event()


async def until(condition: Callable[[], object]) -> None:
    """Let others run until something is true."""
    for _ in range(TICKS):
        if condition():
            return
        await pause(0.001)
    raise AssertionError("not in time")


@asynccontextmanager
async def beside(*works: Work, cancel: bool = False) -> AsyncIterator[None]:
    """Run tasks beside the block; at its end they are cancelled, or waited for."""
    if running() is on_trio:
        async with trio.open_nursery() as nursery:
            for work in works:
                nursery.start_soon(work)
            yield
            if cancel:
                nursery.cancel_scope.cancel()
        return
    tasks = [asyncio.create_task(work()) for work in works]
    try:
        yield
    finally:
        if cancel:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=cancel)


async def together(*works: Work) -> None:
    """Run tasks; if one fails, the error is raised."""
    async with beside(*works):
        pass


async def in_thread(function: Callable[[], object]) -> None:
    """Call a function that blocks."""
    if running() is on_trio:
        await trio.to_thread.run_sync(function)
    else:
        await asyncio.to_thread(function)


# --- Cancelling -----------------------------------------------------------------------------------


class Cancelled:
    """Awaits a coroutine, and has the task cancelled when it is suspended for the n-th time.

    Args:
        coroutine: The coroutine.
        at: Which suspension; the first one is 1.
        cancel: Cancels the task, or its scope.
        when: `"waiting"`: while it waits. `"told"`: what it has waited for has come, and the loop is about to be told so.
            `"woken"`: it is about to be resumed.

    Attributes:
        suspensions: How often it was suspended.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], at: int, cancel: Callable[[], object], when: When
    ) -> None:
        self._coroutine = coroutine
        self._at = at
        self._cancel = cancel
        self._when = when
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731
        while True:
            try:
                awaited = step()
            except StopIteration as stopped:
                return stopped.value
            self.suspensions += 1
            if self.suspensions == self._at:
                self._cancel_when(awaited)
            try:
                value = yield awaited
            except BaseException as error:
                thrown = error
                step = lambda: self._coroutine.throw(thrown)  # noqa: B023, E731
            else:
                step = lambda: self._coroutine.send(value)  # noqa: B023, E731

    def _cancel_when(self, awaited: Any) -> None:
        if self._when == "waiting" or awaited is None:
            self._cancel()
        elif running() is on_asyncio:
            awaited.add_done_callback(lambda _: self._cancel())
        elif self._when == "told":
            _Parked.before[trio.lowlevel.current_task()] = self._cancel
        else:
            trio.lowlevel.add_instrument(_Woken(trio.lowlevel.current_task(), self._cancel))


class _Parked(on_trio.Parked):
    """The place where a task of trio waits, which is cancelled before it is told that the wait is over."""

    before: ClassVar[dict[trio.lowlevel.Task, Callable[[], object]]] = {}

    def _resume(self) -> None:
        self.before.pop(self._task, lambda: None)()
        super()._resume()


class _Woken(trio.abc.Instrument):
    """Calls a function as soon as a task is about to be resumed."""

    def __init__(self, task: trio.lowlevel.Task, function: Callable[[], object]) -> None:
        self._task = task
        self._function = function

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            trio.lowlevel.remove_instrument(self)
            self._function()


async def nothing_held() -> None:
    """See that nothing is locked and nobody waits, although every task still lives."""
    await until(lambda: locks.statistics().table.entries == 0 and locks.statistics().agents == 0)


World = Callable[[], AbstractAsyncContextManager[None]]


async def cancel_everywhere(work: Work, world: World, when: When) -> int:
    """Cancel some work at its first suspension, at its second one, and so on, until it runs through.

    Args:
        work: The work; a new coroutine each time. Its task goes on after it was cancelled, and holds nothing.
        world: What others do meanwhile, and at whose end nobody holds anything.
        when: See `Cancelled`.

    Returns:
        How many suspensions there are.
    """
    at = 0
    while True:
        at += 1
        step: Cancelled | None = None
        ready, done, over = event(), event(), event()
        ran_through = False

        async def client() -> None:
            nonlocal step, ran_through
            await ready.wait()  # noqa: B023
            try:
                if running() is on_trio:
                    with trio.CancelScope() as scope:
                        step = Cancelled(work(), at, scope.cancel, when)  # noqa: B023
                        with mock.patch.object(on_trio, "Parked", _Parked):
                            await step
                        ran_through = True
                else:
                    task = asyncio.current_task()
                    assert task is not None
                    step = Cancelled(work(), at, task.cancel, when)  # noqa: B023
                    with suppress(asyncio.CancelledError):
                        await step
                        ran_through = True
            finally:
                done.set()  # noqa: B023
            await over.wait()  # noqa: B023

        async with beside(client):
            try:
                async with world():
                    ready.set()
                    await until(done.is_set)
                await nothing_held()
            finally:
                over.set()
        async with aio.transaction(timeout=60) as tx:  # nobody stands in the way
            await tx.lock_all([("a",), ("b",), ("c",)])
        assert step is not None
        if step.suspensions < at:
            assert ran_through
            return step.suspensions
