"""Jobs of arq; `arq arq_jobs.Worker` runs them."""

import asyncio
import os

from arq import create_pool
from arq.connections import RedisSettings
from work import is_written, write_invoice

import locks

SETTINGS = RedisSettings.from_dsn(os.environ["REDIS_URL"])


@locks.locked(("invoices",))
def write(number):
    if not is_written(number):
        write_invoice(number)


async def invoice(context, number):
    await asyncio.to_thread(write, number)


class Worker:
    functions = (invoice,)
    redis_settings = SETTINGS
    max_jobs = 1


async def send(number):
    await (await create_pool(SETTINGS)).enqueue_job("invoice", number)
