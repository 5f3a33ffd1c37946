"""How soon the strategies of `locks.testing` find bugs: `python -m benchmarks.strategies`.

Planted bugs, each with the first seed that finds it. No time is measured: the table is the same on each machine.
"""

from __future__ import annotations

import sys

import locks
from benchmarks.planted import Scenario, bank
from locks.testing import Simulation, simulate
from locks_lab.applications.strategies import Named

__all__ = ["APPLICATIONS", "between", "main"]

SEEDS = 1000
STRATEGIES: tuple[Named, ...] = ("uniform", "bursts", "pct", "mixed")


def between(number: int) -> Scenario:
    """It takes so many transactions of another client between two of one's own."""

    def scenario(simulation: Simulation) -> None:
        count = 0

        def others() -> None:
            nonlocal count
            for _ in range(number):
                with locks.transaction() as tx:
                    tx.write_lock(("count",))
                    count += 1

        def own() -> None:
            with locks.transaction() as tx:
                tx.read_lock(("count",))
                before = count
            with locks.transaction() as tx:
                tx.read_lock(("count",))
                assert count - before < number

        simulation.client(others)
        simulation.client(own)
        simulation.run()

    return scenario


def shop(simulation: Simulation) -> None:
    """It is looked in one transaction whether there is any left, and taken in another one."""
    stock = 1

    def order() -> None:
        nonlocal stock
        with locks.transaction() as tx:
            tx.read_lock(("stock",))
            left = stock
        if left:
            with locks.transaction() as tx:
                tx.write_lock(("stock",))
                stock -= 1

    for _ in range(3):
        simulation.client(order)
    simulation.run()
    assert stock == 0


def workers(simulation: Simulation) -> None:
    """A job is given back before it is marked as done."""
    jobs = {"one": False, "two": False}
    done: list[str] = []

    def work() -> None:
        for job in jobs:
            with locks.Lock(("job", job)):
                if jobs[job]:
                    continue
                done.append(job)
            locks.holders(("job", job))  # it logs who is next
            jobs[job] = True

    for _ in range(2):
        simulation.client(work)
    simulation.run()
    assert sorted(done) == ["one", "two"]


def cache(simulation: Simulation) -> None:
    """Between the read lock and the write lock nobody looks again."""
    known: dict[str, int] = {}
    made = 0

    def get() -> None:
        nonlocal made
        lock = locks.RWLock(("cache",))
        with lock.read_lock():
            if "key" in known:
                return
        with lock.write_lock():
            made += 1
            known["key"] = made

    for _ in range(3):
        simulation.client(get)
    simulation.run()
    assert made == 1


APPLICATIONS = (bank, shop, workers, cache)


def first_seed(scenario: Scenario, strategy: Named) -> int | None:
    """The first seed under which it fails."""
    for seed in range(SEEDS):
        try:
            simulate(scenario, [seed], strategy=strategy, shrink=False)
        except AssertionError:
            return seed
    return None


def main() -> int:
    """Print the table."""
    print(f"the first of {SEEDS:,} seeds that finds it   " + "".join(f"{s:>9}" for s in STRATEGIES))
    rows: list[tuple[str, Scenario]] = [
        (f"{n} transaction{'s' if n > 1 else ''} between two of one's own", between(n))
        for n in range(1, 9)
    ]
    rows += [(f"{each.__name__}", each) for each in APPLICATIONS]
    for name, scenario in rows:
        found = [first_seed(scenario, strategy) for strategy in STRATEGIES]
        print(f"{name:<41}" + "".join(f"{'-' if n is None else n:>9}" for n in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
