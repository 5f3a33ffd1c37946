"""The same for coroutines: every option and every result is known there, too."""

from __future__ import annotations

from typing_extensions import assert_type

import locks
import locks_leader.aio
from locks import aio

SERVERS = ["a@127.0.0.1", "b@127.0.0.1"]


async def transfer(tx: aio.Transaction, amount: int) -> int:
    assert_type(await tx.write_lock(("accounts", "ann")), int)
    assert_type(await tx.read_lock(lock_id=["accounts", 17], require="majority", timeout=0.5), int)
    assert_type(await tx.lock(("accounts",), "read"), int)
    assert_type(await tx.lock(("accounts",), nodes=locks.HERE), None)
    assert_type(await tx.write_lock(("accounts",), nodes=SERVERS, require="any"), None)
    await tx.lock_all(write=[("a",)], read=[("b",), ("c",)], nodes=SERVERS)
    assert_type(await tx.token(("accounts",)), int)
    assert_type(tx.unit(("accounts",)), int)
    if await tx.lost.wait(0.1):
        tx.ensure_held(("accounts",))
    tx.unlock(("a",))
    tx.unlok(("a",))  # E
    await tx.write_lock("accounts", nodes=7)  # E
    await tx.lock(("accounts",), "exclusive")  # E
    await tx.lock(("accounts",), require="most")  # E
    await tx.lock(17)  # E
    tx.unlock(17)  # E
    return amount


async def program() -> None:
    assert_type(await aio.start(servers=SERVERS, cookie="x" * 20), locks.node.Node)
    await aio.start(serves=SERVERS)  # E
    await aio.start(tls="cert.pem")  # E
    async with aio.transaction(timeout=5, on_deadlock="surrender", label="nightly") as one:
        assert_type(one, aio.Transaction)
        assert_type(await transfer(one, 3), int)
    aio.transaction(on_deadlock="ignore")  # E
    aio.transaction(5)  # E
    done = await aio.run_transaction(lambda tx: transfer(tx, 3), retry_on=locks.CannotServe)
    assert_type(done, int)
    await aio.run_transaction(lambda tx: transfer(tx, 3), learn="no")  # E
    await aio.run_transaction(lambda tx: transfer(tx, 3), on_deadlock="surrender")  # E
    lock = aio.Lock(("report",), nodes=SERVERS, require="all", label="nightly")
    assert_type(await lock.acquire(timeout=3), bool)
    async with aio.RWLock(("report",), timeout=3).read_lock() as reading:
        assert_type(reading, aio.Lock)
    aio.Lock(("report",), nods=SERVERS)  # E
    aio.RLock(("report",), owner=7)  # E


async def report(leadership: locks_leader.aio.Leadership, day: str, again: bool = False) -> int:
    await leadership.lost.wait(1)
    return leadership.term


async def leading() -> None:
    election = locks_leader.aio.Election("report")
    assert_type(await election.run(report, "monday", timeout=5), int | None)
    await election.run(report, "monday", True)
    await election.run(report, 17)  # E
    await election.run(report)  # E
    await election.run(lambda leadership: leadership.term)  # E
    assert_type(await election(report)("monday", again=True), int | None)
    await election(report)(17)  # E
