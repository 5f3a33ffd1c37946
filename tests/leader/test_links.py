"""Links that break by themselves: proxies stand for the network (see `tests.cluster.harness`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.harness import Net, World
from tests.leader.harness import Member, agreed, have, nobody_leads, store, the_leader


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "fault"), [("majority", "cut"), ("island", "stall")])
def test_a_leader_that_is_cut_off(world: World, fault: str, policy: str) -> None:
    """Its links are closed, or go silent: the others elect; it leads on alone, or it does not.

    When the links are there again the nodes connect by themselves, and all agree and have all data.
    """
    names = [f"p{number}@127.0.0.1" for number in range(3)]
    net = Net(world, (), names, kind=Member)
    members = [net.there[name] for name in names]
    options: dict[str, Any] = {"policy": policy, "nodes": names if policy == "majority" else None}
    for answer in [member.ask("stand", resource="r", **options) for member in members]:
        answer.get()
    leader, others = the_leader(members)
    store(leader, "a")
    have(members, a=1)
    broken = net.links_of(leader.name)
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
