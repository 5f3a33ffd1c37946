"""Pykka actors: each is a client of its own. Several such programs share the lock, too.

$ export LOCKS_SERVERS=a@127.0.0.1:9100 LOCKS_COOKIE_FILE=cookie
$ python actors.py
"""

import os
from pathlib import Path

import pykka

import locks

BOOK = Path("invoices.txt")


class Clerk(pykka.ThreadingActor):
    def write_invoice(self) -> None:
        with locks.transaction(timeout=30) as tx:
            tx.write_lock(("invoices",))
            number = len(BOOK.read_text().splitlines()) + 1 if BOOK.exists() else 1
            with BOOK.open("a") as book:
                book.write(f"{number} by {os.getpid()}\n")


clerks = [Clerk.start().proxy() for _ in range(8)]
pykka.get_all([clerk.write_invoice() for clerk in clerks * 5])
pykka.ActorRegistry.stop_all()
