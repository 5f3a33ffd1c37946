"""multiprocessing: eight processes share a lock, however they are started.

$ export LOCKS_SERVERS=a@127.0.0.1:9100 LOCKS_COOKIE_FILE=cookie
$ python batch.py fork        (or forkserver, or spawn)
"""

import multiprocessing
import os
import sys
from pathlib import Path

import locks

BOOK = Path("invoices.txt")


def write_invoice(customer: int) -> None:
    with locks.transaction(timeout=30) as tx:
        tx.write_lock(("invoices",))
        number = len(BOOK.read_text().splitlines()) + 1 if BOOK.exists() else 1
        with BOOK.open("a") as book:
            book.write(f"{number} by {os.getpid()}\n")


if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(8) as pool:
        pool.map(write_invoice, range(40), chunksize=1)
