"""Starlette (or FastAPI): endpoints that are plain functions run in threads, and each request is a transaction.

$ export LOCKS_SERVERS=a@127.0.0.1:9100 LOCKS_COOKIE_FILE=cookie
$ uvicorn --workers 3 api:app
$ curl -X POST localhost:8000/invoices
"""

import os
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import locks

BOOK = Path("invoices.txt")


def write_invoice(request: Request) -> PlainTextResponse:
    with locks.transaction(timeout=30) as tx:
        tx.write_lock(("invoices",))
        number = len(BOOK.read_text().splitlines()) + 1 if BOOK.exists() else 1
        with BOOK.open("a") as book:
            book.write(f"{number} by {os.getpid()}\n")
    return PlainTextResponse(f"{number}\n")


app = Starlette(routes=[Route("/invoices", write_invoice, methods=["POST"])])
