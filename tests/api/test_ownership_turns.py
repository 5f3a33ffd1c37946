"""Turns of groups in virtual time, and what an added task costs: counted, not timed."""

from __future__ import annotations

import random
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest

from locks.ownership import Backlog, backlog, part, run, turns, worker
from locks.ownership.turns import BATCH, QUICK, SLICE
from locks.runtime.waiter import Waiter
from tests.api.played import Played
from tests.helpers import eventually, lines_of

MODULES = (backlog, part, run, turns, worker)


class Clock:
    """Seconds that pass because somebody works.

    Attributes:
        now: How many have passed.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Tell them."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all runs."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def first(task: tuple[Any, ...]) -> Any:
    """A task's resource, and its group."""
    return task[0]


def group_for(group: int) -> int:
    """The group of a resource."""
    return group


def backlog_of(groups: int, tasks: Any = (), **options: Any) -> Backlog[Any]:
    """A backlog whose tasks begin with their group."""
    return Backlog(tasks, first, groups=groups, group_for=group_for, **options)


@pytest.mark.parametrize(("seconds", "most"), [(1e-6, 8), (6e-6, 1)])
@pytest.mark.parametrize("quick", [10, 1000, 4000])
def test_a_group_does_not_wait_behind_slow_tasks_of_another(
    clock: Clock, quick: int, seconds: float, most: int
) -> None:
    """However many quick tasks went before, and of whichever group: it waits for a millisecond and a task.

    Or for eight, if some of the same slice took next to no time.
    """
    for before in (0, 1):  # the group of the quick ones
        tasks = [(before, seconds)] * quick + [(1, 0.005)] * 100 + [(2, 10e-6)] * 10
        begun: dict[int, float] = {}

        def handle(task: tuple[int, float], token: int, begun: dict[int, float] = begun) -> None:
            if task[1] > 0.001:
                begun.setdefault(1, clock.now)
            if task[0] == 2:
                begun.setdefault(2, clock.now)
            clock.now += task[1]

        Played(3, group_for=group_for).run(backlog_of(3, tasks), handle)
        if begun[2] > begun[1]:  # else the quick ones of the same group have filled the first slice
            assert begun[2] - begun[1] <= SLICE + 0.005 * (1 if before == 0 else most)


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_group_waits_for_a_slice_of_each_other_at_most(
    clock: Clock, seed: int, steady: bool
) -> None:
    """The bound of the page, with random tasks that also come in meanwhile; it is less if tasks of a group take alike."""
    rng = random.Random(seed)
    groups = rng.randrange(2, 9)
    lengths = [rng.choice([1e-6, 5e-6, 1e-4, 0.002, 0.02]) for _ in range(groups)]

    def task(group: int) -> tuple[int, float]:
        length = lengths[group] if steady else rng.choice(lengths)
        return group, length * rng.uniform(0.9, 1.0)

    tasks = backlog_of(
        groups, [task(rng.randrange(groups)) for _ in range(rng.randrange(3000))], more=True
    )
    waits = {group: 0.0 for group in range(groups) if tasks.has(group)}  # since when
    last, longest, added = -1, 0.0, 0

    def handle(task_: tuple[int, float], token: int) -> None:
        nonlocal last, longest, added
        group, length = task_
        if group != last:
            if last >= 0 and tasks.has(last):
                waits.setdefault(last, clock.now)
            longest = max(longest, clock.now - waits.pop(group))
            last = group
        clock.now += length
        if rng.random() < 0.02 and added < 2000:
            added += 1
            new = rng.randrange(groups)
            if new != group:
                waits.setdefault(new, clock.now)
            tasks.add(task(new))
        if len(tasks) == 1:
            tasks.close()

    mine = Played(groups, group_for=group_for)
    if len(tasks):
        assert mine.run(tasks, handle) == mine.statistics().done > 0
    most = max(lengths)
    slice_ = SLICE + (max(most, BATCH * QUICK) if steady else BATCH * most)
    assert longest <= groups * slice_


# --- What it costs --------------------------------------------------------------------------------


class Crew:
    """Played workers that wait in threads of their own for tasks.

    Args:
        workers: How many.
        groups: How many groups they share out.
    """

    def __init__(self, workers: int, groups: int) -> None:
        self.tasks = backlog_of(groups, more=True)
        self.done: list[tuple[int, int]] = []  # worker and task
        self.lines = 0  # of the library that the first worker has carried out
        self.workers = [
            Played(groups, range(number, groups, workers), group_for=group_for)
            for number in range(workers)
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True)
            for number in range(workers)
        ]

    def __enter__(self) -> Crew:
        for thread in self._threads:
            thread.start()
        self.all_wait()
        return self

    def __exit__(self, *error: object) -> None:
        self.tasks.close()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)

    def all_wait(self) -> None:
        """Wait until all workers do."""

        def waits(each: Any) -> bool:
            return each._waiter is not None and each._waiter._parked is not None

        eventually(lambda: sum(map(waits, tuple(self.tasks._runs))) == len(self.workers))

    def add(self, group: int) -> None:
        """Add a task, and wait until it is done and all wait again."""
        before = len(self.done)
        self.tasks.add((group,))
        eventually(lambda: len(self.done) > before)
        self.all_wait()

    def _work(self, number: int) -> None:
        def handle(task: tuple[int], token: int) -> None:
            self.done.append((number, task[0]))

        work = lambda: self.workers[number].run(self.tasks, handle)  # noqa: E731
        if number:
            work()
            return
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in {module.__file__ for module in MODULES}:
            return None
        self.lines += event == "line"
        return self._trace


def test_an_added_task_wakes_the_worker_that_owns_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nobody else, however many wait."""
    with Crew(12, 60) as crew:
        woken: list[Waiter] = []
        wake = Waiter.wake
        monkeypatch.setattr(Waiter, "wake", lambda waiter: (woken.append(waiter), wake(waiter)))
        for number, group in enumerate([0, 13, 59, 13], 1):
            crew.add(group)
            assert crew.done[-1] == (group % 12, group)
            assert len(woken) == number
        monkeypatch.undo()


def test_the_cost_of_an_added_task_knows_no_numbers() -> None:
    """Neither of groups nor of workers: the same lines for who adds it, and for who is woken."""
    found = []
    for workers, groups in ((2, 8), (12, 3000)):
        with Crew(workers, groups) as crew:
            crew.add(0)
            before = crew.lines
            for _ in range(10):
                crew.add(0)
            working = crew.lines - before
            adding = lines_of(lambda crew=crew: crew.tasks.add((1,)), *MODULES)  # type: ignore[misc]
        found.append((working, adding))
    assert found[0] == found[1]
    assert all(map(all, found))
