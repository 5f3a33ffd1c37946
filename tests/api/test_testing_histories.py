"""`Simulation.history`: calls that no order explains are found, those that one does pass, and failures say which."""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable
from typing import Any

import pytest

import locks
from locks.runtime.monitor import current_client
from locks.testing import Simulation, Violation, simulate

SEEDS = 1000
FEW = 20  # seeds in which a planted bug is found


class Cell:
    """A register for one client alone."""

    def __init__(self) -> None:
        self.value = 0

    def read(self) -> int:
        return self.value

    def write(self, value: int) -> None:
        self.value = value


class Jobs:
    """A queue for one client alone."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def put(self, job: Any) -> None:
        self.jobs.append(job)

    def get(self) -> Any:
        if not self.jobs:
            raise queue.Empty
        return self.jobs.pop(0)


class Register:
    """A register with a cache, in front of something slow."""

    def __init__(self, simulation: Simulation) -> None:
        self.pause = simulation.sleep
        self.value = 0
        self.cached: int | None = None

    def write(self, value: int) -> None:
        with locks.Lock(("register",)):
            self.pause()
            self.value, self.cached = value, None

    def read(self) -> int:
        with locks.Lock(("register",)):
            return self.look()

    def look(self) -> int:
        if self.cached is None:
            value = self.value
            self.pause()
            self.cached = value
        return self.cached


class Uncovered(Register):
    """The bug: its read takes no lock."""

    def read(self) -> int:
        return self.look()


class Topic:
    """A queue of which one consumer at a time takes jobs; how far it has come is written down."""

    def __init__(self, simulation: Simulation) -> None:
        self.pause = simulation.sleep
        self.jobs: list[str] = []
        self.at = 0

    def put(self, job: str) -> None:
        with locks.Lock(("topic",)):
            self.jobs.append(job)

    def get(self) -> str:
        with locks.Lock(("topic",)):
            if self.at == len(self.jobs):
                raise queue.Empty
            job = self.jobs[self.at]
            self.at += 1
            self.pause()
            return job


class Forgetful(Topic):
    """The bug: what was taken is written down when the same consumer comes again, so not after its death."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.taken: dict[Any, int] = {}

    def get(self) -> str:
        me = current_client()
        with locks.Lock(("topic",)):
            self.at = self.taken.pop(me, self.at)
            if self.at == len(self.jobs):
                raise queue.Empty
            self.taken[me] = self.at + 1
            return self.jobs[self.at]


def register_of(kind: type[Register]) -> Callable[[Simulation], None]:
    """Two that write, two that read, again and again."""

    def scenario(simulation: Simulation) -> None:
        register = simulation.history(kind(simulation), Cell)

        def writes(*values: int) -> None:
            for value in values:
                register.write(value)

        def reads() -> None:
            for _ in range(4):
                register.read()
                simulation.sleep()

        simulation.client(writes, 1, 2)
        simulation.client(writes, 3)
        simulation.client(reads)
        simulation.client(reads)
        simulation.run()

    return scenario


def topic_of(kind: type[Topic]) -> Callable[[Simulation], None]:
    """A consumer dies; the next one has the session only then, and goes on."""

    def scenario(simulation: Simulation) -> None:
        topic = simulation.history(kind(simulation), Jobs)
        for job in "abcdef":
            topic.put(job)

        def consume() -> None:
            with locks.Lock(("consumer",)):
                while True:
                    try:
                        topic.get()
                    except queue.Empty:
                        return
                    simulation.sleep()

        for _ in range(3):
            simulation.client(consume)
        simulation.run(deaths=2)

    return scenario


def failure_of(scenario: Any, seeds: Any = FEW, **options: Any) -> tuple[str, str]:
    """What a history can't be, and the story."""
    with pytest.raises(Violation) as caught:
        simulate(scenario, seeds, **options)
    return str(caught.value), "\n".join(getattr(caught.value, "__notes__", []))


# --- Planted bugs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["mixed", "uniform", "pct"])
def test_read_that_the_lock_does_not_cover_is_found(strategy: Any) -> None:
    """Within few seeds, and the failure has the calls that matter, with their lines."""
    text, story = failure_of(register_of(Uncovered), strategy=strategy)
    lines = text.splitlines()
    assert "as those of a Cell do" in lines[0]
    calls = [line for line in lines if "[test_testing_histories.py:" in line]
    assert 2 <= len(calls) <= 4, text
    assert any("read() returned " in line for line in calls)
    assert "would have returned " in text
    if sys.version_info >= (3, 11):
        assert " calls read()" in story
        assert " from read" in story


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mixed", "uniform"])
def test_queue_that_delivers_twice_after_a_death_is_found(strategy: Any) -> None:
    """Within few seeds; two deliveries of one job are the smallest part."""
    text, _ = failure_of(topic_of(Forgetful), 3 * FEW, strategy=strategy)
    calls = [line for line in text.splitlines() if "[test_testing_histories.py:" in line]
    assert len(calls) <= 3
    assert len({line.split(" returned ")[1].split()[0] for line in calls}) < len(calls)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [register_of(Register), topic_of(Topic)])
@pytest.mark.parametrize("seeds", [100, pytest.param(range(100, SEEDS), marks=pytest.mark.explore)])
def test_correct_forms_pass(scenario: Any, seeds: Any) -> None:
    """A register and a queue whose locks cover all that they do, under deaths, too."""
    summary = simulate(scenario, seeds, expect=("wait",))
    if scenario.__qualname__.startswith("topic"):
        assert summary.deaths > summary.schedules // 4


# --- With others ------------------------------------------------------------------------------------
