"""Figure of a bank: clients transfer money, each locks two accounts in any order.

So there are deadlocks, and `run_transaction` runs again what was aborted. The yardstick has a plain
lock for each account and takes the two in sorted order. That rules deadlocks out, but a program can do
it only if it knows all its locks beforehand.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
import gevent.lock

import locks
from benchmarks.harness import Figure, Report, clock, interleave, run_all

__all__ = ["FIGURES"]

# Clients, accounts, transfers. The last one of the hub is a crowd in which each waits for another.
QUICK = [(5, 20, 100)]
IN_HUB = [(2, 20, 1500), (10, 20, 1500), (50, 500, 1500), (20, 20, 1000), (50, 20, 250)]
IN_THREADS = [(2, 20, 600), (10, 20, 600)]


class Bank:
    """Accounts and clients.

    Args:
        green: Whether the clients are greenlets; else threads.
        clients: How many.
        accounts: How many.
        transfers: How many in all.
    """

    def __init__(self, green: bool, clients: int, accounts: int, transfers: int) -> None:
        self.green, self.clients, self.accounts = green, clients, accounts
        self.each = transfers // clients
        self.pause: Callable[[float], object] = gevent.sleep if green else time.sleep
        self.balances = [100] * accounts
        self.bare: list[Any] = [
            gevent.lock.RLock() if green else threading.Lock() for _ in range(accounts)
        ]
        self.seed = 0

    def by_transaction(self) -> float:
        """Seconds for each transfer with transactions."""

        def transfer(first: int, second: int) -> None:
            def work(tx: locks.Transaction) -> None:
                tx.write_lock(("accounts", first))
                self.pause(0)
                tx.write_lock(("accounts", second))
                self.move(first, second)

            locks.run_transaction(work, retries=1000)

        return self.run(transfer)

    def by_sorted_locks(self) -> float:
        """Seconds for each transfer with plain locks in sorted order."""

        def transfer(first: int, second: int) -> None:
            low, high = sorted((first, second))
            with self.bare[low]:
                self.pause(0)
                with self.bare[high]:
                    self.move(first, second)

        return self.run(transfer)

    def move(self, first: int, second: int) -> None:
        """Move a coin, not at once: without locks it would get lost."""
        source, target = self.balances[first], self.balances[second]
        self.pause(0)
        self.balances[first], self.balances[second] = source - 1, target + 1

    def run(self, transfer: Callable[[int, int], None]) -> float:
        """Seconds for each transfer."""
        now = clock(self.green)
        self.seed += 1

        def client(number: int) -> None:
            chance = random.Random(self.seed * 1000 + number)
            for _ in range(self.each):
                first, second = chance.sample(range(self.accounts), 2)
                transfer(first, second)

        clients = [partial(client, number) for number in range(self.clients)]
        begun = now()
        run_all(clients, self.green)
        took = now() - begun
        if sum(self.balances) != 100 * self.accounts:
            raise AssertionError("money was lost or made")
        return took / (self.each * self.clients)


def bank(report: Report, green: bool, crowds: list[tuple[int, int, int]]) -> None:
    """Fill the rows of figure 8; a crowd is so many clients, accounts and transfers."""
    yardstick = f"{'gevent' if green else 'native'} locks, sorted"
    for clients, accounts, transfers in crowds:
        rounds = 2 if report.quick else 7
        scene = Bank(green, clients, accounts, transfers)
        before = locks.statistics()
        name = f"{clients} clients, {accounts} accounts"
        runs = interleave({name: scene.by_transaction, yardstick: scene.by_sorted_locks}, rounds)
        after = locks.statistics()
        done = scene.each * clients * rounds
        aborted = after.aborted - before.aborted
        report.compare(
            runs, name, yardstick,
            note=f"{1 / runs.median(name):,.0f} transfers/s, {100 * aborted / done:.1f} aborts in "
            f"100 transfers",
        )  # fmt: skip
    locks.stop()


def bank_in_hub(report: Report) -> None:
    """Figure 8 with greenlets."""
    bank(report, True, QUICK if report.quick else IN_HUB)


def bank_in_threads(report: Report) -> None:
    """Figure 8 with threads."""
    bank(report, False, QUICK if report.quick else IN_THREADS)


FIGURES = [
    Figure(
        "bank",
        "time for each transfer between two accounts, locked in any order",
        {"hub": bank_in_hub, "threads": bank_in_threads},
    )
]
