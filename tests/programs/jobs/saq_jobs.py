"""Jobs of SAQ; `python -m saq saq_jobs.settings` runs them."""

import asyncio
import os

from saq import Queue
from work import is_written, write_invoice

import locks

queue = Queue.from_url(os.environ["REDIS_URL"])


@locks.locked(("invoices",))
def write(number):
    if not is_written(number):
        write_invoice(number)


async def invoice(context, *, number):
    await asyncio.to_thread(write, number)


settings = {"queue": queue, "functions": [invoice], "concurrency": 1}


async def send(number):
    await queue.enqueue("invoice", number=number, timeout=0)
    await queue.disconnect()
