"""What would go wrong without a word in a coroutine is refused, before anything was asked for."""

from __future__ import annotations

import asyncio

import greenlet
import pytest

import locks
from locks import aio
from tests.helpers import LIMIT

A = ("a",)


def test_two_readers_of_the_same_views() -> None:
    """The second one is told that there is one; it waited for ever, also after `aclose`. After the first one it may read."""

    async def main() -> None:
        async with aio.watch(A) as views:
            assert (await views.__anext__()).holders == ()
            first = asyncio.create_task(views.__anext__())
            await asyncio.sleep(0)
            with pytest.raises(locks.MisuseError, match="of its own"):
                await asyncio.wait_for(views.__anext__(), LIMIT)
            async with aio.Lock(A):
                assert (await first).holders
            assert (await views.__anext__()).holders == ()

    asyncio.run(main())


def test_a_plain_function_that_a_coroutine_runs_in_a_greenlet() -> None:
    """As SQLAlchemy does: it must not block either, for the loop is below it; the lock is free in a moment, and it is for tasks."""

    def plain() -> None:
        with pytest.raises(locks.BlocksEventLoop):
            locks.Lock(A).acquire(timeout=60)
        with pytest.raises(locks.BlocksEventLoop), locks.transaction() as tx:
            tx.write_lock(A, timeout=60)

    async def main() -> None:
        async with aio.Lock(A):
            waits = asyncio.create_task(aio.call(greenlet.greenlet(plain).switch))
            greenlet.greenlet(plain).switch()
            await waits
        assert not locks.queue(A).requests

    asyncio.run(main())


def test_a_plain_greenlet_of_a_thread_may_wait() -> None:
    """Where no event loop runs, a greenlet waits with its thread, as ever."""

    def plain() -> bool:
        with locks.Lock(A):
            return True

    assert greenlet.greenlet(plain).switch()
