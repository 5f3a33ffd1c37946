"""Realistic programs with a planted bug each: found within 100 seeds, made again by the schedule, made short to the same violation."""

from __future__ import annotations

import collections
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import locks
from locks.testing import Simulation, Violation, simulate
from tests.helpers import EXPLORE, ROOT
from tests.warm import run_program

SEEDS, FEW = 100, 20
Scenario = Callable[[Simulation], None]


def bank(simulation: Simulation) -> None:
    """The balance is read before the second lock, and the first one may be surrendered meanwhile."""
    balances = {"ann": 100, "bob": 100}

    def transfer(source: str, target: str) -> None:
        with locks.transaction(on_deadlock="surrender") as tx:
            tx.write_lock(("account", source))
            left = balances[source] - 10
            tx.write_lock(("account", target))
            balances[source] = left
            balances[target] += 10

    simulation.client(transfer, "ann", "bob")
    simulation.client(transfer, "bob", "ann")
    simulation.run()
    assert sum(balances.values()) == 200


def cache(simulation: Simulation) -> None:
    """A miss fills the cache after it has released the lock, with what a writer has replaced since."""
    stored, cached = {"x": 0}, {}
    lock = locks.Lock(("x",))

    def read() -> None:
        if "x" not in cached:
            with lock:
                found = stored["x"]
            simulation.sleep()
            cached["x"] = found

    def write() -> None:
        with lock:
            stored["x"] = 1
            cached.pop("x", None)

    simulation.client(read)
    simulation.client(write)
    simulation.client(read)
    simulation.run()
    assert cached.get("x", stored["x"]) == stored["x"]


def job_queue(simulation: Simulation) -> None:
    """A worker looks for a job without a mark under the lock, and marks it after it has let go."""
    marks: dict[int, str] = {}
    done: collections.Counter[int] = collections.Counter()

    def work(name: str) -> None:
        for job in range(2):
            with locks.Lock(("jobs",)):
                is_free = job not in marks
            simulation.sleep()
            if is_free:
                marks[job] = name
                done[job] += 1

    for name in ("first", "second", "third"):
        simulation.client(work, name, name=name)
    simulation.run()
    assert max(done.values()) == 1


def upgrade(simulation: Simulation) -> None:
    """A read lock is released, and a write lock taken, as an upgrade: others may write in between."""
    counter = [0]

    def add() -> None:
        with locks.Lock(("counter",), "read"):
            seen = counter[0]
        with locks.Lock(("counter",)):
            counter[0] = seen + 1

    for _ in range(2):
        simulation.client(add)
    simulation.run()
    assert counter == [2]


def error_path(simulation: Simulation) -> None:
    """A release is left out where the stock is too small."""
    stock = [1]

    def order() -> None:
        lock = locks.Lock(("stock",))
        lock.acquire()
        if not stock[0]:
            return
        stock[0] -= 1
        lock.release()

    for _ in range(2):
        simulation.client(order)
    simulation.run()


def time_limit(simulation: Simulation) -> None:
    """`acquire` says that it has timed out, and nobody looks."""
    inside: list[int] = []

    def work(number: int) -> None:
        lock = locks.Lock(("printer",))
        got = lock.acquire(timeout=1)
        inside.append(number)
        simulation.sleep(2)
        assert inside == [number]
        inside.remove(number)
        if got:
            lock.release()

    for number in range(3):
        simulation.client(work, number)
    simulation.run()


def two_locks_of_threading(simulation: Simulation) -> None:
    """A lock of `locks` and one of `threading`, in two orders: nobody gives way."""
    import threading

    log, account = threading.Lock(), locks.Lock(("account",))

    def pay() -> None:
        with account, log:
            pass

    def audit() -> None:
        with log, account:
            pass

    simulation.client(pay)
    simulation.client(audit)
    simulation.client(pay)
    simulation.run()


def lease(simulation: Simulation) -> None:
    """A worker that dies has taken a job from the list before it was done."""
    jobs, done = ["a", "b", "c"], []

    def work() -> None:
        while True:
            with locks.Lock(("jobs",)):
                if not jobs:
                    return
                job = jobs.pop()
                simulation.sleep(1)
                done.append(job)

    for _ in range(3):
        simulation.client(work)
    simulation.run(deaths=2)
    assert len(done) == 3


def semaphore(simulation: Simulation) -> None:
    """Two seats and two numbers: the number of free seats is asked for, and then relied on."""
    taken: list[int] = []

    def sit() -> None:
        seats = locks.Semaphore(("seats",), 2)
        free = not seats.locked()
        if free:
            assert seats.acquire(blocking=False)
            taken.append(1)
            seats.release()

    for _ in range(4):
        simulation.client(sit)
    simulation.run()


def nested(simulation: Simulation) -> None:
    """A helper unlocks an id that its caller has locked, too, and the caller goes on without the lock."""
    total = [0]

    def helper(tx: locks.Transaction) -> None:
        tx.write_lock(("total",))
        tx.unlock(("total",))

    def add() -> None:
        with locks.transaction() as tx:
            tx.write_lock(("total",))
            helper(tx)
            seen = total[0]
            simulation.sleep()
            total[0] = seen + 1

    for _ in range(3):
        simulation.client(add)
    simulation.run()
    assert total == [3]


PLANTED: list[Scenario] = [
    *(bank, cache, job_queue, upgrade, error_path, time_limit, two_locks_of_threading, lease),
    *(semaphore, nested),
]


def kind_of(error: BaseException) -> tuple[str, int]:
    """The type and the line of an error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.lineno is not None
    return type(error).__name__, last.lineno


def failure_of(scenario: Scenario, **how: Any) -> tuple[tuple[Any, ...] | None, Simulation]:
    """How a run fails: type, line and text."""
    simulation = Simulation(**how)
    with simulation.patched():
        try:
            scenario(simulation)
        except Exception as error:
            return (*kind_of(error), re.sub("0x[0-9a-f]+", "", str(error))), simulation
    return None, simulation


@pytest.mark.parametrize("scenario", PLANTED)
def test_planted_bug_is_found_played_again_and_made_short(scenario: Scenario) -> None:
    """Each failing seed's own schedule fails in the same way; the first one is made short to the same error at the same line."""
    found = set()
    for seed in range(SEEDS if EXPLORE else FEW):
        first, drawn = failure_of(scenario, seed=seed)
        if first is not None:
            found.add(first[:2])
            assert failure_of(scenario, schedule=drawn.schedule)[0] == first, f"seed {seed}"
    with pytest.raises((AssertionError, Violation)) as short:
        simulate(scenario, SEEDS, patch=True)
    note = "\n".join(getattr(short.value, "__notes__", ["the shortest way"]))
    assert "the shortest way" in note
    assert not found or kind_of(short.value) in found


def test_hash_seeds_change_nothing() -> None:
    """Each planted bug fails under the same seeds, with the same schedules, whatever the order of sets is."""
    found = {_outcomes(str(seed)) for seed in (0, 1, 2, 3)}
    assert len(found) == 1


def _outcomes(hash_seed: str) -> str:
    program = """if True:
        from tests.api.test_testing_planted import PLANTED, failure_of
        for each in PLANTED:
            for seed in range(10):
                end, run = failure_of(each, seed=seed)
                print(each.__name__, seed, end, run.schedule)
    """
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = run_program([sys.executable, "-c", program], env=environment, check=True)
    return done.stdout
