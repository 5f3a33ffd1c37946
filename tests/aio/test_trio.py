"""In a task of trio, what may wait is refused, with a way that works there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import locks
from locks import aio

trio = pytest.importorskip("trio")


@pytest.fixture(autouse=True)
def node() -> Iterator[None]:
    """The program's node is stopped after each test."""
    yield
    locks.stop()


def in_transaction() -> None:
    """Locks, works and releases."""
    with locks.transaction() as tx:
        tx.write_lock(("a",))


@pytest.mark.parametrize(
    "call",
    [
        lambda: locks.Lock(("a",)).acquire(),
        lambda: locks.RLock(("a",)).acquire(),
        lambda: locks.Semaphore(("a",), 2).acquire(),
        lambda: locks.Barrier(("a",), 1).wait(),
        in_transaction,
    ],
)
def test_what_may_wait_is_refused(call: Callable[[], object]) -> None:
    """All tasks are in one thread: they would be one client, and a wait would stop them all. Nothing was locked."""

    async def main() -> None:
        with pytest.raises(locks.BlocksEventLoop, match=r"trio\.to_thread\.run_sync"):
            call()
        assert not locks.holders(("a",))

    trio.run(main)


def test_locks_for_asyncio_are_refused() -> None:
    """Also for an owner: the error says what they are for."""

    async def main() -> None:
        with pytest.raises(locks.MisuseError, match="for asyncio, and this is a task of trio"):
            await aio.Lock(("a",)).acquire()
        refused = pytest.raises(locks.MisuseError, match="for asyncio, and this is a task of trio")
        with locks.Owner("me") as owner, owner.acting(), refused:
            await aio.Lock(("a",)).acquire()

    trio.run(main)


def test_the_ways_that_the_error_names() -> None:
    """A function in a thread; a lock of an owner, which is acquired in a thread and released in the task."""
    inside: list[int] = []

    async def one(number: int) -> None:
        await trio.to_thread.run_sync(in_transaction)
        lock = locks.Lock(("c",), owner=locks.Owner(f"task {number}"))
        assert await trio.to_thread.run_sync(lock.acquire)
        inside.append(number)
        await trio.lowlevel.checkpoint()
        assert inside.pop() == number
        assert not inside
        lock.release()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(one, number)

    trio.run(main)
