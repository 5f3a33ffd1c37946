"""Each rule of the lock table by name, on the pure core. T1, T2 ... are the transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locks.mvcc import Aborted, Committed, Guard, Intent, LockState, Moved, Request, Span, Txn
from locks.mvcc.table import LockStates
from tests.mvcc.invariants import check_invariants

T1, T2, T3, T4 = Txn(1, 10), Txn(2, 20), Txn(3, 30), Txn(4, 40)


@pytest.fixture
def table() -> Iterator[LockStates]:
    """A lock table whose invariants are checked at the end, too."""
    table = LockStates()
    yield table
    check_invariants(table)


def scan(table: LockStates, txn: Txn, *, reads: str = "", writes: str = "") -> tuple[bool, Guard]:
    """Scan for single keys, each a letter."""
    return table.scan_and_enqueue(Request(list(reads), list(writes)), txn)


def rescan(table: LockStates, guard: Guard) -> bool:
    """Scan again with the same guard."""
    must_wait, same = table.scan_and_enqueue(guard.request, guard.txn, guard)
    assert same is guard
    return must_wait


def waits(guard: Guard) -> bool:
    """Whether a guard waits."""
    return guard.waits_at is not None


# --- Who waits: a lock holder exists ------------------------------------------------------------


@pytest.mark.parametrize(("at", "expected"), [(9, False), (10, True), (11, True)])
def test_a_reader_waits_if_the_intent_is_not_after_its_timestamp(
    table: LockStates, at: int, expected: bool
) -> None:
    """Not for a later one: that will not be seen. At the same timestamp it would be seen."""
    table.acquire_lock("a", T1)
    must_wait, guard = scan(table, Txn(2, at), reads="a")
    assert must_wait is expected is waits(guard)


def test_a_writer_waits_for_any_holder(table: LockStates) -> None:
    """Whatever the timestamps: there is one uncommitted intent for each key."""
    table.acquire_lock("a", T2)
    assert scan(table, T1, writes="a")[0]
    assert scan(table, T3, writes="a")[0]


def test_a_transaction_does_not_wait_for_its_own_lock(table: LockStates) -> None:
    """Neither to read nor to write, in whichever request."""
    table.acquire_lock("a", T1)
    assert not scan(table, T1, reads="a")[0]
    assert not scan(table, T1, writes="a")[0]


# --- Who waits: there is no holder --------------------------------------------------------------


def reserved(table: LockStates) -> Guard:
    """Let a request of T2 have the reservation of "a"."""
    table.acquire_lock("a", T1)
    _, guard = scan(table, T2, writes="a")
    table.update_locks("a", Aborted(T1))
    assert table.state("a").reservation == (guard.number, T2, False)
    return guard


def test_a_reader_does_not_wait_for_a_reservation(table: LockStates) -> None:
    """What will be written is not there yet, and will have a later timestamp."""
    reserved(table)
    assert not scan(table, T3, reads="a")[0]


def test_a_writer_waits_for_an_older_reservation(table: LockStates) -> None:
    """First come, first served."""
    reserved(table)
    assert scan(table, T3, writes="a")[0]


def test_an_older_request_takes_a_younger_ones_reservation(table: LockStates) -> None:
    """The younger one goes back into the queue, ahead of all that are younger still."""
    table.acquire_lock("a", T1)
    table.acquire_lock("b", T1)
    _, old = scan(table, T2, writes="ab")
    assert old.waits_at is not None
    table.update_locks("a", Committed(T1, 10))
    assert not waits(old)  # it has "a", but has not found out about "b" yet
    table.acquire_lock("c", T4)
    _, young = scan(table, T3, writes="b")
    _, youngest = scan(table, T4, writes="b")
    table.update_locks("b", Committed(T1, 10))
    assert not waits(young)
    assert not rescan(table, old)
    state = table.state("b")
    assert state.reservation == (old.number, T2, False)
    assert [place.number for place in state.queued_writers] == [young.number, youngest.number]
    assert rescan(table, young)


# --- Release ------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", [Committed(T1, 10), Aborted(T1)])
def test_all_readers_are_released_and_one_writer(
    table: LockStates, update: Committed | Aborted
) -> None:
    """By commit and by abort; the first writer has the reservation, the others wait on."""
    table.acquire_lock("a", T1)
    readers = [scan(table, Txn(n, n), reads="a")[1] for n in (11, 12, 13)]
    writers = [scan(table, Txn(n, n), writes="a")[1] for n in (21, 22, 23)]
    assert table.update_locks("a", update) == 1
    assert [waits(guard) for guard in readers + writers] == [False] * 4 + [True] * 2
    assert table.woken == [*readers, writers[0]]
    state = table.state("a")
    assert state.holder is None
    assert state.reservation is not None
    assert state.reservation.number == writers[0].number
    assert state.waiting_readers == ()
    assert [place.number for place in state.queued_writers] == [w.number for w in writers[1:]]


def test_the_reservation_becomes_the_lock(table: LockStates) -> None:
    """A holder and a reservation are never there together."""
    guard = reserved(table)
    table.acquire_lock("a", T2)
    assert table.state("a") == LockState("a", holder=T2, strength="intent")
    table.dequeue(guard)
    assert table.state("a") == LockState("a", holder=T2, strength="intent")


def test_a_reservation_that_is_not_used_goes_to_the_next(table: LockStates) -> None:
    """Its request was dequeued without a write; the last one leaves nothing behind."""
    first = reserved(table)
    _, second = scan(table, T3, writes="a")
    table.dequeue(first)
    assert not waits(second)
    table.dequeue(second)
    assert table.states() == ()
    assert table.statistics().transactions == 0


def test_a_span_releases_the_transactions_own_locks_only(table: LockStates) -> None:
    """In the order of the keys; what is counted are the locks that have changed."""
    for key in "ace":
        table.acquire_lock(key, T1)
    for key in "bd":
        table.acquire_lock(key, T2)
    assert table.update_locks(Span("a", "e"), Committed(T1, 10)) == 2
    assert [state.key for state in table.states()] == ["b", "d", "e"]
    assert table.update_locks("b", Committed(T1, 10)) == 0
    assert table.locks(T1) == ("e",)
    assert table.locks(T2) == ("b", "d")


def test_the_last_commit_is_known_while_somebody_stands_in_line(table: LockStates) -> None:
    """Those are who needs it: they write after it. With the last of them it is forgotten."""
    table.acquire_lock("a", T1)
    _, guard = scan(table, T2, writes="a")
    table.update_locks("a", Committed(T1, 15))
    assert table.state("a").last_committed_timestamp == 15
    table.acquire_lock("a", T2)
    assert table.state("a").last_committed_timestamp == 15
    _, other = scan(table, T3, writes="a")
    table.dequeue(guard)
    # Commits that don't come in the order of their timestamps: the latest is what counts.
    table.update_locks("a", Committed(T2, 20))
    table.acquire_lock("a", T1._replace(id=5))
    table.update_locks("a", Committed(Txn(5, 10), 10))
    assert table.state("a").last_committed_timestamp == 20
    table.dequeue(other)
    assert table.state("a") == LockState("a")


# --- The same transaction has several requests --------------------------------------------------


# --- Timestamps ---------------------------------------------------------------------------------


def test_a_moved_lock_lets_those_readers_go_that_are_before_it_now(table: LockStates) -> None:
    """The others, and all writers, wait on."""
    table.acquire_lock("a", T1)
    guards = [scan(table, Txn(n, n), reads="a")[1] for n in (20, 29, 30, 31)]
    _, writer = scan(table, T2, writes="a")
    assert table.update_locks("a", Moved(T1, 30)) == 1
    assert [waits(guard) for guard in guards] == [False, False, True, True]
    assert waits(writer)
    assert table.state("a").holder == Txn(1, 30)


def test_a_locks_timestamp_only_rises(table: LockStates) -> None:
    """A transaction that was moved without knowing it writes again at its earlier timestamp."""
    table.acquire_lock("a", T1)
    table.update_locks("a", Moved(T1, 30))
    assert table.update_locks("a", Moved(T1, 20)) == 0
    table.acquire_lock("a", T1._replace(timestamp=15))
    assert table.state("a").holder == Txn(1, 30)
    assert not scan(table, Txn(2, 29), reads="a")[0]


# --- Discovered locks ---------------------------------------------------------------------------


def test_a_discovered_lock_is_held_and_its_finder_waits(table: LockStates) -> None:
    """A reader among the readers, a writer in the queue."""
    _, reader = scan(table, T2, reads="a")
    assert table.add_discovered_lock(reader, Intent("a", T1))
    _, writer = scan(table, T3, writes="b")
    assert table.add_discovered_lock(writer, Intent("b", T1))
    assert [place.number for place in table.state("a").waiting_readers] == [reader.number]
    assert [place.number for place in table.state("b").queued_writers] == [writer.number]
    table.update_locks(Span("a", "c"), Committed(T1, 10))
    assert not waits(reader)
    assert not waits(writer)


# --- Spans --------------------------------------------------------------------------------------


def test_a_span_meets_the_locks_within_it(table: LockStates) -> None:
    """Its end is not in it."""
    for key in (1, 5, 9):
        table.acquire_lock(key, T1)
    assert not table.scan_and_enqueue(Request(reads=[Span(2, 5), Span(6, 9)]), T2)[0]
    _, guard = table.scan_and_enqueue(Request(writes=[Span(2, 9)]), T2)
    assert table.state(5).queued_writers == ((guard.number, T2, True),)
    assert guard.waits_at is not None


def test_a_request_waits_at_the_first_lock_only(table: LockStates) -> None:
    """It scans again after that, and finds the next."""
    for key, txn in zip("abc", (T1, T2, T3), strict=True):
        table.acquire_lock(key, txn)
    _, guard = table.scan_and_enqueue(Request(writes=[Span("a", "d")]), T4)
    for key, txn in zip("abc", (T1, T2, T3), strict=True):
        assert table.waits_for(guard) == (txn, key)
        table.update_locks(key, Aborted(txn))
        assert not waits(guard)
        assert rescan(table, guard) == (key != "c")
    assert all(state.reservation == (guard.number, T4, False) for state in table.states())


# --- Transactions that are finished -------------------------------------------------------------


def test_requests_of_a_transaction_that_is_finished_are_lost(table: LockStates) -> None:
    """Somebody who pushed it has aborted it while it waited."""
    table.acquire_lock("a", T1)
    table.acquire_lock("b", T2)
    _, guard = scan(table, T2, writes="a")
    table.update_locks("b", Aborted(T2))
    assert not waits(guard)
    assert guard.ending == "aborted"
    assert table.state("a").queued_writers == ()


def test_finished_transactions_are_forgotten_in_their_order() -> None:
    """So the table doesn't grow; but not those that still have locks in it."""
    table = LockStates(remembered=3)
    table.acquire_lock("a", T1)
    table.acquire_lock("b", T1)
    table.update_locks("a", Aborted(T1))
    for n in range(10, 30):
        table.update_locks("a", Committed(Txn(n, n), n))
        assert table.statistics().remembered <= 4
    with pytest.raises(Exception, match="was aborted already"):
        table.acquire_lock("c", T1)
    table.update_locks("b", Aborted(T1))
    for n in range(30, 50):
        table.update_locks("a", Committed(Txn(n, n), n))
    assert table.statistics().remembered == 3
    table.acquire_lock("c", T1)
