"""Instances that end and come back, on nodes that stay: whoever leads by then goes on leading."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import locks
import locks_leader
from locks.runtime.waiter import Event
from locks_leader import Behaviour
from tests.cluster.nodes import Nodes, peer, until_members
from tests.helpers import EXPLORE, LIMIT, SEED, eventually
from tests.leader.harness import Cluster, agreed
from tests.leader.members import NAMES

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


@pytest.mark.parametrize("come", [True, False])
def test_nodes_that_come_or_go_while_an_instance_begins_are_noticed(
    nodes: Nodes, come: bool
) -> None:
    """It would wait for ever if the nodes that make a majority had come before it listened; and for nodes that have gone."""
    began, goes_on = threading.Event(), Event()

    class Slow(Behaviour):
        """Its `init` lasts."""

        def init(self, *args: object) -> None:
            began.set()
            goes_on.wait(LIMIT)

    own, *others = [nodes.start(name) for name in NAMES[:3]]
    if not come:
        assert own.connect(peer(others[0]))
        until_members(own, *NAMES[:2])
        assert own.connect(peer(others[1]))
        until_members(own, *NAMES[:3])
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(locks_leader.start, Slow, resource="r", node=own, nodes=NAMES[:3])
        assert began.wait(LIMIT)
        if come:
            assert own.connect(peer(others[0]))
            until_members(own, *NAMES[:2])
        else:
            others[1].stop()
            eventually(lambda: NAMES[2] not in own.alive)
        goes_on.open()
        instance = started.result(LIMIT)
    eventually(lambda: locks_leader.info(instance).leader == instance)
    instance.stop()
