"""Links that break by themselves: proxies stand for the network (see `tests.cluster.harness`)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.cluster.harness import Proxy, World, until_alive
from tests.leader.harness import Member, agreed, have, nobody_leads, store, the_leader


def start(world: World, number: int) -> tuple[list[Member], dict[frozenset[str], Proxy]]:
    """Members, each connected with all others through a proxy."""
    names = [f"p{n}@127.0.0.1" for n in range(number)]
    links = {frozenset(pair): world.proxy() for pair in itertools.combinations(names, 2)}
    members: list[Member] = []
    for n, name in enumerate(names):
        peers = [links[frozenset((name, other))].peer(other) for other in names[:n]]
        members.append(Member(name, peers=peers, mesh=False, net_ticktime=2))
        world.processes.append(members[-1])
    for n, member in enumerate(members):
        for other in names[n + 1 :]:
            links[frozenset((member.name, other))].target = member.address
    for member in members:
        until_alive(member, *names)
    return members, links


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ("majority", "cut"),
        ("island", "stall"),
        pytest.param("majority", "stall", marks=pytest.mark.explore),
        pytest.param("island", "cut", marks=pytest.mark.explore),
    ],
)
def test_a_leader_that_is_cut_off(world: World, fault: str, policy: str) -> None:
    """Its links are closed, or go silent: the others elect; it leads on alone, or it does not.

    When the links are there again the nodes connect by themselves, and all agree and have all data.
    """
    members, links = start(world, 3)
    names = [member.name for member in members]
    options: dict[str, Any] = {"policy": policy, "nodes": names if policy == "majority" else None}
    for answer in [member.ask("stand", resource="r", **options) for member in members]:
        answer.get()
    leader, others = the_leader(members)
    store(leader, "a")
    have(members, a=1)
    broken = [proxy for pair, proxy in links.items() if leader.name in pair]
    for proxy in broken:
        getattr(proxy, fault)()
    agreed(others)
    store(others[0], "b")
    have(others, a=1, b=1)
    if policy == "majority":
        nobody_leads([leader])
        waits = leader.ask("leader_call", client="waits", request=["store", "c", 1], timeout=20)
    else:
        agreed([leader])
        store(leader, "c")
    for proxy in broken:
        proxy.heal()
    agreed(members)
    if policy == "majority":
        assert waits.get() == "ok"
    have(members, a=1, b=1, c=1)
