"""The larger examples as simulated clients: right as they are, and each bug that is planted into them is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import locks
from examples import worker_pool
from examples.kv_store import Store, Transaction
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
