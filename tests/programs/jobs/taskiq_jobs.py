"""Jobs of taskiq; `taskiq worker taskiq_jobs:broker` runs them."""

import os

from taskiq_redis import ListQueueBroker
from work import is_written, write_invoice

import locks

broker = ListQueueBroker(os.environ["REDIS_URL"])


@broker.task
@locks.locked(("invoices",))
def invoice(number):
    if not is_written(number):
        write_invoice(number)


async def send(number):
    await broker.startup()
    await invoice.kiq(number)
    await broker.shutdown()
