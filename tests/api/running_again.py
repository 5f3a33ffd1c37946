"""Crowds of transactions that run again, in virtual time in which nothing but their own work takes time.

`python -m tests.api.running_again` prints the table of decision 0012; a number after it is that of the clients.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import locks
from locks import retries
from locks.model import Mode
from locks.testing import Simulation

Kind = Literal["opposite order", "3 of 20", "3 of 20, with readers", "rows and tables", "upgrades"]
Wanted = tuple[tuple[Any, ...], Mode]
WORK = 0.005  # seconds with each lock
QUEUES, TRIES, FORGETS = 0, retries.ATTEMPTS, -1  # rules: one lock after the other; first all; none


class Outcome(NamedTuple):
    """What became of a crowd.

    Attributes:
        time: Seconds until all were done.
        runs: How often each client's function was run.
        aborts: How many transactions were aborted.
    """

    time: float
    runs: list[int]
    aborts: int


def wishes(kind: Kind, clients: int, seed: int) -> list[list[Wanted]]:
    """What each client locks, one after the other."""
    rng = random.Random(f"{kind} {clients} {seed}")
    modes: tuple[Mode, ...] = ("read", "write")
    rows = [("t", table, row) for table in range(3) for row in range(5)]
    found: list[list[Wanted]] = []
    for number in range(clients):
        some = rng.sample(range(20), 3)
        if kind == "opposite order":
            found.append([(("a", each), "write") for each in ((1, 2), (2, 1))[number % 2]])
        elif kind == "3 of 20":
            found.append([(("a", each), "write") for each in some])
        elif kind == "3 of 20, with readers":
            found.append([(("a", each), rng.choice(modes)) for each in some])
        elif kind == "rows and tables":
            ids = [*rows, *(("t", table) for table in range(3))]
            found.append([(each, rng.choice(modes)) for each in rng.sample(ids, 3)])
        else:
            found.append([(("a", 1), "read"), (("a", 1), "write")])
    return found


def in_one_order(wanted: list[Wanted]) -> list[Wanted]:
    """The same locks, sorted, each in its strongest mode."""
    return sorted(dict(sorted(wanted, key=lambda one: one[1])).items())


def run(wanted: list[list[Wanted]], seed: int, nodes: int = 1, learn: bool = True) -> Outcome:
    """Let each of them lock and work, all at the same time."""
    simulation = Simulation(seed, nodes=nodes, strategy="pct")
    runs = [0] * len(wanted)

    def client(number: int) -> None:
        def work(tx: locks.Transaction) -> None:
            runs[number] += 1
            for lock_id, mode in wanted[number]:
                tx.lock(lock_id, mode)
                simulation.sleep(WORK)

        locks.run_transaction(work, learn=learn)

    for number in range(len(wanted)):
        simulation.client(client, number)
    simulation.run(limit=10**8)
    return Outcome(simulation.time, runs, simulation.summary.aborts)


@contextmanager
def attempts(number: int) -> Iterator[None]:
    """So often they try to take all at once before they queue."""
    before, retries.ATTEMPTS = retries.ATTEMPTS, number
    try:
        yield
    finally:
        retries.ATTEMPTS = before


def main(clients: int = 40, seeds: int = 3) -> None:
    """Print what each rule costs, in times of the same locks in one order."""
    print(f"{clients} clients: time / the same in one order; runs; aborts of each client")
    for kind in get_args(Kind):
        for nodes in (1, 3):
            worlds = [wishes(kind, clients, seed) for seed in range(seeds)]
            least = sum(
                run([in_one_order(each) for each in world], seed, nodes).time
                for seed, world in enumerate(worlds)
            )
            line = f"{kind} ({nodes})"
            for rule in (FORGETS, QUEUES, TRIES):
                with attempts(max(rule, 0)):
                    found = [run(w, s, nodes, rule != FORGETS) for s, w in enumerate(worlds)]
                time = sum(each.time for each in found) / least
                runs = sum(sum(each.runs) for each in found) / clients / seeds
                aborts = sum(each.aborts for each in found) / clients / seeds
                line += f" | {time:.2f}; {runs:.2f}; {aborts:.2f}"
            print(line, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
