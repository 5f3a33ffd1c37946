"""The event loop is never held up, and tasks that wait cost memory only. Figures are in the output (`-s`)."""

from __future__ import annotations

import asyncio
import gc

import pytest

import locks
from benchmarks.tasks import held_up, waiting

pytestmark = pytest.mark.explore


def test_nothing_holds_the_loop_up() -> None:
    """While 1,000 tasks wait and 10,000 transactions run, next to no step of the loop takes 5 ms of processor time.

    A few do: now and then the lock server saves its table, all of those who wait in it.
    """
    locks.start()
    gc.disable()
    try:
        meanwhile, served = asyncio.run(held_up(1000, 10_000))
    finally:
        gc.enable()
    print(
        f"{meanwhile.steps} steps, {meanwhile.long} s; all: {served.steps} steps, {served.long} s"
    )
    assert len(served.long) <= 5


def test_waiting_tasks_cost_memory_and_no_threads() -> None:
    """10,000 tasks that wait take less than 40 KiB each, and no thread."""
    each, idle, threads = asyncio.run(waiting(10_000))
    print(
        f"{each:.1f} KiB each; a task that waits for a future {idle:.1f} KiB; {threads} threads more"
    )
    assert each < 40
    assert threads == 0
