"""A flow of Prefect; `python prefect_jobs.py` runs it."""

from prefect import flow, task
from work import NUMBERS, is_written, write_invoice

import locks


@task
@locks.locked(("invoices",))
def invoice(number: int) -> None:
    if not is_written(number):
        write_invoice(number)


@flow
def invoices() -> None:
    for number in NUMBERS:
        invoice(number)


if __name__ == "__main__":
    invoices()
