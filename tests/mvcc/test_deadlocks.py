"""Deadlocks: found at once or by pushing, one victim for each cycle, and the right one."""

from __future__ import annotations

import itertools
import random

import pytest

from locks.mvcc import Aborted, Committed, Guard, Request, Txn, TxnDeadlock
from locks.mvcc.table import LockStates
from tests.mvcc.invariants import check_invariants
from tests.mvcc.oracle import Oracle

WAYS = pytest.mark.parametrize("detect", [True, False], ids=["graph", "push"])


def ring(table: LockStates, order: tuple[int, ...], priorities: dict[int, int]) -> list[Guard]:
    """Transactions that hold a key each, and ask in this order for the next one's."""
    size = len(order)
    txns = [Txn(n, 10 + n, priorities.get(n)) for n in range(size)]
    for txn in txns:
        table.acquire_lock(txn.id, txn)
    return [table.scan_and_enqueue(Request(writes=[(n + 1) % size]), txns[n])[1] for n in order]


def victims(table: LockStates, guards: list[Guard]) -> list[TxnDeadlock]:
    """The reports of those that have to abort; without detection, each one pushes first."""
    for guard in guards:
        table.resolve_deadlocks(guard.txn.id)
    return [guard.ending for guard in guards if isinstance(guard.ending, TxnDeadlock)]


@WAYS
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_ring_has_one_victim_in_whichever_order_it_closes(size: int, detect: bool) -> None:
    """The largest transaction reference; its report names all edges."""
    for order in itertools.permutations(range(size)):
        table = LockStates(detect=detect)
        guards = ring(table, order, {})
        if not detect:
            assert not table.woken
        (report,) = victims(table, guards)
        assert report.victim.id == size - 1
        assert report.ids == tuple((n + size - 1) % size for n in range(size))
        assert all(wait.held for wait in report.cycle)
        assert "largest reference" in str(report)
        assert [guard.ending for guard in table.woken] == [report]
        assert table.statistics().deadlocks == 1
        check_invariants(table)


@WAYS
def test_the_lowest_priority_yields_where_all_have_one(detect: bool) -> None:
    """Among equals the largest reference."""
    for priorities, expected, rule in (
        ({0: 1, 1: 2, 2: 3}, 0, "lowest priority of the cycle"),
        ({0: 3, 1: 1, 2: 3}, 1, "lowest priority of the cycle"),
        ({0: 1, 1: 1, 2: 3}, 1, "largest reference of those with the lowest priority"),
        ({0: 1, 1: 2}, 2, "largest reference of the cycle"),
        ({}, 2, "largest reference of the cycle"),
    ):
        table = LockStates(detect=detect)
        (report,) = victims(table, ring(table, (0, 1, 2), priorities))
        assert report.victim.id == expected
        assert rule in report.rule


def test_two_cycles_have_one_victim_if_it_is_in_both() -> None:
    """T1 and T2 wait for T9, which waits with two requests for both of them."""
    table = LockStates(detect=False)
    t1, t2, t9 = Txn(1, 1), Txn(2, 2), Txn(9, 9)
    for key, txn in zip("abc", (t1, t2, t9), strict=True):
        table.acquire_lock(key, txn)
    waiting = [("c", t1), ("c", t2), ("a", t9), ("b", t9)]
    guards = [table.scan_and_enqueue(Request(writes=[key]), txn)[1] for key, txn in waiting]
    assert {report.victim for report in victims(table, guards)} == {t9}
    assert table.statistics().deadlocks == 1


def test_a_deadlock_through_a_reservation_is_found() -> None:
    """T3 waits for T2, which has only the reservation, and waits for T3's lock elsewhere."""
    table = LockStates()
    t1, t2, t3 = Txn(1, 10), Txn(2, 20), Txn(3, 30)
    table.acquire_lock("a", t1)
    table.acquire_lock("b", t3)
    _, guard = table.scan_and_enqueue(Request(writes=["a", "b"]), t2)
    table.update_locks("a", Committed(t1, 10))
    assert table.scan_and_enqueue(guard.request, t2, guard)[0]
    table.woken.clear()
    table.scan_and_enqueue(Request(writes=["a"]), t3)
    (lost,) = table.woken
    assert isinstance(lost.ending, TxnDeadlock)
    assert [wait.held for wait in lost.ending.cycle] == [False, True]
    assert "is ahead" in str(lost.ending)


def test_a_deadlock_behind_somebody_in_the_queue_is_found() -> None:
    """T2 stands in the queue at "a", ahead of T3, and waits for T3 with another request."""
    table = LockStates()
    t1, t2, t3 = Txn(1, 10), Txn(2, 20), Txn(3, 30)
    table.acquire_lock("a", t1)
    table.acquire_lock("b", t3)
    table.scan_and_enqueue(Request(writes=["a"]), t2)
    table.scan_and_enqueue(Request(writes=["b"]), t2)
    table.scan_and_enqueue(Request(writes=["a"]), t3)
    (lost,) = table.woken
    assert lost.txn == t3


def test_requests_of_one_transaction_on_both_sides_of_another_are_no_deadlock() -> None:
    """In a queue T1, T2, T1 the first turn is T1's, and serves both; T2 waits, but T1 doesn't."""
    table = LockStates()
    t1, t2, t9 = Txn(1, 10), Txn(2, 20), Txn(9, 90)
    table.acquire_lock("a", t9)
    guards = [table.scan_and_enqueue(Request(writes=["a"]), txn)[1] for txn in (t1, t2, t1)]
    assert not table.woken
    table.update_locks("a", Aborted(t9))
    assert [guard.waits_at is None for guard in guards] == [True, False, True]


# --- Over several turns ---------------------------------------------------------------------------


def test_edges_that_come_during_a_search_are_looked_at_after_it() -> None:
    """T4's search has passed T3 when T4 becomes the holder that T3 waits for."""
    table = LockStates(steps=1)
    t1, t2, t3, t4, t5 = (Txn(n, 10 * n) for n in range(1, 6))
    for key, txn in (("a", t1), ("b", t3), ("c", t4)):
        table.acquire_lock(key, txn)
    for key, txn in (("a", t2), ("a", t3), ("c", t5)):
        table.scan_and_enqueue(Request(writes=[key]), txn)
    table.scan_and_enqueue(Request(writes=["b"]), t4)  # its search has come to T3
    table.update_locks("a", Aborted(t1))
    table.go_on_searching()  # and to T2, for which T3 waits now
    table.woken.clear()
    table.acquire_lock("a", t4)
    while table.searches:
        table.go_on_searching()
    (lost,) = table.woken
    assert isinstance(lost.ending, TxnDeadlock)
    assert lost.ending.ids == (4, 3)
    check_invariants(table)


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_are_left_without_a_cycle(seed: int) -> None:
    """However many cycles there are, and in whichever order they are closed."""
    draw = random.Random(seed)
    table, oracle = LockStates(), Oracle()
    txns = [Txn(n, 10, draw.choice([None, 1, 2, 3])) for n in range(8)]
    for txn in txns:
        table.acquire_lock(txn.id, txn)
        oracle.acquire(txn.id, txn)
    found = 0
    for _ in range(16):
        txn, key = draw.choice(txns), draw.randrange(8)
        if txn.id in oracle.ended:
            continue
        request = Request(writes=[key])
        table.scan_and_enqueue(request, txn)
        assert oracle.scan(request, txn, None) is not None
        cycles = oracle.cycles()
        reports = {
            g.ending.victim.id: g.ending for g in table.woken if isinstance(g.ending, TxnDeadlock)
        }
        table.woken.clear()
        assert bool(cycles) == bool(reports)
        for report in reports.values():
            oracle.lose(report, {txn.id: txn for txn in txns})
        found += len(reports)
        assert oracle.cycles() == []
        check_invariants(table)
    assert found == table.statistics().deadlocks
