"""A bank in the example store, to be killed: prints what it was told is committed.

    python kv_child.py FILE RUN

Each transfer also writes a line of the log; it is printed when the commit has returned.
"""

from __future__ import annotations

import os
import random
import sys
import threading

from examples.kv_store import Store, Transaction

ACCOUNTS = 5
THREADS = 4
MONEY = 100


def transfer(tx: Transaction, rng: random.Random, name: str) -> str:
    """Move money between two accounts, and write it down."""
    source, target = rng.sample(range(ACCOUNTS), 2)
    amount = rng.randint(1, 9)
    there = int(tx.get(f"account/{source}") or MONEY)
    here = int(tx.get(f"account/{target}") or MONEY)
    tx.put(f"account/{source}", str(there - amount))
    line = f"{source} {target} {amount}"
    tx.put(f"log/{name}", line)
    tx.put(f"account/{target}", str(here + amount))
    return line


def clerk(store: Store, run: str, number: int) -> None:
    """Make transfers until the process is killed."""
    rng = random.Random(f"{run} {number}")
    count = 0
    while True:
        count += 1
        name = f"{run}/{number}/{count}"
        line = store.run(lambda tx: transfer(tx, rng, name), retries=1000)  # noqa: B023
        os.write(1, f"{name} {line}\n".encode())


if __name__ == "__main__":
    with Store(sys.argv[1]) as bank:
        clerks = [
            threading.Thread(target=clerk, args=(bank, sys.argv[2], n)) for n in range(THREADS)
        ]
        for thread in clerks:
            thread.start()
        for thread in clerks:
            thread.join()
