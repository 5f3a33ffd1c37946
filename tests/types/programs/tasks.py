"""Tasks of Celery that run one at a time: the decorator keeps the parameters."""

from __future__ import annotations

from typing_extensions import assert_type

from locks.engines.celery import single


@single(("report",), timeout=3)
def report(day: int, text: str = "") -> float:
    return day / len(text)


@single(lambda account, *rest: ("accounts", account))
def book(account: str, amount: int) -> None:
    print(account, amount)


assert_type(report(1, text="a"), float | None)
report("monday")  # E
report(1, more=2)  # E
book("ann", 3)
book("ann")  # E
single(("report",), wait=3)  # E
