"""One client with several transactions: nested ones, or `Lock`s beside one.

A client that waits with one of its transactions can't let go of what it has with the others. So that is
part of the wait-for graph, and deadlocks through it are found. In all orders of messages: `tests/model`.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import locks
from locks.testing import Simulation
from tests.api.clients import EXPLORE, Run, many
from tests.helpers import eventually

A, B, C = ("a",), ("b",), ("c",)


class Meeting:
    """Clients go on when all of them have come here, by looking again and again."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._number = number
        self._come = 0
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            self._come += 1
        eventually(lambda: self._come >= self._number)


@contextlib.contextmanager
def holding(kind: str, lock_id: tuple[Any, ...]) -> Iterator[Callable[..., Any]]:
    """Have a lock in one way or another; yields what takes another one in the same transaction."""
    if kind == "lock":
        with locks.Lock(lock_id):
            yield lambda other: locks.Lock(other).acquire()
    else:
        with locks.transaction() as tx:
            tx.lock(lock_id)
            yield tx.lock


def outcome(job: Callable[[], Any]) -> Any:
    """What a job returns; the report, if it is aborted."""
    try:
        return job()
    except locks.DeadlockAborted as error:
        return error.deadlock


@pytest.mark.every_kind
@pytest.mark.parametrize("inner", ["lock", "transaction"])
@pytest.mark.parametrize("outer", ["lock", "transaction"])
def test_deadlock_through_two_transactions_of_one_client(run: Run, outer: str, inner: str) -> None:
    """`Lock` within a transaction, and so on, in opposite order: one is aborted, at once."""
    meeting = Meeting(run, 2)

    def work(first: Any, second: Any) -> str:
        with holding(outer, first):
            meeting.wait()
            with holding(inner, second):
                return "done"

    one, two = run.client(), run.client()
    answers = [one.do(outcome, lambda: work(A, B)), two.do(outcome, lambda: work(B, A))]
    results = [answer.get() for answer in answers]
    assert results.count("done") == 1
    (report,) = (result for result in results if result != "done")
    assert report.action == "aborted"
    assert len(report.agents) == (2 if outer == inner == "lock" else 4)
    assert locks.statistics().deadlocks == 1


def test_the_outer_transaction_is_aborted(run: Run) -> None:
    """The wait of the inner one is over at once, with the report of the outer one, and withdrawn."""
    one, two = run.client(), run.client()
    two.begin()
    one.call(locks.Lock(C).acquire)  # its transaction is older than the next one
    one.begin(abort_on_deadlock=True)
    one.lock(A).get()
    two.lock(B).get()
    waits = one.do(lambda: locks.Lock(B).acquire())
    eventually(lambda: locks.queue(B).waiting)
    answer = two.lock(A)
    with pytest.raises(locks.DeadlockAborted, match=r"the wait of .* with .* was ended") as caught:
        waits.get()
    assert caught.value.deadlock.agent == one.agent.id
    assert answer.get().deadlocks == (caught.value.deadlock,)
    assert not locks.queue(B).waiting
    assert not one.agent.is_alive()
    assert one.call(locks.Lock(C).owned)
    two.end()
    assert one.call(locks.Lock(B).acquire)
    for lock_id in (B, C):
        one.call(locks.Lock(lock_id).release)


def test_the_outer_function_is_run_again(run: Run) -> None:
    """Nested `run_transaction`: the transaction whose lock others want is run again, not the inner one."""
    meeting = Meeting(run, 2)
    runs: list[str] = []

    def outer(first: Any, second: Any) -> None:
        def body(tx: locks.Transaction) -> None:
            runs.append(f"outer {first}")
            tx.lock(first)
            meeting.wait()
            locks.run_transaction(inner)

        def inner(tx: locks.Transaction) -> None:
            runs.append(f"inner {first}")
            tx.lock(second)

        locks.run_transaction(body)

    one, two = run.client(), run.client()
    for answer in [one.do(outer, A, B), two.do(outer, B, A)]:
        answer.get()
    assert sorted(runs.count(f"outer {i}") for i in (A, B)) == [1, 2]
    assert sorted(runs.count(f"inner {i}") for i in (A, B)) == [1, 2]
    assert locks.statistics().aborted == 1


def test_a_time_limit_after_a_surrender(simulation: Simulation) -> None:
    """`LockTimeout` says which locks were given up meanwhile, in words and as `lost`."""

    def younger() -> None:
        simulation.sleep(1)
        with locks.transaction(on_deadlock="surrender") as tx:
            tx.lock(C)
            tx.lock(A)
            simulation.sleep(1)
            with pytest.raises(
                locks.LockTimeout,
                match=r"held by .*\. Locks lost meanwhile, which must not be relied on: a$",
            ) as caught:
                tx.lock(B, timeout=10)
            assert caught.value.lost == (A,)
            with pytest.raises(locks.LockLost):
                tx.ensure_held()
            locks.original.await_all_locks(tx.agent)
            tx.ensure_held()
            with pytest.raises(
                locks.LockTimeout,
                match=r"^timed out after 10 s waiting for write d, held by [^.]*$",
            ) as caught:
                tx.lock(("d",), timeout=10)
            assert caught.value.lost == ()

    def older() -> None:
        with locks.transaction() as tx:
            tx.lock(B)
            tx.lock(("d",))
            simulation.sleep(10)
            tx.lock(A)
            simulation.sleep(100)
            tx.unlock(A)
            simulation.sleep(1000)

    simulation.client(younger)
    simulation.client(older)
    simulation.run()


@pytest.mark.every_kind
@pytest.mark.parametrize("number", [4, 8])
def test_clients_with_nested_transactions_at_random(run: Run, number: int) -> None:
    """Clients that take locks in nested transactions and by `Lock`s, in any order, all finish."""
    rounds = many(12, 200)
    holders: dict[tuple[Any, ...], int] = {}
    everything = [("lock", i) for i in range(5)]

    def take(chance: random.Random, wanted: list[Any], me: int, taken: int = 0) -> None:
        """Take a lock in one way or another, and within it the rest."""
        if taken < len(wanted):
            with holding(chance.choice(["lock", "transaction"]), wanted[taken]):
                run.pause()
                take(chance, wanted, me, taken + 1)
            return
        for lock_id in wanted:  # here nobody else has any of them
            assert holders.setdefault(lock_id, me) == me
        run.pause()
        for lock_id in wanted:
            assert holders.pop(lock_id) == me

    def work(me: int) -> int:
        chance = random.Random(me)
        aborts = 0
        for _ in range(rounds):
            wanted = chance.sample(everything, chance.randint(1, 3))
            while True:
                try:
                    take(chance, wanted, me)
                    break
                except locks.DeadlockAborted:
                    aborts += 1
        return aborts

    answers = [run.client().do(work, me) for me in range(number)]
    aborts = [answer.get(600.0 if EXPLORE else 60.0) for answer in answers]
    if run.in_hub and number > 4:  # in threads, or with few of them, it is a matter of luck
        assert sum(aborts) > 0
    eventually(lambda: locks.statistics().agents == 0)
