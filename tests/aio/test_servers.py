"""Tasks of a client of servers: majorities and their tokens, cancelled at each await; loss; the node that is started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import locks
from locks import aio
from locks.program.default import stand_in
from tests.aio.steps import cancel_everywhere, nothing_held, until
from tests.cluster.nodes import A, B, C, Nodes, peer
from tests.helpers import eventually


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Three servers, and a client of theirs in the place of this program's node."""
    made = Nodes()
    try:
        servers = made.meet(A, B, C)
        addresses = [peer(server) for server in servers]
        client = made.start("client@127.0.0.1", servers=addresses, mesh=False, listen=False)
        eventually(lambda: client.alive == {client.name, A, B, C})
        with stand_in(client):
            yield made
        eventually(lambda: all(server.statistics().table.entries == 0 for server in servers))
    finally:
        made.stop()


async def _token() -> None:
    async with aio.transaction() as tx:
        token = await tx.write_lock(("a",))
        assert token == await tx.token(("a",))


async def _lock() -> None:
    async with aio.Lock(("a",)) as lock:
        assert await lock.token()
        assert await lock.locked()


async def _all() -> None:
    async with aio.transaction(timeout=30) as tx:
        await tx.lock_all([("a",), ("b",)])
        await tx.read_lock(("c",), timeout=0)


async def _watch() -> None:
    async with aio.watch(("a",)) as views:
        nodes = {(await anext(views)).node for _ in range(3)}
        assert nodes == {A, B, C}


async def everywhere_free() -> None:
    """Nothing is locked on any server."""
    await nothing_held()

    async def held() -> int:
        return sum(
            [len((await aio.call(locks.queue, ("a",), node=name)).requests) for name in (A, B, C)]
        )

    for _ in range(1000):
        if not await held():
            return
    raise AssertionError("not in time")


async def free() -> Callable[[], Awaitable[None]]:
    """Nobody has anything."""
    return everywhere_free


async def contended() -> Callable[[], Awaitable[None]]:
    """Another task has it until somebody waits for it."""
    begun = asyncio.Event()

    async def hold() -> None:
        async with aio.Lock(("a",)):
            begun.set()
            await asyncio.sleep(0.02)

    task = asyncio.create_task(hold())
    await begun.wait()

    async def clear() -> None:
        await task
        await everywhere_free()

    return clear


@pytest.mark.parametrize("world", [free, contended])
@pytest.mark.parametrize("work", [_token, _lock, _all, _watch])
def test_cancelled_at_each_await(nodes: Nodes, work: Any, world: Any) -> None:
    """Cancelled at its n-th suspension, for each n, nothing is kept on any server."""
    for when in ("waiting", "woken"):
        assert asyncio.run(cancel_everywhere(work, world, when)) > 0  # type: ignore[arg-type]


def test_loss_can_be_awaited(nodes: Nodes) -> None:
    """`await tx.lost` ends when a lock is lost with its servers; so it does for all who wait."""

    async def main() -> None:
        told: asyncio.Queue[Any] = asyncio.Queue()

        async def lose() -> None:
            async with aio.transaction(on_lost=told.put_nowait) as tx:
                await tx.write_lock(("a",))
                waiting = [asyncio.ensure_future(tx.lost.wait()) for _ in range(3)]
                assert not tx.lost.is_open
                for server in nodes.started[:2]:
                    await asyncio.to_thread(server.stop)
                assert await tx.lost
                assert await asyncio.gather(*waiting) == [True] * 3
                assert isinstance(await told.get(), locks.LockLost)
                tx.ensure_held()

        with pytest.raises(locks.LockLost):
            await lose()

    asyncio.run(main())
    eventually(lambda: nodes.started[2].statistics().table.entries == 0)


def test_starting_waits_in_the_task() -> None:
    """A client of servers is started by `aio.start`, while the loop goes on; `locks.start` is refused there."""

    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        options: dict[str, Any] = {"servers": ["x@127.0.0.1:1"], "cookie": "c" * 20}
        with pytest.raises(locks.BlocksEventLoop):
            locks.start(**options)
        node = await aio.start(**options)
        assert turns > 0
        with pytest.raises(locks.CannotServe):
            async with aio.Lock(("a",)):
                raise AssertionError
        assert node.running
        counting.cancel()
        await until(counting.done)

    asyncio.run(main())
