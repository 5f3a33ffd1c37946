"""Realistic programs with a planted bug each, as clients of a simulation. Tests and `benchmarks.strategies` look for the bugs."""

from __future__ import annotations

import collections
from collections.abc import Callable

import locks
from locks.testing import Simulation

__all__ = ["PLANTED", "Scenario"]

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
