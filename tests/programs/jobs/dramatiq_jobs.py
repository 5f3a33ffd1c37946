"""Actors of Dramatiq; `dramatiq dramatiq_jobs` runs them."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from work import is_written, write_invoice

import locks

dramatiq.set_broker(RedisBroker(url=os.environ["REDIS_URL"]))


@dramatiq.actor
@locks.locked(("invoices",))
def invoice(number):
    if not is_written(number):
        write_invoice(number)
