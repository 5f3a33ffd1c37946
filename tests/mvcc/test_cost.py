"""What the operations cost, counted in lines carried out and not timed."""

from __future__ import annotations

from collections.abc import Callable

from locks.mvcc import (
    Committed,
    Request,
    Txn,
    contention,
    deadlocks,
    lines,
    records,
    table,
    waiting,
)
from locks.mvcc.table import LockStates
from tests.helpers import lines_of

A = Request(writes=["a"])


def work(do: Callable[[], object]) -> int:
    """How many lines of the lock table are carried out."""
    return lines_of(do, table, lines, deadlocks, waiting, records, contention)


def queue_of(waiters: int) -> int:
    """So many writers come to a key that is held, and are served one after the other."""
    states = LockStates()
    txns = [Txn(n, n) for n in range(waiters + 1)]
    states.acquire_lock("a", txns[0])
    # Each has written something else before, as those do that can be in a deadlock.
    for txn in txns[1:]:
        states.acquire_lock(f"b{txn.id}", txn)

    def run() -> None:
        guards = [states.scan_and_enqueue(A, txn)[1] for txn in txns[1:]]
        for txn, guard in zip(txns, [*guards, None], strict=True):
            states.update_locks("a", Committed(txn, txn.timestamp))
            if guard is not None:
                assert not states.scan_and_enqueue(A, guard.txn, guard)[0]
                states.acquire_lock("a", guard.txn)
                states.dequeue(guard)
            states.woken.clear()

    return work(run)


def test_a_queue_costs_in_proportion_to_its_length() -> None:
    """Ten times as many writers at one key are ten times the work, not a hundred times."""
    assert queue_of(500) <= 10.5 * queue_of(50)


def test_a_key_costs_the_same_in_a_full_table() -> None:
    """Whether nothing else is locked, or 1,000 keys with somebody waiting at each."""

    def one(others: int) -> int:
        states = LockStates()
        owner, waiter = Txn(0, 0), Txn(1, 1)
        for n in range(others):
            states.acquire_lock(f"x{n}", owner)
            states.scan_and_enqueue(Request(writes=[f"x{n}"]), waiter)
        txn = Txn(9, 9)

        def run() -> None:
            _, guard = states.scan_and_enqueue(A, txn)
            states.acquire_lock("a", txn)
            states.dequeue(guard)
            states.update_locks("a", Committed(txn, 9))

        return work(run)

    assert one(1000) == one(1)


def hot_key(waiters: int) -> LockStates:
    """So many writers wait at a key, and each holds a lock that another one waits for."""
    states = LockStates()
    states.acquire_lock("a", Txn(0, 0))
    for n in range(1, waiters + 1):
        states.acquire_lock(f"b{n}", Txn(n, n))
        states.scan_and_enqueue(Request(writes=[f"b{n}"]), Txn(1_000_000 + n, n))
        states.scan_and_enqueue(A, Txn(n, n))
    return states


def test_a_hot_key_costs_the_same_however_many_wait_there_with_contended_locks() -> None:
    """One more such writer comes: the search for deadlocks does not look at those ahead of it."""

    def one_more(waiters: int) -> int:
        states = hot_key(waiters)
        states.acquire_lock("mine", Txn(999_999, 5))
        states.scan_and_enqueue(Request(writes=["mine"]), Txn(2_000_000, 5))
        return work(lambda: states.scan_and_enqueue(A, Txn(999_999, 5)))

    assert one_more(2000) == one_more(20)


def test_a_turn_is_bounded_where_a_search_is_not() -> None:
    """All who wait at one hot key wait at another one, too, with requests at the same time."""

    def one_more(waiters: int) -> int:
        states = LockStates()
        for key in "az":
            states.acquire_lock(key, Txn(0, 0))
        for n in range(1, waiters + 1):
            for key in "az":
                states.scan_and_enqueue(Request(writes=[key]), Txn(n, n))
        last = Txn(999_999, 5)
        states.acquire_lock("mine", last)
        states.scan_and_enqueue(Request(writes=["mine"]), Txn(2_000_000, 5))
        first = work(lambda: states.scan_and_enqueue(A, last))
        while states.searches:
            assert work(states.go_on_searching) <= 3 * first
        return first

    assert one_more(1000) <= 3 * one_more(100)
