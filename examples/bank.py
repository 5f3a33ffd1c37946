"""A bank: many threads move money, auditors count it, and not a cent is lost.

A transfer locks two accounts in any order: deadlocks are certain, and the code need not care.
`run_transaction` runs the transfer again that had to yield. An auditor reads all accounts at once under
one read lock on their parent.
"""

from __future__ import annotations

import argparse
import random
import threading
import time

import locks

ACCOUNTS = 6
CLERKS = 8
TRANSFERS = 25  # by each clerk
AUDITS = 5

balances = dict.fromkeys(range(ACCOUNTS), 1000)
audits: list[int] = []


def transfer(source: int, target: int, amount: int) -> None:
    """Move money between two accounts."""

    def move(tx: locks.Transaction) -> None:
        tx.write_lock(("bank", source))
        time.sleep(0.001)  # slow enough for others to get in between
        tx.write_lock(("bank", target))
        balances[source] -= amount
        time.sleep(0.001)  # here money is missing: a look without a lock would see it
        balances[target] += amount

    locks.run_transaction(move, retries=100)


def clerk(number: int) -> None:
    """Make transfers between random accounts."""
    rng = random.Random(number)
    for _ in range(TRANSFERS):
        source, target = rng.sample(range(ACCOUNTS), 2)
        transfer(source, target, rng.randint(1, 100))


def audit(tx: locks.Transaction) -> int:
    """Count all money. One lock on the parent covers every account."""
    tx.read_lock(("bank",))
    return sum(balances.values())


def auditor() -> None:
    """Audit now and then."""
    for _ in range(AUDITS):
        audits.append(locks.run_transaction(audit))
        time.sleep(0.02)


def main() -> None:
    """Run all of them side by side and say how it went."""
    locks.start("bank@localhost")
    threads = [threading.Thread(target=clerk, args=(n,), name=f"clerk-{n}") for n in range(CLERKS)]
    threads += [threading.Thread(target=auditor, name=f"auditor-{n}") for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    seen = locks.statistics()
    print(f"{CLERKS * TRANSFERS} transfers by {CLERKS} clerks over {ACCOUNTS} accounts")
    print(f"{seen.deadlocks} deadlocks, all resolved; {seen.aborted} transfers had to run again")
    print(f"{len(audits)} audits saw {sorted(set(audits))}")
    print(f"money at the end: {sum(balances.values())}")
    assert set(audits) == {1000 * ACCOUNTS} == {sum(balances.values())}


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
