"""Shrinking runs that went wrong, in worlds of machines that were broken on purpose."""

from __future__ import annotations

import random
from typing import Any

import pytest

from locks.core.agent.machine import AgentMachine
from locks.core.messages import Release, Released, ToServer
from locks_lab.cases.case import Case, case_of, kind_of, parse_case, replay
from locks_lab.cases.shrink import shrink, weight
from locks_lab.schedules.plan import Shape, plan
from locks_lab.schedules.runs import FailedRun, run_plan
from locks_lab.schedules.schedule import run
from locks_lab.worlds.client import SERIALS
from locks_lab.worlds.events import Choice
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import Rule
from tests.model.test_run import SILENT


class Broken(Exception):
    """A machine is broken."""


class FearsLosses(AgentMachine):
    """Can't bear that another node is lost."""

    def node_down(self, node: str) -> Any:
        raise Broken("lost a node")


class NeverAgain(AgentMachine):
    """Can't ask for a second lock after it has begun again."""

    def ask(self, *args: Any, **options: Any) -> Any:
        if self.id.serial > SERIALS and not self.empty:
            raise Broken("began again")
        return super().ask(*args, **options)


class NoMercy(AgentMachine):
    """Can't be asked to give up a wait."""

    def abandon_wait(self, wait: Any) -> Any:
        raise Broken("gave up")


class Restless(AgentMachine):
    """Releases again and again what it has released."""

    def receive(self, message: Any) -> Any:
        more = []
        if isinstance(message, Released):
            more = [ToServer(message.node, Release(self.id, message.lock_id))]
        return super().receive(message) + more


def failures(rule: Rule, shape: Shape, count: int) -> list[FailedRun]:
    """The first runs that go wrong."""
    found = []
    for seed in range(2000):
        failure = run_plan(seed, plan(seed, shape, rule))
        if failure is not None:
            found.append(failure)
            if len(found) == count:
                return found
    raise AssertionError(f"only {len(found)} of {count} runs went wrong")


def shrunk(failure: FailedRun) -> Case:
    """A run that went wrong, as small as it gets."""
    kind = kind_of(failure.error)
    case = shrink(case_of(failure.plan, failure.schedule), kind)
    assert replay(case).kind == kind
    return case


@pytest.mark.parametrize("number", range(6))
def test_a_deadlock_that_nobody_sees_is_shrunk_to_two_clients(number: int) -> None:
    """Of many clients and steps, two with two steps each are left."""
    failure = failures(SILENT, Shape(nodes=1, agents=8, locks=4, depth=1), 6)[number]
    case = shrunk(failure)
    assert [len(steps) for steps in case.scripts] == [2, 2], case
    assert len(case.moves) <= 4, case
    assert (case.nodes, case.homes, case.options) == (("n1",), (), ()), case
    assert sum(map(len, failure.plan.scripts)) > 8


def test_only_the_fault_that_matters_is_left() -> None:
    """Of many faults on three nodes, one on two nodes is left."""
    for failure in failures(Rule("fearful", "", FearsLosses), Shape(nodes=3, faults=True), 3):
        case = shrunk(failure)
        assert case.nodes == ("n1", "n2"), case
        assert len(case.scripts) == 1, case
        assert [move.kind for move in case.moves] in (["cut"], ["crash"]), case
        assert case.scripts == ((),), case


@pytest.mark.slow
def test_what_begins_again_is_kept() -> None:
    """A failure that needs a second transaction keeps it, and nothing else."""
    for failure in failures(Rule("once", "", NeverAgain), Shape(nodes=1, steps=8, abort=False), 3):
        case = shrunk(failure)
        assert str(case).startswith('--client "again; '), case
        assert len(case.scripts) == 1, case
        assert len(case.scripts[0]) == 3, case


def test_what_gives_up_is_kept() -> None:
    """A step that need not be a plain one is made plain; one that must be is kept."""
    case = shrunk(failures(Rule("stubborn", "", NoMercy), Shape(agents=6), 1)[0])
    assert str(case._replace(moves=())).startswith('--client "try write a"'), case
    assert len(case.scripts) == 1, case


@pytest.mark.explore
def test_what_never_ends_is_shrunk() -> None:
    """A world that goes on for ever is made smaller like any other, in a bounded time."""
    shape = Shape(agents=5, nodes=1, steps=8, policy="quiet")
    drawn = plan(1, shape, Rule("restless", "", Restless))
    world = drawn.world()
    schedule: list[Choice] = []
    with pytest.raises(Violation, match="no end after 3000 events") as caught:
        run(world, random.Random(1), drawn.policy, limit=3000, schedule=schedule)
    case = shrink(case_of(drawn, schedule), kind_of(caught.value))
    assert len(case.scripts) == 1, case
    assert [step.kind for step in case.scripts[0]] == ["lock", "unlock"], case
    assert case.moves == (), case


def test_shrinking_is_deterministic() -> None:
    """The same case is shrunk to the same one."""
    failure = failures(SILENT, Shape(), 1)[0]
    assert shrunk(failure) == shrunk(failure)


def test_nothing_is_spent_beyond_the_budget() -> None:
    """Without a budget, a case stays as it is; with a small one, it gets smaller, but not small."""
    (failure,) = failures(SILENT, Shape(agents=8, nodes=1), 1)
    case, kind = case_of(failure.plan, failure.schedule), kind_of(failure.error)
    few, many = shrink(case, kind, 1000), shrink(case, kind)
    assert shrink(case, kind, 0) == case
    assert weight(many) < weight(few) < weight(case)
    assert replay(few).kind == kind


def test_another_failure_is_not_taken_for_the_same() -> None:
    """A case that goes wrong in another way is not taken for a smaller one."""
    case = parse_case(["write a; write b", "write b; write a"])._replace(rule=SILENT)
    found = replay(case)
    assert found.kind == "Violation in world.check_quiet"
    assert shrink(case, "Broken in test_shrink.abandon") == case
