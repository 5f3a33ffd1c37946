"""Shrinking runs that went wrong, in worlds of machines that were broken on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from locks.core.agent.machine import AgentMachine
from locks_lab.cases.case import Case, case_of, kind_of, parse_case, replay
from locks_lab.cases.shrink import shrink, weight
from locks_lab.schedules.plan import Shape, plan
from locks_lab.schedules.runs import FailedRun, run_plan
from locks_lab.worlds.rules import Rule
from tests.model.test_run import SILENT


class Broken(Exception):
    """A machine is broken."""


class FearsLosses(AgentMachine):
    """Can't bear that another node is lost."""

    def node_down(self, node: str) -> Any:
        raise Broken("lost a node")


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
