"""Requests that do not wait, locks without a write, limits, and who waited how long for what."""

from __future__ import annotations

import pytest

from locks.mvcc import (
    Aborted,
    Committed,
    Contention,
    Intent,
    LockNotAvailable,
    LongWait,
    Request,
    Span,
    TableFull,
    Txn,
)
from locks.mvcc.table import LockStates
from tests.mvcc.invariants import check_invariants

T1, T2, T3, T4 = Txn(1, 10), Txn(2, 20), Txn(3, 30), Txn(4, 40)


# --- Wait policies ------------------------------------------------------------------------------


def test_a_request_that_does_not_wait_is_refused_without_a_trace() -> None:
    """Key by key, in a span, by a holder or a reservation; the next guard's number is not used up."""
    table = LockStates()
    table.acquire_lock("b", T1)
    table.acquire_lock("r", T1)
    table.scan_and_enqueue(Request(writes=["r"]), T2)
    table.update_locks("r", Aborted(T1._replace(id=1)))
    before = table.states(), table.statistics()
    for request, key, holder in (
        (Request(writes=["b"], wait="error"), "b", T1),
        (Request(writes=["a", Span("a", "c")], wait="error"), "b", T1),
        (Request(reads=["b"], wait="error"), "b", T1),
        (Request(writes=["r"], wait="error"), "r", T2),
    ):
        with pytest.raises(LockNotAvailable) as caught:
            table.scan_and_enqueue(request, T3)
        assert (caught.value.key, caught.value.holder, caught.value.txn) == (key, holder, T3)
    assert (table.states(), table.statistics()) == before
    must_wait, guard = table.scan_and_enqueue(Request(["r"], ["a"], wait="error"), T3)
    assert not must_wait
    assert guard.number == 2
    check_invariants(table)


def test_skip_locked_leaves_out_what_is_locked() -> None:
    """And takes the rest; a second scan says what is locked then."""
    table = LockStates()
    for key, txn in (("b", T1), ("d", T2)):
        table.acquire_lock(key, txn)
    table.scan_and_enqueue(Request(writes=["d"]), T3)
    before = table.states()
    request = Request(writes=[Span("a", "e")], wait="skip locked")
    must_wait, guard = table.scan_and_enqueue(request, T4)
    assert not must_wait
    assert guard.skipped == ("b", "d")
    assert table.states() == before
    table.acquire_lock("a", T4)
    table.update_locks("b", Committed(T1, 10))
    assert not table.scan_and_enqueue(request, T4, guard)[0]
    assert guard.skipped == ("d",)
    table.dequeue(guard)
    check_invariants(table)


# --- Strengths ----------------------------------------------------------------------------------


def test_an_update_lock_keeps_writers_away_and_no_readers() -> None:
    """Nothing is written yet, so whoever reads has nothing to wait for."""
    table = LockStates()
    table.acquire_lock("a", T1, "update")
    assert table.state("a").strength == "update"
    assert not table.scan_and_enqueue(Request(reads=["a"]), T2)[0]
    assert table.scan_and_enqueue(Request(writes=["a"]), T3)[0]
    check_invariants(table)


# --- Limits -------------------------------------------------------------------------------------


def test_there_are_as_many_locks_as_may_be() -> None:
    """One more is refused, acquired or discovered; those that there are go on."""
    table = LockStates(max_locks=2)
    table.acquire_lock("a", T1)
    table.acquire_lock("b", T1)
    _, guard = table.scan_and_enqueue(Request(reads=["c"]), T2)
    before = table.states(), table.statistics()
    with pytest.raises(TableFull, match=r"has 2 locks.*no place for 'c'.*max_locks") as caught:
        table.acquire_lock("c", T1)
    assert caught.value.limit == 2
    with pytest.raises(TableFull):
        table.add_discovered_lock(guard, Intent("c", T1))
    assert (table.states(), table.statistics()) == before
    table.acquire_lock("a", T1)
    table.update_locks("b", Aborted(T1))
    check_invariants(table)


def test_as_many_wait_as_may() -> None:
    """A new request is refused only if it would wait; who stands in line may scan again."""
    table = LockStates(max_waiters=2)
    table.acquire_lock("a", T1)
    table.acquire_lock("b", T1)
    guards = [table.scan_and_enqueue(Request(writes=[*"ab"]), txn)[1] for txn in (T2, T3)]
    before = table.states(), table.statistics()
    with pytest.raises(TableFull, match=r"2 requests wait.*max_waiters") as caught:
        table.scan_and_enqueue(Request(reads=["a"]), T4)
    assert caught.value.limit == 2
    assert (table.states(), table.statistics()) == before
    assert not table.scan_and_enqueue(Request(writes=["c"]), T4)[0]
    assert not table.scan_and_enqueue(Request(reads=["a"]), Txn(5, 1))[0]
    table.update_locks("a", Aborted(T1))
    assert table.scan_and_enqueue(guards[0].request, T2, guards[0])[0]
    table.dequeue(guards[1])
    assert table.scan_and_enqueue(Request(writes=["b"]), T4)[0]
    check_invariants(table)


# --- Contention ---------------------------------------------------------------------------------


def test_who_waited_longest_for_what_is_known() -> None:
    """For each key and each transaction; waits that are under way count as far as they have come."""
    table = LockStates()
    for key in "ab":
        table.acquire_lock(key, T1)
    guards = {}
    for moment, (key, txn) in enumerate((("a", T2), ("a", T3), ("b", T2))):
        guards[key, txn] = table.scan_and_enqueue(Request(writes=[key]), txn)[1]
        table.stamp(float(moment))
    table.update_locks("a", Committed(T1, 10))  # T2 is the next
    table.stamp(10.0)
    statistics = table.statistics(12.0)
    second, third = LongWait(T2, T1, "a", 10.0, True), LongWait(T3, T1, "a", 11.0, False)
    assert statistics.contended_keys == (
        Contention("a", 2, 21.0, third),
        Contention("b", 1, 10.0, LongWait(T2, T1, "b", 10.0, False)),
    )
    assert statistics.contended_transactions == (
        Contention(2, 2, 20.0, second),
        Contention(3, 1, 11.0, third),
    )
    table.dequeue(guards["a", T3])
    table.stamp(20.0)
    first = table.statistics(99.0).contended_keys[1]
    assert first == Contention("a", 2, 29.0, third._replace(seconds=19.0, over=True))
