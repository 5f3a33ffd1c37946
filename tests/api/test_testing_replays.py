"""The schedule of any drawn run brings the same run about again: every step, at the same time, to the same end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import locks
from locks import aio
from locks.testing import Simulation, simulate
from tests.helpers import EXPLORE, SEED

RUNS = 200 if EXPLORE else 30
Made = Callable[[Simulation], list[Any]]


def bank(simulation: Simulation) -> list[Any]:
    """Transfers in a ring: deadlocks, and runs that begin again."""
    seen: list[Any] = []

    def move(source: str, target: str) -> None:
        for _ in range(2):

            def body(tx: locks.Transaction) -> None:
                tx.write_lock((source,))
                tx.write_lock((target,))
                seen.append((source, target))

            locks.run_transaction(body)

    for source, target in ("ab", "bc", "ca"):
        simulation.client(move, source, target, name=source)
    return seen


def sleep_under_a_lock(simulation: Simulation) -> list[Any]:
    """Timers of several clients, of different lengths."""
    seen: list[Any] = []

    def work(number: int) -> None:
        with locks.Lock(("x",)):
            seen.append(number)
            time.sleep(0.5)
        time.sleep(0.1 * number)
        with locks.Lock(("x",)):
            seen.append(number)

    for number in range(3):
        simulation.client(work, number)
    return seen


def time_limits(simulation: Simulation) -> list[Any]:
    """A limit runs out at about the time at which the lock is free."""
    seen: list[Any] = []

    def work(number: int) -> None:
        for _ in range(2):
            try:
                with locks.Lock(("x",), timeout=0.3):
                    seen.append(("got", number))
                    time.sleep(0.2)
            except locks.LockTimeout:
                seen.append(("timed out", number, time.monotonic()))

    for number in range(3):
        simulation.client(work, number)
    return seen


def a_task_dies(simulation: Simulation) -> list[Any]:
    """A task of asyncio is cancelled, or not, while it waits or holds."""
    seen: list[Any] = []

    async def inner(number: int) -> None:
        async with aio.Lock(("x",)):
            seen.append(("in", number))
            await asyncio.sleep(0.2)
            seen.append(("out", number))

    async def work(number: int) -> None:
        task = asyncio.create_task(inner(number))
        await asyncio.sleep(0.1)
        if number == 0:
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            seen.append(("cancelled", number))

    for number in range(3):
        simulation.client(work, number)
    return seen


def majorities(simulation: Simulation) -> list[Any]:
    """Clients on three nodes, with locks of a majority."""
    seen: list[Any] = []

    def work(number: int) -> None:
        for _ in range(2):
            try:
                with locks.transaction(timeout=5) as tx:
                    tx.write_lock(("x",), nodes=["n1", "n2", "n3"], require="majority")
                    seen.append(("in", number))
                    simulation.sleep(0.05)
            except locks.LocksError as error:
                seen.append((type(error).__name__, number))

    for number in range(3):
        simulation.client(work, number, node=f"n{number + 1}")
    return seen


CASES: dict[str, tuple[Made, int, dict[str, int]]] = {
    "bank": (bank, 1, {}),
    "bank with deaths": (bank, 1, {"deaths": 2}),
    "sleep under a lock": (sleep_under_a_lock, 1, {}),
    "time limits": (time_limits, 1, {}),
    "time limits and deaths": (time_limits, 1, {"deaths": 1}),
    "a task dies": (a_task_dies, 1, {}),
    "majorities": (majorities, 3, {}),
    "majorities with faults": (majorities, 3, {"cuts": 2, "crashes": 1, "deaths": 1}),
}


def run(make: Made, nodes: int, faults: dict[str, int], **how: Any) -> tuple[Any, Simulation]:
    """A run: how it ended, and what was seen of it."""
    simulation = Simulation(nodes=nodes, **how) if nodes > 1 else Simulation(**how)
    seen = make(simulation)
    end = None
    with simulation.patched():
        try:
            simulation.run(**faults)
        except Exception as error:
            end = type(error), str(error)
    return (end, seen, simulation.trace), simulation


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_schedule_brings_its_run_about_again(name: str) -> None:
    """All of it: the end, the clients' own notes with their times, and each line of the trace."""
    make, nodes, faults = CASES[name]
    for seed in range(SEED, SEED + RUNS):
        first, drawn = run(make, nodes, faults, seed=seed)
        again, replayed = run(make, nodes, faults, schedule=drawn.schedule)
        assert again == first, f"seed {seed}: {drawn.schedule}"
        assert replayed.schedule == drawn.schedule, f"seed {seed}"


def test_a_failure_that_needs_its_times_is_made_short(caplog: pytest.LogCaptureFixture) -> None:
    """A limit of time is compared by the client itself: no plain schedule fails, the exact one does."""

    def scenario(simulation: Simulation) -> None:
        late = []

        def work() -> None:
            begun = time.monotonic()
            with locks.Lock(("x",)):
                simulation.sleep(0)
            late.append(time.monotonic() - begun)

        for _ in range(3):
            simulation.client(work)
        simulation.run()
        assert max(late) < 0.004

    with pytest.raises(AssertionError) as error:
        simulate(scenario, seeds=100, patch=True)
    told = getattr(error.value, "__notes__", [caplog.text])  # Python 3.10 has none
    (note,) = [each for each in told if "the shortest way" in each]
    text = note.partition('schedule="')[2].partition('"')[0]
    assert text.startswith("exact")
    simulation = Simulation(schedule=text)
    with simulation.patched(), pytest.raises(AssertionError):
        scenario(simulation)
