"""Transactions, `run_transaction`, `Lock` and `RWLock`, and where they lock."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from typing_extensions import assert_type

import locks

SERVERS = ["a@127.0.0.1", "b@127.0.0.1"]


def transfer(tx: locks.Transaction, amount: int) -> int:
    assert_type(tx.write_lock(("accounts", "ann")), int)
    assert_type(tx.read_lock(["accounts", 17], require="majority", timeout=0.5), int)
    assert_type(tx.lock(("accounts",), "read"), int)
    assert_type(tx.lock(("accounts",), nodes=locks.HERE), None)
    assert_type(tx.write_lock(("accounts",), nodes=SERVERS, require="any"), None)
    tx.lock_all(write=[("a",)], read=[("b",), ("c",)], nodes=SERVERS)
    assert_type(tx.token(("accounts",)), int)
    if tx.lost.wait(0.1):
        tx.ensure_held(("accounts",))
    for report in tx.deadlocks:
        assert_type(report, locks.values.Deadlock)
        assert_type(report.cycle[0].waiter.client, str)
    tx.unlock(("a",))
    assert_type(tx.learned, tuple[tuple[Hashable, ...], ...])
    return amount


def anywhere(tx: locks.Transaction, nodes: Sequence[str] | None) -> int | None:
    return tx.write_lock(("accounts",), nodes=nodes)


with locks.transaction(timeout=5, on_deadlock="surrender", label="nightly", nodes=SERVERS) as one:
    assert_type(one, locks.Transaction)
    one.write_lock("accounts", nodes=7)  # E
    one.lock(("accounts",), "exclusive")  # E
    one.lock(("accounts",), require="most")  # E
    one.lock(17)  # E
    one.unlok(("accounts",))  # E

assert_type(locks.run_transaction(lambda tx: transfer(tx, 3), retry_on=locks.CannotServe), int)
assert_type(locks.run_transaction(lambda tx: transfer(tx, 3), retries=5, learn=False), int)
locks.run_transaction(lambda tx: transfer(tx, 3), learn="no")  # E
locks.run_transaction(transfer)  # E
locks.transaction(on_deadlock="ignore")  # E
locks.transaction(5)  # E

lock = locks.Lock(("report",), nodes=SERVERS, require="all")
assert_type(lock.acquire(timeout=3), bool)
with lock as held:
    assert_type(held.token(), int)
with locks.RWLock(("report",)).read_lock() as reading:
    assert_type(reading, locks.Lock)
locks.Lock(("report",), "wirte")  # E
lock.acquire("now")  # E
