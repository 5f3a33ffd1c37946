"""Tasks of Huey; `huey_consumer huey_jobs.huey` runs them."""

from huey import SqliteHuey
from work import is_written, write_invoice

import locks

huey = SqliteHuey(filename="huey.db")


@huey.task()
@locks.locked(("invoices",))
def invoice(number):
    if not is_written(number):
        write_invoice(number)
