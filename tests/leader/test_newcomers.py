"""Instances that end and come back, on nodes that stay: whoever leads by then goes on leading."""

from __future__ import annotations

import random

import pytest

import locks
import locks_leader
from locks_leader import Behaviour
from tests.cluster.nodes import Nodes
from tests.helpers import EXPLORE, SEED, eventually
from tests.leader.harness import Cluster, agreed

ELECTION = ("$election", "r")  # the lock of the election about "r"
ROUNDS = 300 if EXPLORE else 20


@pytest.mark.slow
def test_a_leader_stays_when_others_come(cluster: Cluster) -> None:
    """It keeps its place and its term, whoever comes, wherever locks of the one that ended were.

    A newcomer may be the first to ask on its node; somebody may have got the lock there while it waited for the
    leader's. In such deadlocks the leader could be the one that yields.
    """
    rng = random.Random(SEED)
    members = cluster.meet(3)
    resource = cluster.stand(members)
    agreed(members)
    for number in range(ROUNDS):
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
