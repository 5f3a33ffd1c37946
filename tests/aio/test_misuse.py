"""What would go wrong without a word in a coroutine, or block a loop, is refused."""

from __future__ import annotations

import ast
import asyncio
import sys
import types
from collections.abc import Awaitable, Callable
from typing import Any

import greenlet
import pytest

import locks
from locks import aio
from tests.aio.steps import RUNS, beside, nothing_held, pause, until

A = ("a",)
LOCKS: dict[str, Callable[[], aio.Lock]] = {
    "Lock": lambda: aio.Lock(A),
    "RLock": lambda: aio.RLock(A),
    "RWLock": lambda: aio.RWLock(A).read_lock(),
    "Semaphore": lambda: aio.Semaphore(A, 1),
}
AS_A_TASK: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "create_task": asyncio.create_task,
    "gather": asyncio.gather,
    "shield": asyncio.shield,
}


@pytest.mark.parametrize("wrapped", AS_A_TASK)
@pytest.mark.parametrize("kind", LOCKS)
def test_acquire_as_a_task_of_its_own(kind: str, wrapped: str) -> None:
    """It would have returned `True`, and the lock would have been free again by then: so did `asyncio.wait_for` before Python 3.12.
    For an owner it is all the same which task acquires."""

    async def main() -> None:
        lock = LOCKS[kind]()
        with pytest.raises(locks.MisuseError, match="released as soon as"):
            await AS_A_TASK[wrapped](lock.acquire())
        await nothing_held()
        with locks.Owner("session").acting():
            await AS_A_TASK[wrapped](lock.acquire())
            assert lock.owned()
            lock.release()

    asyncio.run(main())


def test_acquire_within_wait_for_says_what_it_has() -> None:
    """What says that it was acquired is held, or it is an error: whether `wait_for` makes a task depends on Python's version."""

    async def main() -> None:
        lock = aio.Lock(A)
        try:
            found = await asyncio.wait_for(lock.acquire(), 60)
        except locks.MisuseError:
            found = False
        assert lock.owned() == found
        assert await lock.acquire(timeout=60) != found

    asyncio.run(main())


def test_a_plain_function_that_a_coroutine_runs_in_a_greenlet() -> None:
    """As SQLAlchemy does: it must not block either, for the loop is below it; the lock is free in a moment, and it is for tasks."""

    def plain() -> None:
        with pytest.raises(locks.errors.BlocksEventLoop):
            locks.Lock(A).acquire(timeout=60)
        with pytest.raises(locks.errors.BlocksEventLoop), locks.transaction() as tx:
            tx.write_lock(A, timeout=60)

    async def main() -> None:
        async with aio.Lock(A):
            greenlet.greenlet(plain).switch()
            await asyncio.create_task(aio.call(lambda: greenlet.greenlet(plain).switch()))
        assert not locks.queue(A).requests

    asyncio.run(main())


CELL = """
def block():
    with locks.RLock(A):
        return "a cell"

async def task():
    try:
        return block()
    except locks.errors.BlocksEventLoop:
        return "refused"

said = [block(), await asyncio.gather(*[task() for _ in range(3)])]
"""


def test_a_cell_of_a_notebook_may_block_and_its_tasks_may_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All tasks of a notebook share its thread: each would have the `RLock` that another one holds."""
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    names = {"locks": locks, "asyncio": asyncio, "A": A}
    cell = compile(CELL, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    asyncio.run(eval(cell, names))
    assert names["said"] == ["a cell", ["refused"] * 3]


@pytest.mark.parametrize("loop", RUNS)
def test_two_readers_of_the_same_views(loop: str) -> None:
    """The second one is told that there is one; it waited for ever, also after `aclose`. After the first one it may read."""

    async def main() -> None:
        first: list[locks.values.View] = []

        async def read() -> None:
            first.append(await views.__anext__())

        async with aio.watch(A) as views:
            assert (await views.__anext__()).holders == ()
            async with beside(read):
                for _ in range(10):
                    await pause()
                with pytest.raises(locks.MisuseError, match="already reading"):
                    await views.__anext__()
                async with aio.Lock(A):
                    await until(lambda: first)
                    assert first[0].holders
            assert (await views.__anext__()).holders == ()

    RUNS[loop](main)
