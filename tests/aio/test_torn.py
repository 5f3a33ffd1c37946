"""Exceptions of signal handlers, at any instruction of a program that uses `locks.aio`."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import trio

import locks
from locks import aio
from tests.aio.steps import pause, together
from tests.helpers import EXPLORE, SEED, eventually

A, B = ("a",), ("b",)
SOON = 0.00001  # seconds


class Torn(BaseException):
    """What the handler raises."""


def is_in_child(frame: FrameType | None) -> bool:
    """Whether a task of a nursery is at work. trio itself can't run again in this thread if it was torn."""
    while frame is not None and trio.lowlevel.in_trio_task():
        package = frame.f_globals["__name__"].partition(".")[0]
        if package in ("locks", "tests", "trio"):
            return package != "trio" and "<locals>" in trio.lowlevel.current_task().name
        frame = frame.f_back
    return False


@pytest.fixture
def alarm() -> Iterator[None]:
    """The handler of SIGALRM raises."""

    def tear(_: int, frame: FrameType | None) -> None:
        if trio.lowlevel.in_trio_run() and not is_in_child(frame):
            signal.setitimer(
                signal.ITIMER_REAL, 0.001, 0.5
            )  # not at once: Python would call this within this
            return
        raise Torn

    before = signal.signal(signal.SIGALRM, tear)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


async def work() -> None:
    """Three tasks with the same locks."""

    async def one() -> None:
        async with aio.Lock(A), aio.RLock(B), aio.RLock(B):
            await pause()

    async def other() -> None:
        async with aio.transaction() as tx:
            await tx.lock_all([A])
            await tx.lock_all([B])
            await pause()

    await together(one, other, one)


def quiet(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio says of tasks that were torn is not looked at."""


@pytest.mark.slow
def test_a_loop_that_is_torn_lets_go(alarm: None) -> None:
    """An exception anywhere in a loop, in a task or in a bridge: when the loop has ended, no lock is kept."""
    rng = random.Random(SEED)
    begun = time.perf_counter()
    asyncio.run(work())
    long = 2 * (time.perf_counter() - begun)
    torn = 0
    for _ in range(20_000 if EXPLORE else 300):
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(quiet)
        try:
            # asyncio itself may lose a step when it is torn, and wait for ever: then it is torn once more.
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(SOON, long), 0.5)
            loop.run_until_complete(work())
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Torn:
            signal.setitimer(signal.ITIMER_REAL, 0)
            torn += 1
        asyncio._set_running_loop(None)
        loop._thread_id = None  # type: ignore[attr-defined]  # it may have been torn on its way out
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        eventually(lambda: locks.statistics().agents == 0)
    assert torn
    asyncio.run(work())


@pytest.mark.slow
def test_a_run_of_trio_that_is_torn_lets_go(alarm: None) -> None:
    """The same in trio, while a task is at work."""
    rng = random.Random(SEED)
    begun = time.perf_counter()
    trio.run(work)
    long = 2 * (time.perf_counter() - begun)
    torn = 0
    for _ in range(20_000 if EXPLORE else 300):
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(SOON, long), 0.5)
            trio.run(work)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException:  # trio makes groups of it, and errors of its own
            signal.setitimer(signal.ITIMER_REAL, 0)
            torn += 1
        eventually(lambda: locks.statistics().agents == 0)
    assert torn
    trio.run(work)
