"""How many schedules `strategy="every"` leaves out: `python -m benchmarks.every`.

Small scenarios, with the number of schedules of each: all, those that differ for the clients, and those that differ if clients share
nothing but locks. No time is measured: the table is the same on each machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import locks
from locks.errors import MisuseError
from locks.testing import Simulation
from locks.testing.scenarios import every
from locks_lab.applications.agenda import COARSE, FINE

__all__ = ["main"]

MOST = 5000  # schedules

Scenario = Callable[[Simulation], None]


def alone(number: int) -> Scenario:
    """So many clients, and one `Lock`."""

    def scenario(simulation: Simulation) -> None:
        def work() -> None:
            with locks.Lock(("a",)):
                pass

        for _ in range(number):
            simulation.client(work)
        simulation.run()

    return scenario


def nested(*orders: str) -> Scenario:
    """A client for each order of two `Lock`s."""

    def scenario(simulation: Simulation) -> None:
        def work(outer: str, inner: str) -> None:
            try:
                with locks.Lock((outer,)), locks.Lock((inner,)):
                    pass
            except locks.DeadlockAborted:
                pass

        for order in orders:
            simulation.client(work, *order)
        simulation.run()

    return scenario


def transactions(*orders: str) -> Scenario:
    """A client for each order in which a transaction requests two locks."""

    def scenario(simulation: Simulation) -> None:
        def work(order: str) -> None:
            with locks.transaction(on_deadlock="surrender") as tx:
                for each in order:
                    tx.write_lock((each,))

        for order in orders:
            simulation.client(work, order)
        simulation.run()

    return scenario


SCENARIOS = {
    "two clients, one Lock": alone(2),
    "three clients, one Lock": alone(3),
    "two clients, two Locks each, in the same order": nested("ab", "ab"),
    "two clients, two Locks each, in opposite orders": nested("ab", "ba"),
    "two transactions, the same two locks": transactions("ab", "ab"),
    "two transactions, two locks in opposite orders": transactions("ab", "ba"),
    "two transactions that share nothing": transactions("ab", "cd"),
}


def number(scenario: Scenario, depth: int) -> str:
    """The number of schedules."""
    try:
        return f"{every(scenario, MOST, False, 1, depth).schedules:,}"
    except MisuseError:
        return f"> {MOST:,}"


def main() -> int:
    """Print the table."""
    print(f"{'schedules':<49}{'all':>10}{'every':>10}{'only_shared':>13}")
    for name, scenario in SCENARIOS.items():
        all, some, few = (number(scenario, depth) for depth in (0, COARSE, FINE))
        print(f"{name:<49}{all:>10}{some:>10}{few:>13}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
