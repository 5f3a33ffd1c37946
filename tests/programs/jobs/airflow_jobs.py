"""A DAG of Airflow; `airflow dags test invoices` runs it."""

from airflow.sdk import dag, task
from work import NUMBERS, is_written, write_invoice

import locks


@task
@locks.locked(("invoices",))
def invoice(number):
    if not is_written(number):
        write_invoice(number)


@dag
def invoices():
    for number in NUMBERS:
        invoice(number)


invoices()
