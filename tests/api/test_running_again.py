"""`run_transaction` runs again after aborts: what a run takes first, and when it gives up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args

import pytest

import locks
from locks import aio
from locks.model import SERIAL_BITS, Deadlock, Mode, RequestRecord
from locks.ranges import replace
from locks.retries import Learned, Retries
from locks.testing import Simulation
from tests.api.clients import Client, Run
from tests.api.running_again import Kind, in_one_order, wishes
from tests.api.running_again import run as run_crowd
from tests.helpers import eventually

A, B, C, D = ("a",), ("b",), ("c",), ("d",)
HERE = ("n@h",)


# --- Crowds, in virtual time ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("clients", [2, 7, 25])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.explore)])
def test_each_of_a_crowd_is_run_a_few_times(kind: Kind, clients: int, seed: int) -> None:
    """The function is run once, and then at most once for each of its locks but the first, whatever the crowd."""
    wanted = wishes(kind, clients, seed)
    found = run_crowd(wanted, seed)
    for runs, locked in zip(found.runs, wanted, strict=True):
        assert 1 <= runs <= len(locked), (runs, locked)


@pytest.mark.parametrize("seed", [3])
def test_it_takes_twice_as_long_as_in_one_order_at_most(seed: int) -> None:
    """In opposite order a crowd needs at most twice the virtual time, and is aborted about once each; before, this grew with the crowd."""
    wanted = wishes("opposite order", 24, seed)
    ordered = run_crowd([in_one_order(each) for each in wanted], seed)
    learned = run_crowd(wanted, seed)
    assert learned.time <= 2 * ordered.time
    assert learned.aborts <= 24
    forgetful = run_crowd(wanted, seed, learn=False)
    assert sum(forgetful.runs) > 3 * sum(learned.runs)


# --- What is learned --------------------------------------------------------------------------------


class Rival:
    """An older transaction that holds A; `meet` has the younger one aborted that holds B and waits for A."""

    def __init__(self, run: Run) -> None:
        self.client: Client = run.client()
        self.tx = locks.transaction()
        self.client.call(self.tx.__enter__)
        self.client.call(self.tx.lock, A)

    def meet(self) -> None:
        eventually(lambda: locks.queue(A).waiting)
        self.client.call(self.tx.lock, B)

    def leave(self) -> None:
        self.client.call(self.tx.__exit__, None, None, None)


def run_twice(run: Run, before: Callable[[Any], object], **options: Any) -> list[Any]:
    """The learned locks of the two runs of a function that does something, locks B, and is aborted when it wants A."""
    rival = Rival(run)
    learned: list[Any] = []

    def work(tx: locks.Transaction) -> None:
        learned.append(tx.learned)
        before(tx)
        tx.lock(B)
        tx.lock(A)

    answer = run.client().do(locks.run_transaction, work, **options)
    rival.meet()
    rival.leave()
    answer.get()
    return learned


def test_the_second_run_takes_first_what_the_first_one_asked_for(run: Run) -> None:
    """Also what it was aborted for; `learned` says so. The function's own requests are answered at once, with their tokens."""
    assert run_twice(run, lambda tx: tx.lock(D, "read")) == [(), (A, B, D)]


def test_what_timed_out_is_not_learned(run: Run) -> None:
    """Nobody waits for it when the run is aborted: the function tries it again itself, as it likes."""
    other = run.client()
    holds = locks.transaction()
    other.call(holds.__enter__)
    other.call(holds.lock, C)

    def attempt(tx: locks.Transaction) -> None:
        with pytest.raises(locks.LockTimeout):
            tx.lock(C, timeout=0)

    assert run_twice(run, attempt) == [(), (A, B)]
    other.call(holds.__exit__, None, None, None)


def test_a_read_that_became_a_write_is_taken_as_a_write(run: Run) -> None:
    """There is nothing left to upgrade in the second run, so no circle of readers."""
    modes: list[Mode] = []

    def upgrade(tx: locks.Transaction) -> None:
        modes.extend(each.mode for each in locks.holders(C))
        tx.read_lock(C)
        tx.write_lock(C)

    run_twice(run, upgrade)
    assert modes == ["write"]


def test_a_lock_in_another_place_is_taken_there(run: Run) -> None:
    """With its `nodes` and `require`. If the function asks for it on other terms, it is as if it had not been taken."""
    terms: list[Any] = [{"nodes": locks.HERE, "require": "any"}, {"require": "all"}]
    found: list[Any] = []

    def somewhere(tx: locks.Transaction) -> None:
        found.append(
            [(each.lock_id, each.require) for each in tx.agent.lock_info() if each.lock_id == C]
        )
        tx.lock(C, **terms.pop(0))

    run_twice(run, somewhere)
    assert found == [[], [(C, "any")]]
    assert not terms


# --- When it can't be had ---------------------------------------------------------------------------


def test_a_timeout_of_what_is_taken_first_is_that_of_the_function_s_own_request() -> None:
    """It is raised there, at once, so that the function can handle it. The time limit holds for both together."""
    simulation = Simulation(1)
    seen: list[Any] = []

    def older() -> None:
        with locks.transaction() as tx:
            tx.lock(A)
            simulation.sleep(2)
            tx.lock(B)
            tx.unlock(B)
            simulation.sleep(100)

    def younger() -> None:
        def work(tx: locks.Transaction) -> None:
            began = simulation.time
            tx.lock(B)
            try:
                tx.lock(A)
            except locks.LockTimeout as late:
                seen.append((tx.learned, late.lock_ids, simulation.time - began < 1))
            with pytest.raises(locks.LockTimeout):
                tx.lock(A, timeout=5)  # it is told once

        simulation.sleep(1)
        locks.run_transaction(work, timeout=20)
        seen.append(20 < simulation.time < 40)

    simulation.client(older)
    simulation.client(younger)
    simulation.run()
    assert seen == [((), (A,), True), True]


# --- How often --------------------------------------------------------------------------------------


def record(number: int, created: int, lock_id: Any = A) -> RequestRecord:
    """A request that waits."""
    agent = locks.values.AgentId(created << SERIAL_BITS | number, "n@h", number)
    return RequestRecord("n@h", number, agent, "c", lock_id, "write", "waiting", 1, 1, True, 1)


FAILED: Any = SimpleNamespace(agent=SimpleNamespace(id=record(9, 9).agent))


def aborted_for(rival: RequestRecord) -> locks.DeadlockAborted:
    """The error of a transaction that had to give way."""
    mine = record(9, 9, B)
    cycle = (locks.values.Edge(rival, mine), locks.values.Edge(mine, rival))
    report = Deadlock(mine.agent, A, "n@h", "aborted", cycle, "for a test")
    return locks.DeadlockAborted("aborted for a test", deadlock=report)


def test_who_gives_way_to_others_does_not_give_up() -> None:
    """Five hundred others, each in three ways, cost it none of its one retry: they are served, and there are only so many."""
    again = Retries(1, ())
    for created in range(500):
        for lock_id in (A, B, C):
            assert again.pause_after(aborted_for(record(1, created, lock_id)), FAILED) == 0.0


def test_who_gives_way_to_the_same_one_for_nothing_gives_up() -> None:
    """A rival that is run again itself, for the same lock, gets nowhere: that counts, and the error says so."""
    again = Retries(3, ())
    for number in range(1, 5):
        assert again.pause_after(aborted_for(record(number, 7)), FAILED) == 0.0
    with pytest.raises(
        locks.DeadlockAborted, match="gave up after 5 runs: the last 3 retries"
    ) as info:
        again.pause_after(aborted_for(record(5, 7)), FAILED)
    assert info.value.deadlock.action == "aborted"


def test_a_livelock_ends() -> None:
    """A function whose runs are all aborted for one and the same rival, which gets nowhere, is not run for ever."""
    runs = []

    def work(tx: locks.Transaction) -> None:
        runs.append(tx)
        error = aborted_for(record(len(runs), 1))
        report = replace(error.deadlock, agent=tx.agent.id)
        report = replace(report, cycle=(report.cycle[0],))
        raise locks.DeadlockAborted(str(error), deadlock=report)

    with pytest.raises(locks.DeadlockAborted, match="gave up after 12 runs"):
        locks.run_transaction(work, retries=10)
    assert len(runs) == 12


# --- The order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_order_is_the_same_for_all(seed: int, run: Run) -> None:
    """Whatever was asked for first, and of whatever types the elements are; a table comes before its rows."""
    ids: list[Any] = [
        ("t",),
        ("t", 1),
        ("t", "1"),
        ("t", b"1"),
        ("t", 1.5),
        ("t", None),
        ("t", (1, "x")),
        (True,),
    ]
    random.Random(seed).shuffle(ids)
    learned = Learned()

    def work() -> tuple[Any, ...]:
        with locks.transaction() as tx:
            here = (tx.agent.node.name,)
            learned.add([(each, "write", here, "all") for each in ids], None)
            return learned.take_locks(tx.agent)

    taken = run.client().call(work)
    assert taken == (
        *(
            (True,),
            ("t",),
            ("t", 1),
            ("t", 1.5),
            ("t", "1"),
            ("t", b"1"),
            ("t", (1, "x")),
            ("t", None),
        ),
    )


def test_an_attempt_that_fails_keeps_its_place_for_one_lock() -> None:
    """While it waits for the lock that is not free, the others are free, and nobody overtakes it."""
    simulation = Simulation(1, nodes=3)
    seen: list[Any] = []

    def holder() -> None:
        with locks.transaction() as tx:
            tx.lock(B)
            simulation.sleep(5)

    def client() -> None:
        simulation.sleep(1)
        with locks.transaction() as tx:
            tx.lock(C)
            wanted = [(each, *tx.agent.lock_info()[0][1:4]) for each in (A, B, C)]
            assert not tx.agent.lock_free(wanted, None)
            seen.append(("client", [each.lock_id for each in tx.agent.lock_info()]))

    def other() -> None:
        simulation.sleep(2)
        with locks.transaction() as tx:
            tx.lock_all(write=[A, C], timeout=0)
            tx.lock(B)
            seen.append("other")

    for each in (holder, client, other):
        simulation.client(each)
    simulation.run()
    assert seen == [("client", [B]), "other"]


# --- asyncio ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("learn", [True, False])
def test_tasks_learn(seed: int, learn: bool) -> None:
    """`aio.run_transaction` does the same."""
    simulation = Simulation(seed, strategy="pct")
    runs: dict[int, list[Any]] = {number: [] for number in range(10)}

    async def client(number: int) -> None:
        async def work(tx: aio.Transaction) -> None:
            runs[number].append(tx.learned)
            for lock_id in ((A, B), (B, A))[number % 2]:
                await tx.lock(lock_id)
                await asyncio.sleep(0.01)

        await aio.run_transaction(work, learn=learn)

    for number in runs:
        simulation.client(client, number)
    simulation.run()
    assert all(each[0] == () for each in runs.values())
    again = [learned for each in runs.values() for learned in each[1:]]
    assert again
    assert set(again) == {(A, B) if learn else ()}
