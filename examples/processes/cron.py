"""A job that one of several programs does. If the program is killed, another one goes on.

$ export LOCKS_SERVERS=a@127.0.0.1:9100 LOCKS_COOKIE_FILE=cookie
$ python cron.py & python cron.py & python cron.py
"""

import os
from pathlib import Path

import locks_leader

BOOK = Path("invoices.txt")


@locks_leader.Election("invoices")
def write_invoices(leadership: locks_leader.Leadership) -> None:
    while not leadership.lost.wait(0.1):
        leadership.ensure_leading()
        number = len(BOOK.read_text().splitlines()) + 1 if BOOK.exists() else 1
        with BOOK.open("a") as book:
            book.write(f"{number} by {os.getpid()} in term {leadership.term}\n")


while True:
    write_invoices()  # waits until it leads; returns when it no longer leads
