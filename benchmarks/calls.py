"""`python -m benchmarks.calls`: how many Python functions, and built-in ones, one lock takes.

These numbers are the same each time and on each machine, so they tell what a change has cost or saved where times are noisy.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import gevent

import locks
from benchmarks.transactions import LOCK, ONE, TRANSACTION, WITH, begin_lock_end, with_transaction

__all__ = ["count"]

BEFORE = 50  # times that it is done before it is counted


def count(function: Callable[[], object]) -> tuple[int, int]:
    """The calls of Python functions and of built-in ones that a function makes."""
    for _ in range(BEFORE):
        function()
    found: Counter[str] = Counter()

    def note(_frame: Any, event: str, _argument: Any) -> None:
        found[event] += 1

    gc.disable()
    sys.setprofile(note)
    function()
    sys.setprofile(None)
    gc.enable()
    return found["call"], found["c_call"]


def main() -> None:
    """Print them."""
    lock = locks.Lock(ONE)

    def pair() -> None:
        lock.acquire()
        lock.release()

    cases = {TRANSACTION: begin_lock_end, LOCK: pair, WITH: with_transaction}
    for name, function in cases.items():
        python, builtin = count(function)
        print(f"{name:27} {python:4} calls of Python functions, {builtin:4} of others")


if __name__ == "__main__":
    gevent.spawn(main).get()
