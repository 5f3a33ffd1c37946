"""The larger examples as simulated clients: right as they are, and each bug that is planted into them is found."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import locks
from examples import ingest, worker_pool
from examples.kv_store import Store, Transaction
from locks.ownership import Ownership
from locks.testing import Simulation, Violation, simulate

# --- The store: its own lock table, mutexes of `threading`, latches, pauses ---------------------------


def counting(simulation: Simulation) -> None:
    """Three clients add to two keys, each to the sum of what it has read."""
    random.seed(simulation.seed)  # the pauses of `Store.run`
    with Store() as store:
        store.run(lambda tx: [tx.put(key, "0") for key in "ab"])

        def add(tx: Transaction) -> None:
            for key in "ab":
                tx.put(key, str(int(tx.get(key) or 0) + 1))

        for _ in range(3):
            simulation.client(store.run, add)
        simulation.run()
        assert store.run(lambda tx: tx.scan()) == [("a", "3"), ("b", "3")]


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
            locks.end_transaction(worker.agent)


def hasty(worker: worker_pool.Worker, done: dict[str, str]) -> None:
    """Gives the lock back before it writes; nothing is called in between, so no schedule shows it."""
    for job in worker_pool.JOBS:
        if worker.take(job):
            is_new = job not in done
            locks.end_transaction(worker.agent)
            if is_new:
                done[job] = worker.name


def test_pool() -> None:
    """Workers that look and write under the lock of the job need no other one."""
    simulate(pool(careful), 20)


def test_pool_that_writes_after_the_lock() -> None:
    """A job that is put down as done when its lock is free is found with the first seeds."""
    with pytest.raises(Violation, match=r"done\['job-\d'\] is .* with no lock"):
        simulate(pool(hasty), 3)


# --- The processes that ingest tasks: an ownership, and a table --------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tasks, each of which takes longer than it takes to hand its group over."""
    for name, value in (("TASKS", 20), ("FIRST_TASKS", 20), ("GROUPS", 4), ("PAUSE", 0.05)):
        monkeypatch.setattr(ingest, name, value)


def ingesting(
    work: Callable[..., Any] = ingest.work, deaths: int = 0
) -> Callable[[Simulation], None]:
    """Three workers that come one after the other; who applies a task has been at its account for `PAUSE` seconds."""

    def scenario(simulation: Simulation) -> None:
        database = ingest.connect(":memory:")
        ingest.fill(database)

        def worker(number: int) -> Any:
            time.sleep(0.12 * number)
            return work(f"worker-{number}", database, Ownership("ingest", ingest.GROUPS))

        last: dict[str, tuple[str, float]] = {}

        def seen(_: object, name: str, number: int, account: str, *rest: Any) -> str:
            before, at = last.get(account, (name, 0.0))
            assert name == before or simulation.time - at >= ingest.PAUSE, "two at one account"
            last[account] = name, simulation.time
            return apply(database, name, number, account, *rest)

        for number in range(3):
            simulation.client(worker, number)
        apply = ingest.apply
        with mock.patch.object(ingest, "apply", seen):
            simulation.run(deaths=deaths)
        assert ingest.count_done(database) == ingest.TASKS
        sums = "SELECT account, sum(amount) FROM tasks GROUP BY account"
        applied = "SELECT name, balance FROM accounts WHERE balance"
        assert sorted(database.execute(sums)) == sorted(database.execute(applied))
        database.close()

    return scenario


def hasty_ingest(name: str, database: sqlite3.Connection, mine: Ownership) -> dict[str, int]:
    """Looks whether it owns the account, and does not hold it while it works."""
    outcomes: Counter[str] = Counter()
    with mine:
        while mine.joined and ingest.count_done(database) < ingest.TASKS:
            for group, token in mine.owned().items():
                for number, account, amount in ingest.to_do(database, group):
                    if not mine.owns(account):
                        break
                    time.sleep(ingest.PAUSE)
                    outcome = ingest.apply(database, name, number, account, amount, token)
                    outcomes[outcome] += 1
            time.sleep(0.001)
    return dict(outcomes)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("deaths", [0, 2])
def test_ingest(deaths: int) -> None:
    """The program as it is: never two workers at one account, and each task is applied once, whoever comes or dies."""
    simulate(ingesting(deaths=deaths), 40, patch=True)


@pytest.mark.explore
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_ingest_under_many_schedules(deaths: int) -> None:
    """The same, for longer."""
    simulate(ingesting(deaths=deaths), 1000, patch=True)


@pytest.mark.usefixtures("small")
def test_ingest_that_does_not_hold() -> None:
    """A worker that looks and does not hold is found with the first seeds."""
    with pytest.raises(AssertionError, match="two at one account"):
        simulate(ingesting(hasty_ingest), 100, patch=True, shrink=False)
