"""Workers of an ownership that are tasks of an event loop: each has its groups, until it ends."""

from __future__ import annotations

import asyncio

import pytest

import locks
from locks import aio
from locks.ownership import Backlog, Ownership
from tests.aio.steps import until
from tests.helpers import LIMIT

GROUPS, TASKS = 4, 60


def shared(*workers: Ownership) -> bool:
    """Whether each group is one worker's own."""
    return sorted(each for mine in workers for each in mine.owned()) == list(range(GROUPS))


def test_a_worker_is_a_task() -> None:
    """Two tasks of one loop share the groups out; those of one that is cancelled go to the other, with larger tokens."""
    locks.start(servers=locks.HERE)

    async def part(mine: Ownership) -> None:
        await aio.call(mine.join)
        await asyncio.Event().wait()

    async def main() -> None:
        first, second = workers = [Ownership("parts", GROUPS) for _ in range(2)]
        tasks = [asyncio.create_task(part(each)) for each in workers]
        await until(lambda: shared(*workers))
        before = first.owned()
        assert len(before) == len(second.owned()) == GROUPS // 2
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        await until(lambda: shared(second))
        assert not first.joined
        assert all(second.owned()[group] > token for group, token in before.items())
        tasks[1].cancel()

    asyncio.run(main())


def test_tasks_of_a_loop_run_one_backlog() -> None:
    """Each task is done once, each by one worker at a time; what a cancelled worker had begun is done by another one."""
    locks.start(servers=locks.HERE)
    inside: set[int] = set()  # kept without locks: resources with somebody at work
    done: list[int] = []

    async def main() -> None:
        tasks: Backlog[int] = Backlog(range(TASKS), resource=lambda task: task % 7, groups=GROUPS)
        begun = asyncio.Event()

        def handle(task: int, _: int) -> None:
            assert task % 7 not in inside
            inside.add(task % 7)
            try:
                begun.set()
                with locks.Lock(("a wait",), timeout=LIMIT):  # here the loop turns to other tasks
                    pass
                done.append(task)
            finally:
                inside.discard(task % 7)

        async def work() -> int:
            return await aio.call(Ownership("work", GROUPS).run, tasks, handle)

        async with aio.Lock(("a wait",)):
            workers = [asyncio.create_task(work()) for _ in range(3)]
            await begun.wait()
            workers[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await workers[0]
        numbers = await asyncio.gather(*workers[1:])
        assert sum(numbers) == TASKS

    asyncio.run(main())
    assert sorted(done) == list(range(TASKS))
    assert not inside
