"""What users of the original have reported, by the number of the issue of `uwiger/locks`."""

from __future__ import annotations

from tests.leader.harness import Cluster, agreed, have, store

HEALS = 5


def test_issue_25_no_one_becomes_a_leader_after_netsplit(cluster: Cluster) -> None:
    """Two nodes that led alone meet, are parted, and meet again: each time one of them leads.

    In the original both were elected at the same time, and then both surrendered.
    """
    a, b = members = cluster.meet(2)
    cluster.part([a], [b])
    cluster.stand(members)
    written = {}
    for heal in range(HEALS):
        assert agreed([a])["leader_node"] == a.name
        assert agreed([b])["leader_node"] == b.name
        for member, key in ((a, f"a{heal}"), (b, f"b{heal}")):
            store(member, key)
            written[key] = 1
        cluster.join(members)
        agreed(members)
        have(members, **written)
        cluster.part([a], [b])


def test_issue_30_calls_time_out_after_a_joined_node_that_led_alone(cluster: Cluster) -> None:
    """A node that led alone joins four that have a leader: calls through each of the five are answered.

    In the original two leaders met at those who followed, and calls through these timed out for ever.
    The new node meets the followers first, and the old leader last, as it was there.
    """
    members = cluster.meet(5)
    old, new = members[:4], members[4]
    cluster.part(old, [new])
    cluster.stand(members)
    store(old[0], "before")
    store(new, "alone")
    leader = agreed(old)["leader_node"]
    followers = [member for member in old if member.name != leader]
    (led,) = [member for member in old if member.name == leader]
    for follower in followers:
        cluster.join([follower, new])
    for number, member in enumerate([*followers, led]):  # also while the two leaders do not meet
        store(member, f"between{number}")
    cluster.join([led, new])
    agreed(members)
    content = {"before": 1, "alone": 1, **{f"between{number}": 1 for number in range(4)}}
    have(members, **content)
    for number, member in enumerate(members):
        store(member, f"after{number}", timeout=5)
        content[f"after{number}"] = 1
    have(members, **content)
