"""Flask: each request is a transaction, in whichever worker it is served.

$ export LOCKS_SERVERS=a@127.0.0.1:9100 LOCKS_COOKIE_FILE=cookie
$ gunicorn --preload -w 3 web:app
$ curl -X POST localhost:8000/invoices
"""

import os
from pathlib import Path

from flask import Flask

import locks

BOOK = Path("invoices.txt")
app = Flask(__name__)


@app.post("/invoices")
def write_invoice() -> str:
    with locks.transaction(timeout=30) as tx:
        tx.write_lock(("invoices",))
        number = len(BOOK.read_text().splitlines()) + 1 if BOOK.exists() else 1
        with BOOK.open("a") as book:
            book.write(f"{number} by {os.getpid()}\n")
    return f"{number}\n"
