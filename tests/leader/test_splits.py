"""Splits of five processes, how soon they agree after a heal, and how much is said meanwhile.

`python -m tests.leader.splits` prints figures; `LOCKS_EXPLORE=1` does all twenty of each kind here.
"""

from __future__ import annotations

import random

import pytest

from tests.helpers import EXPLORE, SEED
from tests.leader.harness import (
    Cluster,
    agreed,
    frames,
    have,
    nobody_leads,
    store,
    the_leader,
    until_quiet,
)
from tests.leader.splits import KINDS, split_and_heal

TIMES = 20 if EXPLORE else 2
BOUND = 2500  # messages


@pytest.mark.parametrize("kind", KINDS)
def test_split_and_heal(cluster: Cluster, kind: str) -> None:
    """Each part agrees, and after the heal all agree and have what was written on both sides.

    The messages of a split and of a heal are bounded, and then nobody says anything.
    """
    chance = random.Random(SEED)
    members = cluster.meet(5)
    cluster.stand(members)
    agreed(members)
    splits = [split_and_heal(cluster, members, kind, chance, n) for n in range(TIMES)]
    print(splits)
    assert max(split.apart for split in splits) < BOUND
    assert max(split.healing for split in splits) < BOUND


def test_nobody_talks_without_a_quorum(cluster: Cluster) -> None:
    """Nodes that can't have a leader say nothing to each other, nor do those that have settled."""
    members = cluster.meet(5)
    cluster.stand(members, policy="majority", nodes=[member.name for member in members])
    leader, others = the_leader(members)
    small, large = [leader, others[0]], others[1:]
    cluster.part(small, large)
    nobody_leads(small)
    agreed(large)
    until_quiet(members, 0.5)
    said = frames(small)
    store(large[0], "a")
    have(large, a=1)
    assert frames(small) == said
    cluster.join(members)
    agreed(members)
    have(members, a=1)


def test_a_quorum_of_three_parts_of_two(cluster: Cluster) -> None:
    """Parts of two, two and one of a quorum of three: nobody leads, and nobody talks; then all agree."""
    members = cluster.meet(5)
    cluster.stand(members, quorum=3)
    agreed(members)
    cluster.part(members[:2], members[2:4], members[4:])
    nobody_leads(members)
    until_quiet(members, 0.5)
    cluster.join(members[:2], members[4:])
    agreed([*members[:2], *members[4:]])
    nobody_leads(members[2:4])
    cluster.join(members)
    agreed(members)
