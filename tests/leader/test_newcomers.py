"""Instances that end and come back, on nodes that stay: whoever leads by then goes on leading."""

from __future__ import annotations

import os
import random

import pytest

from tests.leader.harness import Cluster, agreed

SEED = int(os.environ.get("LOCKS_SEED", "0"))
SOME = 20
MANY = 300


@pytest.mark.parametrize(
    "rounds", [SOME, pytest.param(MANY, marks=pytest.mark.explore)], ids=["some", "many"]
)
def test_a_leader_stays_when_others_come(cluster: Cluster, rounds: int) -> None:
    """It keeps its place and its term, whoever comes, wherever locks of the one that ended were.

    A newcomer may be the first to ask on its node; somebody may have got the lock there while it waited for the
    leader's. In such deadlocks the leader could be the one that yields.
    """
    print(f"LOCKS_SEED={SEED}")
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
