"""Instances that end and come back, on nodes that stay: whoever leads by then goes on leading."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import locks
import locks_leader
from locks.node.peers.cluster import Cluster as Peers
from locks_leader import Behaviour
from locks_leader.shell.hearing import Hearing
from tests.cluster.nodes import Nodes
from tests.helpers import SEED, eventually
from tests.leader.harness import Cluster, agreed

ELECTION = (locks.values.Atom("locks_leader"), "r")  # the lock of the election about "r"
SOME = 20
MANY = 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "rounds", [SOME, pytest.param(MANY, marks=pytest.mark.explore)], ids=["some", "many"]
)
def test_a_leader_stays_when_others_come(cluster: Cluster, rounds: int) -> None:
    """It keeps its place and its term, whoever comes, wherever locks of the one that ended were.

    A newcomer may be the first to ask on its node; somebody may have got the lock there while it waited for the
    leader's. In such deadlocks the leader could be the one that yields.
    """
    rng = random.Random(SEED)
    members = cluster.meet(3)
    resource = cluster.stand(members)
    agreed(members)
    for number in range(rounds):
        one = rng.choice(members)
        one.do(rng.choice(["kill", "end_instance"]))
        leads = agreed([member for member in members if member is not one])
        cluster.stand([one], resource)
        found = agreed(members)
        led, leads_now = ((info["leader_node"], info["role"]) for info in (leads, found))
        assert led == leads_now, f"round {number}"


def test_a_newcomer_begins_where_the_lock_is_asked_for(nodes: Nodes) -> None:
    """Not on its own node, although that is the first by name: only the leader asks there.

    Else it would have the lock there when the leader asks for it, and each would wait for the other.
    """
    own, first, second = nodes.meet("m0@127.0.0.1", "m1@127.0.0.1", "m2@127.0.0.1")

    def begin(node: locks.node.Node) -> None:
        ref = locks_leader.start(Behaviour, resource="r", node=node)
        eventually(lambda: locks_leader.info(ref).leader is not None)

    def who_asks(node: locks.node.Node) -> list[str]:
        return [request.agent.node for request in node.view(ELECTION).requests]

    begin(first)
    begin(second)
    begin(own)
    eventually(lambda: len(who_asks(first)) == 3)
    assert who_asks(own) == who_asks(second) == [first.name]


@pytest.mark.slow
def test_an_instance_is_told_once_of_all_answers_that_it_waits_for(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that does not answer holds it up for a moment only. When that answers, it is told of this alone."""
    members = nodes.meet(*(f"m{number}@127.0.0.1" for number in range(4)))
    own, *_, slow = members
    held_back: list[Callable[[], object]] = []
    waited: list[tuple[bool, frozenset[str]]] = []
    answer, heard = Peers._answer_view, Hearing.heard

    def answers(self: Peers, *args: Any) -> None:
        if self.node is slow and len(held_back) < 1:
            held_back.append(lambda: self.node.turn.run(answer, self, *args))
        else:
            answer(self, *args)

    def hears(self: Hearing) -> bool:
        begins = heard(self)
        waited.append((begins, self.asked))
        return begins

    monkeypatch.setattr(Peers, "_answer_view", answers)
    monkeypatch.setattr(Hearing, "heard", hears)
    ref = locks_leader.start(Behaviour, resource="r", node=own)
    eventually(lambda: locks_leader.info(ref).leader is not None)
    assert waited == [(True, frozenset({own.name, slow.name}))], "three answers less one"
    held_back[0]()
    eventually(lambda: len(waited) == 2)
    assert waited[1] == (False, frozenset({own.name}))
    again = locks_leader.start(Behaviour, resource="other", node=own)
    eventually(lambda: locks_leader.info(again).leader is not None)
    assert waited[2:] == [(True, frozenset({own.name}))], "all three have answered"
