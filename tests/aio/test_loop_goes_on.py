"""The event loop is never held up, and tasks that wait cost memory only. Figures are in the output (`-s`)."""

from __future__ import annotations

import asyncio

import pytest

import locks
from benchmarks.tasks import held_up, waiting

pytestmark = pytest.mark.explore


def test_nothing_holds_the_loop_up() -> None:
    """While 1,000 tasks wait and 10,000 transactions run, no step of the loop takes 5 ms of processor time, but for the collector.

    One may, where another process takes the processor's caches.
    """
    locks.start()
    meanwhile, served = asyncio.run(held_up(1000, 10_000))
    print(
        f"{meanwhile.steps} steps, {meanwhile.long} s; all: {served.steps} steps, {served.long} s, longest "
        f"{served.longest:.4f} s; by the clock {served.by_the_clock}; collections {served.collections} s"
    )
    assert len(served.long) <= 1


def test_waiting_tasks_cost_memory_and_no_threads() -> None:
    """10,000 tasks that wait take less than 40 KiB each, and no thread."""
    each, idle, threads = asyncio.run(waiting(10_000))
    print(
        f"{each:.1f} KiB each; a task that waits for a future {idle:.1f} KiB; {threads} threads more"
    )
    assert each < 40
    assert threads == 0
