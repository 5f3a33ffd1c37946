"""Jobs of RQ; `rq worker` runs them."""

import os

from redis import Redis
from rq import Queue
from work import is_written, write_invoice

import locks


@locks.locked(("invoices",))
def invoice(number):
    if not is_written(number):
        write_invoice(number)


def send(number):
    Queue(connection=Redis.from_url(os.environ["REDIS_URL"])).enqueue(invoice, number)
