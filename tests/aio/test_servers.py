"""Tasks of a client of servers: majorities and their tokens, cancelled at each await; loss; the node that is started."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import locks
from locks import aio
from locks.program.default import stand_in
from tests.aio.steps import (
    RUNS,
    beside,
    cancel_everywhere,
    event,
    in_thread,
    nothing_held,
    pause,
    until,
)
from tests.cluster.nodes import A, B, C, Nodes, peer
from tests.helpers import LIMIT, eventually


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


@asynccontextmanager
async def free() -> AsyncIterator[None]:
    """Nobody has anything."""
    yield
    await everywhere_free()


@asynccontextmanager
async def contended() -> AsyncIterator[None]:
    """Another task has it until somebody waits for it."""
    begun = event()

    async def hold() -> None:
        async with aio.Lock(("a",)):
            begun.set()
            await pause(0.02)

    async with beside(hold):
        await begun.wait()
        yield
    await everywhere_free()


@pytest.mark.parametrize("loop", RUNS)
@pytest.mark.parametrize("world", [free, contended])
@pytest.mark.parametrize("work", [_token, _lock, _all, _watch])
def test_cancelled_at_each_await(nodes: Nodes, work: Any, world: Any, loop: str) -> None:
    """Cancelled at its n-th suspension, for each n, nothing is kept on any server."""
    for when in ("waiting", "woken"):
        assert RUNS[loop](cancel_everywhere, work, world, when) > 0


@pytest.mark.parametrize("loop", RUNS)
def test_loss_can_be_awaited(nodes: Nodes, loop: str) -> None:
    """`await tx.lost` ends when a lock is lost with its servers; so it does for all who wait."""

    async def main() -> None:
        told: list[locks.LockLost] = []
        ended: list[bool] = []
        in_loop = threading.get_ident()

        def on_lost(lost: locks.LockLost) -> None:
            assert threading.get_ident() == in_loop
            told.append(lost)

        async def lose() -> None:
            async with aio.transaction(on_lost=on_lost) as tx:
                await tx.write_lock(("a",))

                async def wait() -> None:
                    ended.append(await tx.lost.wait())

                async with beside(wait, wait, wait):
                    await pause(0.001)
                    assert not tx.lost.is_open
                    for server in nodes.started[:2]:
                        await in_thread(server.stop)
                    assert await tx.lost
                assert ended == [True] * 3
                await until(lambda: told)
                tx.ensure_held()

        with pytest.raises(locks.LockLost):
            await lose()

    RUNS[loop](main)
    eventually(lambda: nodes.started[2].statistics().table.entries == 0)


@pytest.mark.parametrize("loop", RUNS)
def test_starting_waits_in_the_task(loop: str) -> None:
    """A client of servers is started by `aio.start`, while the loop goes on; `locks.start` is refused there."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await pause()
            turns += 1

    def refuse() -> None:
        """Let a client wait until the loop has gone on."""
        connection, _ = listening.accept()
        before = turns
        eventually(lambda: turns > before)
        listening.close()
        connection.close()

    async def main() -> None:
        server = f"x@127.0.0.1:{listening.getsockname()[1]}"
        options: dict[str, Any] = {"servers": [server], "cookie": "c" * 20}
        with pytest.raises(locks.errors.BlocksEventLoop):
            locks.start(**options)
        async with beside(count, cancel=True):
            node = await aio.start(**options)
            with pytest.raises(locks.CannotServe):
                async with aio.Lock(("a",)):
                    raise AssertionError
            assert node.running

    with socket.create_server(("127.0.0.1", 0)) as listening:
        refusing = threading.Thread(target=refuse)
        refusing.start()
        RUNS[loop](main)
        refusing.join(LIMIT)
    assert turns > 0
