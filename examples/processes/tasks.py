"""Celery: each task is a transaction. If its process is killed, the lock is free, and the task is done again.

$ export LOCKS_SERVERS=a@127.0.0.1:9100 LOCKS_COOKIE_FILE=cookie
$ mkdir queue
$ celery -A tasks worker --concurrency 4
$ celery -A tasks call tasks.write_invoice
"""

import os
from pathlib import Path

from celery import Celery

import locks

BOOK = Path("invoices.txt")
QUEUE = {"data_folder_in": "queue", "data_folder_out": "queue"}
app = Celery("tasks", broker="filesystem://")  # needs no server; in production redis://...
app.conf.broker_transport_options = QUEUE


@app.task(acks_late=True, reject_on_worker_lost=True)
def write_invoice() -> None:
    with locks.transaction(timeout=30) as tx:
        tx.write_lock(("invoices",))
        number = len(BOOK.read_text().splitlines()) + 1 if BOOK.exists() else 1
        with BOOK.open("a") as book:
            book.write(f"{number} by {os.getpid()}\n")
