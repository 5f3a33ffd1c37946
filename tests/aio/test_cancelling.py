"""Whatever is awaited may be cancelled, at every place where it can be: nothing is kept, nobody is stuck."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest

import locks
import locks_leader.aio
from locks import aio
from tests.aio import steps
from tests.aio.steps import RUNS, beside, cancel_everywhere, event, pause, together

A, B, C = ("a",), ("b",), ("c",)
NUMBERS = itertools.count()


async def _one_lock() -> None:
    async with aio.transaction() as tx:
        await tx.write_lock(A)
        await pause()
        tx.ensure_held(A)


async def _several_locks() -> None:
    async with aio.transaction(timeout=30) as tx:
        await tx.lock_all([A, B], [C])
        assert await tx.token(A)


async def _nested() -> None:
    async with aio.transaction() as outer:
        await outer.read_lock(C)
        async with aio.transaction() as inner:
            await inner.write_lock(A)


async def _lock() -> None:
    async with aio.Lock(A), aio.Lock(B, timeout=30):
        await pause()


async def _acquire_and_release() -> None:
    one = aio.Lock(A)
    assert await one.acquire(timeout=30)
    one.release()


async def _rwlock() -> None:
    both = aio.RWLock(A)
    async with both.read_lock():
        await pause()
    async with both.write_lock():
        await pause()


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`once` is refused where nothing says that this program has locks of its own."""
    monkeypatch.setenv("LOCKS_SERVERS", "here")


async def _rlock() -> None:
    async with aio.RLock(A):
        async with aio.RLock(A):
            await pause()
        assert await aio.RLock(A).token()


@locks.locked(A)
async def _decorated(depth: int = 2) -> None:
    await pause()
    if depth:
        await _decorated(depth - 1)


async def _once() -> None:
    async with aio.once(("once", next(NUMBERS))) as run:
        await pause()
        run.ensure_held()


async def _run() -> None:
    async def body(tx: aio.Transaction) -> None:
        await tx.write_lock(A)
        await tx.write_lock(B)

    await aio.run_transaction(body)


async def _lost() -> None:
    async with aio.transaction() as tx:
        await tx.write_lock(A)
        assert not await tx.lost.wait(0.001)


async def _questions() -> None:
    assert await aio.Lock(A).locked() in (True, False)
    await aio.call(locks.holders, A)


async def _watch() -> None:
    seen = 0
    async with aio.watch(A) as views:
        async for _ in views:
            seen += 1
            if seen == 2:
                break
            async with aio.Lock(A, timeout=30):
                await pause()


async def _election() -> None:
    async with locks_leader.aio.Election("report").lead(timeout=60) as leadership:
        leadership.ensure_leading()
        await pause()


async def _run_election() -> None:
    async def work(leadership: locks_leader.aio.Leadership) -> int:
        await pause()
        return leadership.term

    assert await locks_leader.aio.Election("report").run(work, timeout=60)


async def _group() -> None:
    async with aio.transaction() as tx:
        await together(lambda: tx.write_lock(A), lambda: tx.read_lock(B))


WORK = [
    *(
        _one_lock,
        _several_locks,
        _nested,
        _lock,
        _acquire_and_release,
        _rwlock,
        _rlock,
        _decorated,
        _once,
        _run,
        _lost,
        _questions,
    ),
    *(_watch, _election, _run_election, _group),
]


@asynccontextmanager
async def free() -> AsyncIterator[None]:
    """Nobody has anything."""
    yield


@asynccontextmanager
async def contended() -> AsyncIterator[None]:
    """Another task has it all, and lets go one after the other when somebody waits."""
    begun = event()

    async def hold() -> None:
        async with aio.transaction() as c, aio.transaction() as b, aio.transaction() as a:
            await a.write_lock(A)
            await b.write_lock(B)
            await c.read_lock(C)
            begun.set()
            for _ in range(20):
                await pause()
            a.unlock(A)
            for _ in range(10):
                await pause()

    async with beside(hold):
        await begun.wait()
        yield


@asynccontextmanager
async def in_deadlock() -> AsyncIterator[None]:
    """Another task has one lock, and comes for the other one."""
    begun = event()

    async def other() -> None:
        async def body(tx: aio.Transaction) -> None:
            await tx.write_lock(B)
            begun.set()
            for _ in range(10):
                await pause()
            await tx.write_lock(A)

        await aio.run_transaction(body)

    async with beside(other):
        await begun.wait()
        yield


# The loop, and when it is cancelled in it.
WHEN = [
    ("asyncio", "waiting"),
    ("asyncio", "woken"),
    *(("trio", when) for when in get_args(steps.When)),
]


@pytest.mark.parametrize(("loop", "when"), WHEN)
@pytest.mark.parametrize("world", [free, contended])
@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__.strip("_"))
def test_cancelled_at_each_await(
    work: Callable[[], Coroutine[Any, Any, Any]], world: Any, loop: str, when: Any
) -> None:
    """Cancelled at its n-th suspension, for each n, work leaves nothing behind, while its task lives on."""
    count = RUNS[loop](cancel_everywhere, work, world, when)
    if world is contended and work is not _questions:
        assert count > 0


@pytest.mark.parametrize(("loop", "when"), WHEN)
def test_cancelled_in_a_deadlock(loop: str, when: Any) -> None:
    """The same while two transactions wait for each other, and one is run again."""
    assert RUNS[loop](cancel_everywhere, _run, in_deadlock, when) > 0


def test_what_is_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that keeps something when it is cancelled is found."""
    agents: list[locks.actors.Agent] = []

    async def keeps() -> None:
        agent = await aio.call(locks.original.spawn_agent)
        agents.append(agent)
        await aio.call(locks.original.lock, agent, B)
        await pause()
        locks.original.end_transaction(agent)

    monkeypatch.setattr(steps, "TICKS", 20)
    with pytest.raises(AssertionError, match="not in time"):
        asyncio.run(cancel_everywhere(keeps, free, "waiting"))
