"""How many transactions the store does in a second, and how many of them twice."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from pathlib import Path

from .store import Store, Transaction

__all__ = ["bench"]

HEAD = "accounts  threads  disk  transactions/s  run again  moved up"


def bench(seconds: float = 2.0) -> None:
    """Print a table: transfers between two random accounts, each two reads and two writes.

    Args:
        seconds: How long each row takes.
    """
    print(HEAD)
    for sync in (True, False):
        for accounts in (1000, 4):
            for threads in (1, 8):
                with tempfile.TemporaryDirectory() as folder:
                    row = transfers(
                        str(Path(folder) / "bench.db"), sync, accounts, threads, seconds
                    )
                rate, again, moved = row
                disk = "waits" if sync else "later"
                print(
                    f"{accounts:8}  {threads:7}  {disk:5} {rate:15,.0f}  {again:9.1%}  {moved:8.1%}"
                )


def transfers(
    path: str, sync: bool, accounts: int, threads: int, seconds: float
) -> tuple[float, float, float]:
    """Make transfers; return their rate, and the shares that were run again and moved up."""
    with Store(path, sync=sync) as store:
        with store.begin() as tx:
            for n in range(accounts):
                tx.put(str(n), "1000")
        store.counted.clear()
        end = time.perf_counter() + seconds

        def client(number: int) -> None:
            rng = random.Random(number)
            while time.perf_counter() < end:
                source, target = map(str, rng.sample(range(accounts), 2))

                def transfer(tx: Transaction) -> None:
                    there, here = int(tx.get(source) or 0), int(tx.get(target) or 0)  # noqa: B023
                    tx.put(source, str(there - 1))  # noqa: B023
                    tx.put(target, str(here + 1))  # noqa: B023

                store.run(transfer, retries=1000)

        clients = [threading.Thread(target=client, args=(n,)) for n in range(threads)]
        began = time.perf_counter()
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        took = time.perf_counter() - began
        total = sum(int(value) for _, value in store.run(lambda tx: tx.scan()))
        if total != 1000 * accounts:
            raise RuntimeError(f"there is {total} instead of {1000 * accounts}")
        done = store.counted["committed"] - 1
        begun = done + store.counted["aborted"]
        return done / took, store.counted["aborted"] / begun, store.counted["moved up"] / begun
