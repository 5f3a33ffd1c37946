"""A job of Dagster; `dagster job execute -f dagster_jobs.py` runs it."""

from dagster import job, op
from work import NUMBERS, is_written, write_invoice

import locks


@op
@locks.locked(("invoices",))
def invoices(context) -> None:
    for number in NUMBERS:
        if not is_written(number):
            write_invoice(number)


@job
def all_invoices():
    invoices()
