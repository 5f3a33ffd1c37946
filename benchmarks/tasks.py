"""Figures of tasks of asyncio: what a transaction and a lock cost there, waiting tasks, and what holds a loop up."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from asyncio.events import Handle
from collections.abc import Awaitable, Callable
from pathlib import Path

import locks
from benchmarks.harness import MILLI, Figure, Report, Sample, interleave, repeat
from benchmarks.transactions import ONE
from locks import aio

__all__ = ["FIGURES", "Held", "granted_at_once", "held_up", "waiting"]

HOT = ("hot",)
LONG = 0.005  # seconds that nothing in a loop may take
PAGE = 4096


# --- One task --------------------------------------------------------------------------------------


def _with_transaction() -> None:
    with locks.transaction() as tx:
        tx.write_lock(ONE)


async def _in_transaction() -> None:
    async with aio.transaction() as tx:
        await tx.write_lock(ONE)


def one_task(report: Report) -> None:
    """A transaction and a lock, nobody else: in a task, and in a thread."""
    seconds, rounds = (0.001, 3) if report.quick else (0.01, 61)
    loop = asyncio.new_event_loop()
    lock, task_lock = locks.Lock(ONE), aio.Lock(ONE)

    def with_lock() -> None:
        with lock:
            pass

    async def in_lock() -> None:
        async with task_lock:
            pass

    def many(work: Callable[[], Awaitable[None]], times: int) -> Sample:
        async def run() -> float:
            begun = time.thread_time()
            for _ in range(times):
                await work()
            return (time.thread_time() - begun) / times

        return lambda: loop.run_until_complete(run())

    times = 10 if report.quick else 200
    samples = {
        "thread: with transaction() + lock": repeat(_with_transaction, seconds, time.thread_time),
        "task: async with transaction() + lock": many(_in_transaction, times),
        "thread: with Lock": repeat(with_lock, seconds, time.thread_time),
        "task: async with Lock": many(in_lock, times),
    }
    runs = interleave(samples, rounds)
    names = list(samples)
    report.compare(runs, names[1], names[0], target=report.limit(1.3))
    report.compare(runs, names[3], names[2], target=report.limit(1.3))
    loop.close()
    locks.stop()


# --- Many tasks ------------------------------------------------------------------------------------


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE


async def _wait() -> None:
    async with aio.transaction() as tx:
        await tx.write_lock(HOT)


async def waiting(number: int) -> tuple[float, float, int]:
    """Tasks that wait for one lock.

    Returns:
        How much memory each takes, in KiB; how much a task does that waits for a future; how many threads more there are.
    """
    nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def idle() -> None:
        await nothing

    async with aio.transaction() as tx:
        await tx.write_lock(HOT)
        threads = threading.active_count()
        gc.collect()
        empty = _resident()
        idlers = [asyncio.ensure_future(idle()) for _ in range(number)]
        await asyncio.sleep(0)
        before = _resident()
        tasks = [asyncio.ensure_future(_wait()) for _ in range(number)]
        while locks.statistics().table.waiting < number:
            await asyncio.sleep(0.01)
        gc.collect()
        after = _resident()
        threads = threading.active_count() - threads
    await asyncio.gather(*tasks)
    nothing.set_result(None)
    await asyncio.gather(*idlers)
    return (after - before) / number / 1024, (before - empty) / number / 1024, threads


def many_tasks(report: Report) -> None:
    """The memory of tasks that wait."""
    number = 100 if report.quick else 10_000
    each, idle, threads = asyncio.run(waiting(number))
    report.add(
        f"{number:,} tasks that wait for one lock, memory each",
        each,
        "KiB",
        yardstick="a task that waits for a future",
        yardstick_value=idle,
    )
    report.add(f"threads more for {number:,} waiting tasks", threads, "threads")
    locks.stop()


# --- What holds the loop up -----------------------------------------------------------------------


class Held:
    """How long each step of a loop took while it is used as a context manager, by the one thread that it is used in.

    Python's garbage collector is counted by itself: it may come up in any step.

    Attributes:
        steps: How many there were.
        long: Those that took longer than 5 ms of processor time, in seconds.
        longest: Seconds.
        by_the_clock: How many took longer than 5 ms by the clock. On a machine that does other things as well, these are mostly
            steps in which this process did not run.
        collections: How long each pass of the collector took over all objects (its last generation), in seconds.
    """

    def __init__(self) -> None:
        self.steps = self.by_the_clock = 0
        self.long: list[float] = []
        self.longest = 0.0
        self.collections: list[float] = []
        self._collected = self._began = 0.0

    def __enter__(self) -> Held:
        self._run = run = Handle._run  # type: ignore[attr-defined]
        self._thread = threading.get_ident()
        gc.callbacks.append(self._collecting)

        def timed(handle: Handle) -> None:
            self._collected = 0.0
            clock = time.perf_counter()
            begun = time.thread_time()
            run(handle)
            took = time.thread_time() - begun - self._collected
            self.steps += 1
            self.longest = max(self.longest, took)
            self.by_the_clock += time.perf_counter() - clock > LONG
            if took > LONG:
                self.long.append(took)

        Handle._run = timed  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        Handle._run = self._run  # type: ignore[attr-defined]
        gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._began = time.thread_time()
            return
        took = time.thread_time() - self._began
        self._collected += took
        if info["generation"] == 2:
            self.collections.append(took)


async def held_up(crowd: int, transactions: int) -> tuple[Held, Held]:
    """Transactions in a loop in which a crowd waits for a lock; then the crowd gets it, one after the other.

    Returns:
        What came up meanwhile, and what while the crowd was served.
    """

    async def work(number: int) -> None:
        for each in range(transactions // 100):
            async with aio.transaction() as tx:
                await tx.write_lock(("own", number, each % 7))
            await asyncio.sleep(0)

    with Held() as served:
        async with aio.transaction() as tx:
            await tx.write_lock(HOT)
            tasks = [asyncio.ensure_future(_wait()) for _ in range(crowd)]
            while locks.statistics().table.waiting < crowd:
                await asyncio.sleep(0.01)
            with Held() as meanwhile:
                await asyncio.gather(*(work(number) for number in range(100)))
        await asyncio.gather(*tasks)
    return meanwhile, served


async def granted_at_once(crowd: int) -> Held:
    """A crowd of readers that get a lock at the same time, from a writer."""

    async def read() -> None:
        async with aio.transaction() as tx:
            await tx.read_lock(HOT)

    async with aio.transaction() as tx:
        await tx.write_lock(HOT)
        tasks = [asyncio.ensure_future(read()) for _ in range(crowd)]
        while locks.statistics().table.waiting < crowd:
            await asyncio.sleep(0.01)
        held = Held()
        held.__enter__()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    held.__exit__()
    return held


def goes_on(report: Report) -> None:
    """What took longer than 5 ms in a loop."""
    crowd, number = (50, 200) if report.quick else (1000, 10_000)
    locks.start()
    meanwhile, served = asyncio.run(held_up(crowd, number))
    at_once = asyncio.run(granted_at_once(crowd))
    for what, held in (
        (f"{number:,} transactions while {crowd:,} tasks wait", meanwhile),
        (f"{crowd:,} tasks wait, and get the lock in turn", served),
        (f"{crowd:,} readers get a lock at once", at_once),
    ):
        report.add(
            f"{what}: steps of more than 5 ms",
            len(held.long),
            f"of {held.steps:,}",
            note=f"longest {held.longest * MILLI:.1f} ms; by the clock {held.by_the_clock}",
        )
    report.add(
        "garbage collections of all objects meanwhile, the longest",
        max(served.collections, default=0.0) * MILLI,
        "ms",
        note=f"of {len(served.collections)}",
    )
    locks.stop()


FIGURES = [
    Figure("task", "one task, one lock, nobody else", {"loop": one_task}),
    Figure("tasks", "tasks that wait", {"loop": many_tasks}),
    Figure("loop", "what holds an event loop up", {"loop": goes_on}),
]
