"""The lock table as an actor: waits of threads and greenlets, pushes, ends."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
import pykka
import pytest

from locks.errors import MisuseError
from locks.mvcc import (
    Aborted,
    Committed,
    Guard,
    InvalidKey,
    LockTable,
    Moved,
    Request,
    Span,
    TableStopped,
    TransactionFinished,
    Txn,
    TxnDeadlockAborted,
    TxnLockTimeout,
)
from locks.runtime import monitor as runtime
from tests.api.clients import PATCHED, AnswerWait, Client
from tests.helpers import eventually
from tests.mvcc.conftest import Crew
from tests.mvcc.invariants import check_invariants

T1, T2, T3 = Txn(1, 10), Txn(2, 20), Txn(3, 30)
NOT_PATCHED = pytest.mark.skipif(PATCHED, reason="in a patched program threads are greenlets")
BOTH_WAYS = pytest.mark.parametrize("deadlocks", ["graph", "push", "both"])


def waiting(table: LockTable, txn: Txn, key: Any, *, reads: bool = False) -> Guard:
    """Let a transaction stand in line at a key."""
    request = Request(reads=[key]) if reads else Request(writes=[key])
    must_wait, guard = table.scan_and_enqueue(request, txn)
    assert must_wait
    return guard


def asleep(
    client: Client, table: LockTable, guard: Guard, timeout: float | None = None
) -> AnswerWait:
    """Let a client wait for a guard, and wait until it sleeps."""
    answer = client.do(table.wait_for, guard, timeout)
    eventually(lambda: guard in table._waiters)
    return answer


def one_asleep(crew: Crew) -> tuple[LockTable, Guard, AnswerWait]:
    """A table where T1 holds "a", and a client of T2's sleeps until it may write it."""
    table = LockTable()
    table.acquire_lock("a", T1)
    guard = waiting(table, T2, "a")
    return table, guard, asleep(crew.client(), table, guard)


# --- Waits --------------------------------------------------------------------------------------


def test_a_wait_is_over_when_the_guard_is_released(crew: Crew) -> None:
    """For the readers and the first writer; the second writer sleeps on."""
    table = LockTable()
    table.acquire_lock("a", T1)
    guards = [waiting(table, Txn(n, 10 * n), "a", reads=n < 4) for n in (2, 3, 4, 5)]
    answers = [asleep(crew.client(), table, guard) for guard in guards]
    assert table.update_locks("a", Committed(T1, 15)) == 1
    for answer in answers[:3]:
        answer.get()
    assert not answers[3].ready
    table.dequeue(guards[2])
    answers[3].get()
    assert not table._waiters


def test_a_timeout_leaves_the_place_as_it_is(crew: Crew) -> None:
    """Whoever has waited long enough may wait on."""
    table = LockTable()
    table.acquire_lock("a", T1)
    guard, client = waiting(table, T2, "a"), crew.client()
    for timeout in (0, 0.01):
        with pytest.raises(
            TxnLockTimeout, match=r"transaction 2 has waited .* s for 'a'"
        ) as caught:
            client.call(table.wait_for, guard, timeout)
        assert (caught.value.key, caught.value.holder) == ("a", T1)
    answer = asleep(client, table, guard)
    table.update_locks("a", Aborted(T1))
    answer.get()


def test_a_transaction_that_is_finished_ends_its_wait(crew: Crew) -> None:
    """Somebody has pushed it."""
    table, _, answer = one_asleep(crew)
    table.update_locks("b", Aborted(T2))
    with pytest.raises(TransactionFinished) as caught:
        answer.get()
    assert (caught.value.txn, caught.value.outcome) == (T2, "aborted")


@NOT_PATCHED
def test_a_killed_wait_leaves_nothing_behind_but_what_dequeue_takes() -> None:
    """A greenlet that is killed, or that a `gevent.Timeout` hits, dequeues its guard."""
    table = LockTable()
    table.acquire_lock("a", T1)

    def write(guard: Guard) -> None:
        try:
            table.wait_for(guard)
        finally:
            table.dequeue(guard)

    def body() -> None:
        killed = gevent.spawn(write, waiting(table, T2, "a"))
        eventually(lambda: len(table._waiters) == 1)
        killed.kill()
        with pytest.raises(gevent.Timeout), gevent.Timeout(0.001):
            write(waiting(table, T3, "a"))
        gevent.get_hub().destroy(destroy_loop=True)

    errors = in_thread(body)
    assert not errors
    assert not table._waiters
    assert table.statistics().guards == 0
    assert table.state("a").queued_writers == ()


def in_thread(body: Callable[[], None]) -> list[BaseException]:
    """Run something in a fresh thread, and return what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    return errors


def asleep_are(table: LockTable, number: int) -> bool:
    """Whether so many wait."""
    return len(table._waiters) == number


@NOT_PATCHED
def test_threads_and_greenlets_share_a_table() -> None:
    """A greenlet waits for a thread, another thread for the greenlet."""
    table = LockTable()
    table.acquire_lock("a", T1)
    order = []

    def write(txn: Txn) -> None:
        request = Request(writes=["a"])
        must_wait, guard = table.scan_and_enqueue(request, txn)
        while must_wait:
            table.wait_for(guard, 10)
            must_wait, _ = table.scan_and_enqueue(request, txn, guard)
        table.acquire_lock("a", txn)
        table.dequeue(guard)
        order.append(txn)
        table.update_locks("a", Committed(txn, txn.timestamp))

    def greenlets() -> None:
        gevent.joinall([gevent.spawn(write, T2)], raise_error=True)
        gevent.get_hub().destroy(destroy_loop=True)

    threads = []
    for number, target in ((1, greenlets), (2, lambda: write(T3))):
        threads.append(threading.Thread(target=target))
        threads[-1].start()
        eventually(partial(asleep_are, table, number))
    table.update_locks("a", Aborted(T1))
    for thread in threads:
        thread.join(10)
    assert order == [T2, T3]
    assert table.states() == ()


# --- Deadlocks ----------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_ring_has_exactly_one_victim(crew: Crew, size: int, deadlocks: Any) -> None:
    """And all others get what they wait for, once it has aborted."""
    table = LockTable(deadlocks=deadlocks, push_after=0.01)
    txns = [Txn(n, n) for n in range(size)]
    for txn in txns:
        table.acquire_lock(txn.id, txn)
    lost = []

    def go(txn: Txn) -> None:
        request = Request(writes=[(int(str(txn.id)) + 1) % size])
        must_wait, guard = table.scan_and_enqueue(request, txn)
        try:
            while must_wait:
                table.wait_for(guard, 10)
                must_wait, _ = table.scan_and_enqueue(request, txn, guard)
            outcome: Committed | Aborted = Committed(txn, txn.timestamp)
        except TxnDeadlockAborted as error:
            lost.append(error.deadlock)
            outcome = Aborted(txn)
        finally:
            table.dequeue(guard)
        for key in table.locks(txn):
            table.update_locks(key, outcome)

    for answer in [crew.client().do(go, txn) for txn in txns]:
        answer.get()
    (report,) = lost
    assert report.victim == txns[-1]
    assert len(report.cycle) == size
    statistics = table.statistics()
    assert (statistics.keys, statistics.guards, statistics.deadlocks) == (0, 0, 1)
    assert statistics.pushes >= (deadlocks == "push")
    assert deadlocks != "graph" or not statistics.pushes


# --- Pushes -------------------------------------------------------------------------------------


class Pushes:
    """A push function that gives its answers one after the other, and notes what it is asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Txn, Txn, Any]] = []

    def __call__(self, pusher: Txn, holder: Txn, key: Any) -> Any:
        self.asked.append((pusher, holder, key))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_push_says_what_has_become_of_the_holder(crew: Crew) -> None:
    """It is asked again as long as it doesn't know; then the lock is released."""
    push = Pushes(None, None, Committed(T1, 12))
    table = LockTable(deadlocks="push", push_after=0.005, push=push)
    table.acquire_lock("a", T1)
    crew.client().call(table.wait_for, waiting(table, T2, "a"), 10)
    assert push.asked == [(T2, T1, "a")] * 3
    state = table.state("a")
    assert state.holder is None
    assert state.last_committed_timestamp == 12
    assert table.statistics().pushes == 3


@pytest.mark.parametrize("late", [Moved(T1, 50), Aborted(T1)])
def test_a_push_that_answers_too_late_is_ignored(crew: Crew, late: Any) -> None:
    """The holder was committed while the push was under way: the pusher goes on."""

    def push(pusher: Txn, holder: Txn, key: Any) -> Any:
        table.update_locks("a", Committed(T1, 12))
        return late

    table = LockTable(deadlocks="push", push_after=0.005, push=push)
    table.acquire_lock("a", T1)
    crew.client().call(table.wait_for, waiting(table, T2, "a"), 10)
    reservation = table.state("a").reservation
    assert reservation is not None
    assert reservation.txn == T2


# --- Many at once -------------------------------------------------------------------------------


@pytest.mark.parametrize("deadlocks", ["graph", "push"])
def test_no_update_is_lost(crew: Crew, deadlocks: Any) -> None:
    """Clients transfer between accounts in any order, with intents, deadlocks and retries."""
    table = LockTable(deadlocks=deadlocks, push_after=0.005)
    store = Store(table)
    clients = [crew.client() for _ in range(6)]

    def work(number: int) -> None:
        for turn in range(40):
            pair = [(number * 7 + turn * step) % 5 for step in (1, 3)]
            while not store.transfer(pair[0], pair[1], crew.pause):
                pass

    for answer in [client.do(work, n) for n, client in enumerate(clients)]:
        answer.get(30)
    assert sum(store.values.values()) == 500
    assert store.transfers == 6 * 40
    statistics = table.statistics()
    assert (statistics.keys, statistics.guards, statistics.transactions) == (0, 0, 0)
    assert statistics.deadlocks == store.aborts
    check_invariants(table._states)


class Store:
    """Five accounts, and the least that a store does with a lock table."""

    def __init__(self, table: LockTable) -> None:
        self.table = table
        self.values = dict.fromkeys(range(5), 100)
        self.latch = threading.Lock()  # one for all keys; held without blocking inside
        self.ids = itertools.count(1)
        self.transfers = 0
        self.aborts = 0

    def transfer(self, source: int, target: int, pause: Callable[[], None]) -> bool:
        number = next(self.ids)
        txn = Txn(number, number)
        intents: dict[int, int] = {}
        try:
            for key, amount in ((source, -1), (target, 1)):
                intents[key] = self.write(txn, key, intents.get(key), amount)
                pause()
        except TxnDeadlockAborted:
            self.aborts += 1
            for key in self.table.locks(txn):
                self.table.update_locks(key, Aborted(txn))
            return False
        with self.latch:
            self.values.update(intents)
            self.transfers += 1
        self.table.update_locks(Span(0, 5), Committed(txn, number))
        return True

    def write(self, txn: Txn, key: int, intent: int | None, amount: int) -> int:
        request = Request(writes=[key])
        guard = None
        try:
            while True:
                with self.latch:
                    must_wait, guard = self.table.scan_and_enqueue(request, txn, guard)
                    if not must_wait:
                        self.table.acquire_lock(key, txn)
                        value = self.values[key] if intent is None else intent
                        return value + amount
                self.table.wait_for(guard, 20)
        finally:
            if guard is not None:
                self.table.dequeue(guard)


# --- As an actor --------------------------------------------------------------------------------


def test_operations_can_be_sent_as_messages() -> None:
    """Asked for an answer, or told; what fails is raised where somebody waits for it."""
    table = LockTable()
    table.tell(("acquire_lock", "a", T1))
    assert table.ask(("locks", T1)) == ("a",)
    answer: Any = table.ask(("scan_and_enqueue", Request(writes=["a"]), T2))
    must_wait, guard = answer
    assert must_wait
    table.tell(("update_locks", "a", Aborted(T1)))
    table.wait_for(guard, 0)
    messages: list[Any] = [("wait_for", guard), ("_finish",), "locks", (), None, ([],)]
    messages += [
        ("acquire_lock", "a"),
        ("acquire_lock", "a", T1, "intent", 3),
        ("statistics", 1),
        ("dequeue",),
    ]
    for message in messages:
        with pytest.raises(
            MisuseError,
            match=r"lock-table-\w+( has no operation|: )|is not a message for lock-table",
        ):
            table.ask(message)
    wrong: list[Any] = [("acquire_lock", "a", "x"), ("locks", None), ("states", 1), ("dequeue", 1)]
    for message in wrong:
        before = table.states()
        with pytest.raises(MisuseError):
            table.ask(message)
        assert table.states() == before


class _Failing:
    """A key whose methods fail."""

    __hash__ = object.__hash__

    def __lt__(self, other: object) -> bool:
        raise OSError("no order today")

    __gt__ = __lt__


def test_a_key_that_fails_is_refused() -> None:
    """Whatever its methods raise: the table is as it was."""
    table = LockTable()
    table.acquire_lock("a", T1)
    before = table.states()
    with pytest.raises(InvalidKey, match="no order today"):
        table.acquire_lock(_Failing(), T2)
    assert table.states() == before


def test_a_table_that_is_stopped_lets_nobody_wait(crew: Crew) -> None:
    """Whoever waits is told, and so is whoever comes later; monitors are, too."""
    table = LockTable()
    downs: list[runtime.Down] = []
    runtime.monitor(table, downs.append)
    table.acquire_lock("a", T1)
    guard = waiting(table, T2, "a")
    answer = asleep(crew.client(), table, guard)
    table.stop()
    with pytest.raises(TableStopped):
        answer.get()
    with pytest.raises(TableStopped):
        table.dequeue(guard)
    with pytest.raises(pykka.ActorDeadError):
        table.ask(("states",))
    eventually(lambda: downs)
    assert not table.is_alive()
