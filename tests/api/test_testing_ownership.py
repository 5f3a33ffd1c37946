"""`locks.testing`: ownership and process groups, in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from locks.ownership import Backlog, NotOwner, Ownership
from locks.ownership.member import Member
from locks.testing import Simulation, Violation, simulate

GROUPS = 4


# --- Workers of a backlog ---------------------------------------------------------------------------


class Scene:
    """Tasks, what was done of them, and who works on which group; it checks that no two do.

    Args:
        simulation: Where it happens.
        tasks: How many tasks there are.
        **options: Of the backlog.
    """

    def __init__(self, simulation: Simulation, tasks: int, **options: Any) -> None:
        self.simulation = simulation
        self.backlog = Backlog(range(tasks), groups=GROUPS, **options)
        self.begun: Counter[int] = Counter()
        self.done: list[int] = []
        self.tokens: dict[int, int] = {}
        self._busy: set[int] = set()

    def worker(self, after: float = 0.0) -> int:
        """A worker that comes after some seconds."""
        self.simulation.sleep(after)
        return Ownership("work", GROUPS).run(self.backlog, self.do)

    def do(self, task: int, token: int) -> None:
        """Do a task, which takes 10 ms."""
        group = self.backlog.grouping.group_of(task)
        assert group not in self._busy, f"two are at group {group}"
        assert token >= self.tokens.get(group, 0), "tokens rise"
        self.tokens[group] = token
        self.begun[task] += 1
        self._busy.add(group)
        try:
            self.simulation.sleep(0.01)
        finally:
            self._busy.remove(group)
        self.done.append(task)

    def in_order(self) -> bool:
        """Whether the tasks of each group were done in the order in which they were added."""
        of: dict[int, list[int]] = {}
        for task in self.done:
            of.setdefault(self.backlog.grouping.group_of(task), []).append(task)
        return all(tasks == sorted(tasks) for tasks in of.values())


def test_each_task_is_done_once() -> None:
    """Three workers that come one after the other share the tasks; all is done once, in order, one at a time."""
    shares = set()

    def scenario(simulation: Simulation) -> None:
        scene = Scene(simulation, 24)
        workers = [simulation.client(scene.worker, after) for after in (0, 0.02, 0.04)]
        simulation.run()
        assert sorted(scene.done) == list(range(24))
        assert scene.in_order()
        assert sum(worker.value for worker in workers) == 24
        shares.add(tuple(worker.value for worker in workers))

    simulate(scenario, 40)
    assert len(shares) > 5  # schedules differ


def test_tasks_of_a_dead_worker_are_done_by_others() -> None:
    """Two of three workers die anywhere: each task is done at least once, one at a time; twice only what was at hand."""
    again = 0

    def scenario(simulation: Simulation) -> None:
        nonlocal again
        scene = Scene(simulation, 24)
        for after in (0, 0.02, 0.04):
            simulation.client(scene.worker, after)
        simulation.run(deaths=2)
        assert sorted(scene.done) == list(range(24))
        assert scene.in_order()
        begun_again = sum(scene.begun.values()) - 24
        assert begun_again <= 2
        again += begun_again

    summary = simulate(scenario, 60, expect=("death",))
    assert summary.deaths > 40
    assert again > 5


# --- By hand ----------------------------------------------------------------------------------------


def test_groups_are_handed_over_in_order() -> None:
    """Callbacks tell of each group that it is lost before the next one has it, with a larger token."""

    def scenario(simulation: Simulation) -> None:
        owner: dict[int, str] = {}
        tokens = dict.fromkeys(range(GROUPS), 0)

        def gained(name: str, group: int, token: int) -> None:
            assert group not in owner
            assert token > tokens[group]
            owner[group], tokens[group] = name, token

        def lost(name: str, group: int) -> None:
            assert owner.pop(group) == name

        def work(name: str, first: float, last: float) -> None:
            simulation.sleep(first)
            with Ownership(
                "x",
                GROUPS,
                on_gained=lambda group, token: gained(name, group, token),
                on_lost=lambda group: lost(name, group),
            ) as mine:
                while simulation.time < last:
                    for group in mine.owned():
                        with suppress(NotOwner), mine.hold(names[group]):
                            assert owner[group] == name
                            simulation.sleep(0.01)
                            assert owner[group] == name
                    simulation.sleep(0.01)

        backlog: Backlog[int] = Backlog(groups=GROUPS)
        names = {backlog.grouping.group_of(number): number for number in range(100)}
        for number in range(3):
            simulation.client(work, f"w{number}", number * 0.3, 1.2 - number * 0.2)
        simulation.run()
        assert not owner

    simulate(scenario, 30)


def test_a_worker_that_seems_dead() -> None:
    """Stopped `now`, it works on while the next owner does: allowed, and told apart by the token."""

    def scenario(simulation: Simulation) -> None:
        first, second = Ownership("x", 1), Ownership("x", 1)
        tokens: list[int] = []
        written: list[int] = []

        def hang() -> None:
            with first:
                simulation.sleep(5)
                with first.hold("r") as token:
                    tokens.append(token)
                    simulation.sleep(1000)
                    if token >= tokens[-1]:
                        written.append(token)

        def take_over() -> None:
            simulation.sleep(10)
            with second:
                first.stop(now=True)
                simulation.sleep(10)
                with second.hold("r") as token:
                    tokens.append(token)
                    simulation.sleep(10)
                    written.append(token)

        simulation.client(hang)
        simulation.client(take_over)
        simulation.run()
        assert len(tokens) == 2
        assert tokens[0] < tokens[1]
        assert written == tokens[1:]

    simulate(scenario, 10)


# --- What is checked, and told ----------------------------------------------------------------------


def test_two_at_work_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ownership that lets a group go while a task of it is at hand is found by the simulation itself."""
    monkeypatch.setattr(Member, "_idle", lambda self: list(self.leaving))

    def scenario(simulation: Simulation) -> None:
        tasks = Backlog(range(24), groups=GROUPS)

        def worker(after: float) -> None:
            simulation.sleep(after)
            Ownership("x", GROUPS).run(tasks, lambda task, token: simulation.sleep(0.01))

        for after in (0, 0.03):
            simulation.client(worker, after, name=f"w{after}")
        simulation.run()

    with pytest.raises(
        Violation, match=r"group \d of 'x' is worked on by two at once, with the tokens 1 and 3"
    ) as caught:
        simulate(scenario, 100)
    story = "\n".join(caught.value.__notes__) if hasattr(caught.value, "__notes__") else None
    if story is not None:
        assert " of 2 clients" in story
        assert "works on group" in story
        assert "owns groups" in story
        assert "asks for write locks.ownership" not in story


# --- Many seeds -------------------------------------------------------------------------------------


def churn(simulation: Simulation) -> None:
    """Workers come, leave, die; tasks come in, fail, are tried again: what is promised is kept."""
    rng = random.Random(simulation.seed)
    tasks = rng.randrange(1, 30)
    scene = Scene(simulation, 0, more=True, retries=3, retry_delay=rng.choice((0, 0.02, 5)))
    failing = {task: rng.randrange(1, 3) for task in range(tasks) if rng.random() < 0.2}

    def do(task: int, token: int) -> None:
        scene.do(task, token)
        if failing.get(task, 0):
            failing[task] -= 1
            scene.done.pop()
            raise ValueError(task)

    def source() -> None:
        for task in range(tasks):
            simulation.sleep(rng.choice((0, 0.001, 0.03)))
            scene.backlog.add(task)
        scene.backlog.close()

    def passing(after: float, stays: float) -> None:
        simulation.sleep(after)
        mine = Ownership("work", GROUPS)

        def leave() -> None:
            simulation.sleep(stays)
            mine.stop()

        simulation.client(leave)
        mine.run(scene.backlog, do)

    def lasting() -> None:
        Ownership("work", GROUPS).run(scene.backlog, do)

    def kill() -> None:
        for victim in victims:
            simulation.sleep(rng.uniform(0, 0.3))
            simulation.kill(victim)

    simulation.client(source)
    simulation.client(lasting)
    victims = [
        simulation.client(passing, rng.uniform(0, 0.3), rng.uniform(0, 0.5))
        for _ in range(rng.randrange(4))
    ]
    simulation.client(kill)
    simulation.run()
    assert sorted(scene.done) == list(range(tasks))
    assert scene.backlog.finished
    assert not scene.backlog.set_aside


def test_churn() -> None:
    """Under any schedule no group has two at work, and no task is lost, done twice or out of order."""
    simulate(churn, 60)


@pytest.mark.explore
def test_churn_under_many_schedules() -> None:
    """The same, for longer."""
    simulate(churn, 2000)
