"""The larger examples as simulated clients: right as they are, and each bug that is planted into them is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import locks
from examples import worker_pool
from examples.gdict import Copy, GDict
from examples.kv_store import Store, Transaction
from locks.testing import Simulation, Violation, simulate
from locks_leader import ElectionState, OnlyNew

# --- The store: its own lock table, mutexes of `threading`, latches, pauses ---------------------------


def counting(simulation: Simulation) -> None:
    """Three clients of the example store add to two keys, each to the sum of what it has read."""
    random.seed(simulation.seed)  # the pauses of `Store.run`
    with Store() as opened:
        opened.run(lambda tx: [tx.put(key, "0") for key in "ab"])

        def add(tx: Transaction) -> None:
            for key in "ab":
                tx.put(key, str(int(tx.get(key) or 0) + 1))

        for _ in range(3):
            simulation.client(opened.run, add)
        simulation.run()
        assert opened.run(lambda tx: tx.scan()) == [("a", "3"), ("b", "3")]


def test_store() -> None:
    """No addition is lost, under any of these schedules."""
    simulate(counting, 40, patch=True)


def test_store_that_does_not_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that moves up without looking whether what it has read has changed loses additions."""
    monkeypatch.setattr(Store, "changed", lambda *_: False)
    with pytest.raises(AssertionError):
        simulate(counting, 40, patch=True, shrink=False)


# --- The worker pool --------------------------------------------------------------------------------


def pool(work: Callable[..., Any]) -> Callable[[Simulation], None]:
    """Workers that do the jobs; what is done is shared."""

    def scenario(simulation: Simulation) -> None:
        done = simulation.shared({}, "done")

        def client(name: str) -> None:
            work(worker_pool.Worker(name, simulation.sleep), done)

        for name in ("one", "two"):
            simulation.client(client, name)
        simulation.run()

    return scenario


def careful(worker: worker_pool.Worker, done: dict[str, str]) -> None:
    """Looks under the lock, and writes under it."""
    for job in worker_pool.JOBS:
        if worker.take(job):
            if job not in done:
                done[job] = worker.name
            locks.original.end_transaction(worker.agent)


def hasty(worker: worker_pool.Worker, done: dict[str, str]) -> None:
    """Gives the lock back before it writes; nothing is called in between, so no schedule shows it."""
    for job in worker_pool.JOBS:
        if worker.take(job):
            is_new = job not in done
            locks.original.end_transaction(worker.agent)
            if is_new:
                done[job] = worker.name


def test_pool() -> None:
    """Workers that look and write under the lock of the job need no other one."""
    simulate(pool(careful), 20)


def test_pool_that_writes_after_the_lock() -> None:
    """A job that is put down as done when its lock is free is found with the first seeds."""
    with pytest.raises(Violation, match=r"done\['job-\d'\] is .* with no lock"):
        simulate(pool(hasty), 3)


# --- The dictionary: an election with state -----------------------------------------------------------


def dictionary(simulation: Simulation) -> None:
    """Three join one that has written something, which dies as soon as one of them has it. All of them have it then."""

    def found() -> None:
        GDict().store("motto", "all for one")
        simulation.sleep(100)

    def join() -> None:
        simulation.sleep(1)
        mine = GDict()
        if mine.is_key("motto") and not founder.killed:
            simulation.kill(founder)
        simulation.sleep(10)
        assert mine.find("motto") == "all for one"

    founder = simulation.client(found)
    for name in ("ann", "bob", "cleo"):
        simulation.client(join, name=name)
    simulation.run()


def forgetful(self: Copy, message: Any, election: ElectionState) -> None:
    """Doesn't take what the leader hands over; what it writes later comes all the same."""


def hasty_leader(self: Copy, election: ElectionState, newcomer: Any) -> Any:
    """Asks newcomers what they have, but not the others when it is elected: it may not have been handed anything itself."""
    if newcomer is not None:
        for _, (content, seen) in election.ask_candidates(("copy",), of=[newcomer]).replies:
            self.merge(content, seen)
    self.leader = (election.leader_node or "", election.term)
    return OnlyNew(("copy", dict(self.content), dict(self.seen), self.leader))


def test_dictionary() -> None:
    """What one copy has, no other one loses, under any of these schedules."""
    simulate(dictionary, 40, expect=("death", "election"))


def test_dictionary_that_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that ignores what it is handed is found with the first seeds."""
    monkeypatch.setattr(Copy, "surrendered", forgetful)
    with pytest.raises(AssertionError):
        simulate(dictionary, 3, shrink=False)


@pytest.mark.explore
def test_dictionary_under_many_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dictionary passes 1,000; a leader that asks nobody is elected only if it has overtaken one that was told, which one of them shows."""
    simulate(dictionary, 1000)
    monkeypatch.setattr(Copy, "elected", hasty_leader)
    with pytest.raises(AssertionError):
        simulate(dictionary, 1000, shrink=False)
