"""Links that come and go at random, so that nodes see different others; many nodes in one process.

Between two nodes that are not connected there may be a third one that is connected with both. As long
as that is so nothing is said about who leads, but that callbacks come in their order; when all are
connected again all agree, and have all that was written. `LOCKS_SEED=17` chooses other links.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import locks
import locks_leader
from tests.cluster.nodes import Nodes, peer
from tests.helpers import EXPLORE, SEED
from tests.leader.members import NAMES, Member, agreed, have, start_member

ROUNDS = 300 if EXPLORE else 8


def connect(one: locks.node.Node, other: locks.node.Node) -> None:
    """Let two nodes be connected soon."""
    one.connect(peer(other), timeout=0)
    other.connect(peer(one), timeout=0)


def change_some(made: list[locks.node.Node], chance: random.Random) -> None:
    """Break some links, and mend some."""
    for _ in range(chance.randrange(1, 12)):
        one, other = chance.sample(made, 2)
        if chance.random() < 0.6:
            one.disconnect(other.name)
            other.disconnect(one.name)
        else:
            connect(one, other)


def connect_all(made: list[locks.node.Node]) -> None:
    """Mend all links, and wait for them."""
    for one, other in itertools.combinations(made, 2):
        connect(one, other)
    for node in made:
        assert node.await_nodes([other.name for other in made], timeout=10)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["island", "majority"])
def test_random_links(nodes: Nodes, policy: str) -> None:
    """Whatever links there were, all agree when all are there, and no acknowledged write is lost."""
    chance = random.Random(SEED)
    made = nodes.meet(*NAMES, mesh=False)
    options: dict[str, Any] = {"policy": policy, "nodes": NAMES if policy == "majority" else None}
    members: list[Member] = [start_member(node, **options) for node in made for _ in range(2)]
    written: dict[str, int] = {}
    for number in range(ROUNDS):
        for _ in range(chance.randrange(1, 8)):
            change_some(made, chance)
        key = f"k{number}"
        try:
            locks_leader.leader_call(chance.choice(members).ref, ("store", key, 1), timeout=0.05)
            written[key] = 1
        except (locks_leader.LeaderTimeout, locks_leader.LeaderDied):
            pass  # it may have been carried out or not
        connect_all(made)
        agreed(members)
        for member in members:
            member.journal.check()
            assert written.items() <= member.content.items()
    content = members[0].content
    have(members, **content)
    counts = [sum(m.journal.executed[f"k{number}"] for m in members) for number in range(ROUNDS)]
    assert max(counts) == 1
    assert all(counts[int(key[1:])] == 1 for key in written)
