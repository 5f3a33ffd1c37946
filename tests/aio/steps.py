"""Coroutines that are cancelled at each place where they can be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Literal

import locks
from locks import aio

__all__ = ["Cancelled", "cancel_everywhere", "nothing_held", "until"]

When = Literal["waiting", "woken"]
TICKS = 20_000


class Cancelled:
    """Awaits a coroutine, and has the task cancelled when it is suspended for the n-th time.

    Args:
        coroutine: The coroutine.
        at: Which suspension; the first one is 1.
        when: `"waiting"`: while it waits. `"woken"`: what it has waited for has come, and it is not resumed yet.

    Attributes:
        suspensions: How often it was suspended.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: int, when: When) -> None:
        self._coroutine = coroutine
        self._at = at
        self._when = when
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        step: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731
        while True:
            try:
                future = step()
            except StopIteration as stopped:
                return stopped.value
            self.suspensions += 1
            if self.suspensions == self._at:
                if self._when == "waiting" or future is None:
                    task.cancel()
                else:
                    future.add_done_callback(lambda _: task.cancel())
            try:
                value = yield future
            except BaseException as error:
                thrown = error
                step = lambda: self._coroutine.throw(thrown)  # noqa: B023, E731
            else:
                step = lambda: self._coroutine.send(value)  # noqa: B023, E731


async def until(condition: Callable[[], object]) -> None:
    """Let others run until something is true."""
    for _ in range(TICKS):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("not in time")


async def nothing_held() -> None:
    """See that nothing is locked and nobody waits, although every task still lives."""
    await until(lambda: locks.statistics().table.entries == 0 and locks.statistics().agents == 0)


async def cancel_everywhere(
    work: Callable[[], Coroutine[Any, Any, Any]],
    prepare: Callable[[], Awaitable[Callable[[], Awaitable[None]]]],
    when: When,
) -> int:
    """Cancel some work at its first suspension, at its second one, and so on, until it runs through.

    Args:
        work: The work; a new coroutine each time. Its task goes on after it was cancelled, and holds nothing.
        prepare: Called before each one; what it returns is called afterwards.
        when: See `Cancelled`.

    Returns:
        How many suspensions there are.
    """
    at = 0
    while True:
        at += 1
        clear = await prepare()
        over = asyncio.Event()
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        async def client(step: Cancelled) -> None:
            try:
                await step
                done.set_result(True)  # noqa: B023
            except asyncio.CancelledError:
                done.set_result(False)  # noqa: B023
            except BaseException as error:
                done.set_exception(error)  # noqa: B023
            await over.wait()  # noqa: B023

        step = Cancelled(work(), at, when)
        task = asyncio.create_task(client(step))
        ran_through = await asyncio.wait_for(done, 60)
        await clear()
        await nothing_held()
        over.set()
        await task
        async with aio.transaction(timeout=60) as tx:  # nobody stands in the way
            await tx.lock_all([("a",), ("b",), ("c",)])
        if step.suspensions < at:
            assert ran_through
            return step.suspensions
