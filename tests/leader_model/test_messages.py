"""How many messages an election takes between nodes; `docs/leader_explained.md` says so, too."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from locks_lab.leader.schedule import ORDERS, chooser, in_order, settle
from locks_lab.leader.world import ElectionPlan, ElectionWorld
from locks_leader.core.contest import Contest
from locks_leader.core.events import BeginContest
from locks_leader.policy import Policy

FINDING = ("Here", "Gone", "WatchRequest")  # by these candidates find each other, and notice ends


def world(nodes: int, **more: Any) -> ElectionWorld:
    """Nodes with a candidate on each."""
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    return ElectionPlan(nodes=names, **more).world()


def sent(world: ElectionWorld) -> int:
    """Messages of the election between nodes so far."""
    return sum(count for kind, count in world.sent.items() if kind not in FINDING)


def cost(nodes: int, choose: Callable[..., Any]) -> int:
    """Messages of an election in which all start at the same time."""
    made = world(nodes)
    settle(made, choose)
    return sent(made)


@pytest.mark.parametrize("nodes", [2, 3, 5, 10])
def test_an_election_takes_few_messages(nodes: int) -> None:
    """It takes 10 for each node but one, in the order of sending; at most half as many more in others."""
    assert cost(nodes, in_order) == 10 * (nodes - 1)
    for order in ORDERS:
        for seed in range(3):
            taken = cost(nodes, chooser(random.Random(seed), order))
            assert taken <= 15 * (nodes - 1), f"seed {seed}, {order}"


def test_without_a_gate_it_takes_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """When all ask on all nodes at once, five nodes need more than ten times as many."""

    def contend(self: Contest) -> None:
        self.contending = self._passed = True
        self.round += 1
        self._asked = set(self._alive)
        self._out.append(BeginContest(self.round, frozenset(self._asked)))

    monkeypatch.setattr(Contest, "contend", contend)
    assert cost(5, chooser(random.Random(1), "any")) > 10 * 40


def test_who_cannot_win_is_quiet() -> None:
    """A node without a majority has no leader, and once that is settled nothing happens there at all."""
    names = ("n1", "n2", "n3")
    made = world(3, policy=Policy(2, frozenset(names)))
    settle(made)
    made.split(("n1",), ("n2", "n3"))
    settle(made)
    alone = [each for each in made.instances if each.ref.node == "n1"]
    assert [(each.machine.role, each.agents) for each in alone] == [("candidate", [])]
    assert made.choices(free=False) == []
