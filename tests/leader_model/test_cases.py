"""The original's own test cases for elections, and known failures of it, in simulation."""

from __future__ import annotations

import random

import pytest

from locks_lab.leader.parties import MemberId
from locks_lab.leader.plan import PolicyName, node_names, policy_for
from locks_lab.leader.schedule import ORDERS, Order, chooser, settle
from locks_lab.leader.world import ElectionPlan, ElectionWorld


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> Order:
    """How messages travel."""
    found: Order = request.param
    return found


class Cluster:
    """A world that settles after each step, with messages that travel at random.

    Args:
        nodes: How many nodes.
        order: How messages travel.
        seats: What runs on each of them at the beginning.
        policy: The election's policy.
    """

    def __init__(
        self,
        nodes: int,
        order: Order,
        instances: tuple[str, ...] = ("candidate",),
        policy: PolicyName = "island",
    ) -> None:
        names = node_names(nodes)
        plan = ElectionPlan(names, (instances,), policy=policy_for(policy, names))  # type: ignore[arg-type]
        self.names = names
        self.world: ElectionWorld = plan.world()
        self.choose = chooser(random.Random(nodes), order)
        self.settle()

    def settle(self) -> None:
        """Nothing needs to happen any more, and all is checked."""
        settle(self.world, self.choose)

    def write(self, node: str) -> str:
        """Call the leader through an instance on a node; returns the key once that is answered."""
        (ref, *_) = self.world.nodes[node].instances
        key = self.world.call(ref)
        self.settle()
        assert self.world.instance(ref).answers[key] == "done"
        return key

    def sets(self) -> set[frozenset[str]]:
        """The different sets that instances have."""
        return {each.app.keys for each in self.world.instances}

    def leaders(self) -> list[MemberId]:
        """Who leads."""
        return [each.ref for each in self.world.instances if each.machine.role == "leader"]


def test_three_candidates_in_one_node(order: Order) -> None:
    """One of them leads; when it ends, another one does, with what was written."""
    cluster = Cluster(1, order, ("candidate",) * 3)
    (first,) = cluster.leaders()
    key = cluster.write("n1")
    cluster.world.kill(first)
    cluster.settle()
    (second,) = cluster.leaders()
    assert second != first
    assert cluster.sets() == {frozenset({key})}


@pytest.mark.parametrize("nodes", [2, 3, 4, 5])
def test_all_nodes_see_what_one_wrote(nodes: int, order: Order) -> None:
    """Whoever writes, through whichever node, all have it."""
    cluster = Cluster(nodes, order)
    keys = {cluster.write(name) for name in cluster.names}
    assert cluster.sets() == {frozenset(keys)}


def test_split_of_two_and_heal(order: Order) -> None:
    """Each elects its own; after the heal there is one leader again, with what both wrote."""
    cluster = Cluster(2, order)
    cluster.world.split(["n1"])
    cluster.settle()
    assert [ref.node for ref in cluster.leaders()] == ["n1", "n2"]
    keys = {cluster.write("n1"), cluster.write("n2")}
    cluster.world.heal()
    cluster.settle()
    assert len(cluster.leaders()) == 1
    assert cluster.sets() == {frozenset(keys)}


@pytest.mark.parametrize("nodes", [3, 4, 5])
@pytest.mark.parametrize("first", [0, 1])
def test_split_of_n_in_two_and_the_rest_and_heal(nodes: int, first: int, order: Order) -> None:
    """Both sides write, with the old leader on either side; after the heal all have all of it."""
    cluster = Cluster(nodes, order)
    before = cluster.write("n1")
    part = cluster.names[first : first + 2]
    cluster.world.split(part)
    cluster.settle()
    assert len(cluster.leaders()) == 2
    rest = next(name for name in cluster.names if name not in part)
    keys = {before, cluster.write(part[0]), cluster.write(rest)}
    cluster.world.heal()
    cluster.settle()
    assert len(cluster.leaders()) == 1
    assert cluster.sets() == {frozenset(keys)}


def test_nodes_that_join_one_by_one(order: Order) -> None:
    """They always agree, and see the first write."""
    cluster = Cluster(5, order, ())
    cluster.world.start("n3")
    key = cluster.write("n3")
    for name in ("n1", "n5", "n2", "n4"):
        cluster.world.start(name)
        cluster.settle()
        assert len(cluster.leaders()) == 1
        assert cluster.sets() == {frozenset({key})}


def test_a_fourth_node_joins_a_settled_cluster_of_three(order: Order) -> None:
    """Its candidate, which has led alone, or which starts then, follows with what was written."""
    cluster = Cluster(4, order, ())
    cluster.world.split(["n4"])
    for name in cluster.names:
        cluster.world.start(name)
        cluster.settle()
    keys = {cluster.write("n1"), cluster.write("n4")}
    cluster.world.heal()
    cluster.settle()
    assert len(cluster.leaders()) == 1
    assert cluster.sets() == {frozenset(keys)}


def test_upstream_25_somebody_leads_after_a_heal(order: Order) -> None:
    """uwiger/locks#25: after a split and a heal nobody led; here somebody does, again and again."""
    cluster = Cluster(3, order)
    keys = set()
    for round in range(10):
        cluster.world.split([cluster.names[round % 3]])
        cluster.settle()
        assert len(cluster.leaders()) == 2
        keys |= {cluster.write(name) for name in cluster.names}
        cluster.world.heal()
        cluster.settle()
        assert len(cluster.leaders()) == 1
        assert cluster.sets() == {frozenset(keys)}


@pytest.mark.parametrize("alone", ["n1", "n2", "n3"])
def test_upstream_30_calls_are_answered_after_a_node_joined_that_led_alone(
    alone: str, order: Order
) -> None:
    """uwiger/locks#30: calls timed out then; here they are answered through every node."""
    cluster = Cluster(3, order, ())
    cluster.world.split([alone])
    cluster.world.start(alone)
    cluster.settle()
    for name in cluster.names:
        if name != alone:
            cluster.world.start(name)
    cluster.settle()
    cluster.world.heal()
    pending = [(ref.ref, cluster.world.call(ref.ref)) for ref in cluster.world.instances]
    cluster.settle()
    for ref, key in pending:
        assert cluster.world.instance(ref).answers[key] in ("done", "LeaderDied")
    keys = {cluster.write(name) for name in cluster.names}
    assert all(keys <= found for found in cluster.sets())


@pytest.mark.parametrize("policy", ["majority", "quorum"])
@pytest.mark.parametrize("small", [("n1",), ("n5",), ("n1", "n2"), ("n4", "n5")])
def test_five_nodes_in_two_parts_with_a_quorum(
    policy: PolicyName, small: tuple[str, ...], order: Order
) -> None:
    """Only the larger part has a leader; calls in the smaller one wait for the heal."""
    cluster = Cluster(5, order, policy=policy)
    cluster.world.split(small)
    cluster.settle()
    (leader,) = cluster.leaders()
    assert leader.node not in small
    (ref,) = cluster.world.nodes[small[0]].instances
    waiting = cluster.world.call(ref)
    cluster.settle()
    assert cluster.world.instance(ref).answers == {}
    key = cluster.write(leader.node)
    cluster.world.heal()
    cluster.settle()
    assert cluster.world.instance(ref).answers == {waiting: "done"}
    assert cluster.sets() == {frozenset({key, waiting})}


def test_workers_follow(order: Order) -> None:
    """Workers follow and call, and never lead: not even when no candidate is left."""
    cluster = Cluster(2, order, ("candidate", "worker"))
    key = cluster.write("n1")
    assert cluster.sets() == {frozenset({key})}
    for each in list(cluster.world.instances):
        if each.machine.kind == "candidate":
            cluster.world.kill(each.ref)
    cluster.settle()
    assert cluster.leaders() == []
    cluster.world.start("n2")
    cluster.settle()
    assert [ref.node for ref in cluster.leaders()] == ["n2"]


def test_what_is_told_to_candidates_alone(order: Order) -> None:
    """`broadcast_to_candidates`: all candidates that follow have it then, workers have not."""
    cluster = Cluster(3, order, ("candidate", "worker"))
    (leader,) = cluster.leaders()
    cluster.world.do(("broadcast", (leader, "candidates")))
    cluster.settle()
    told = {each.ref: each.app.hints for each in cluster.world.instances}
    for each in cluster.world.instances:
        follows = each.machine.kind == "candidate" and each.ref != leader
        assert told[each.ref] == ({"x"} if follows else set())
