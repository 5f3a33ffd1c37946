"""Losses and fencing tokens in worlds whose nodes crash, run again, and are cut off.

That losses are told, and that tokens rise, is checked in each world (`locks_lab.worlds.checks`,
`locks_lab.worlds.host`); `test_checks.py` shows that these checks can fail.
"""

from __future__ import annotations

import pytest

from locks.core.server.machine import ServerMachine
from locks_lab.explorer.explore import explore
from locks_lab.schedules.schedule import finish
from locks_lab.worlds.rules import OURS, Rule
from locks_lab.worlds.world import Faults, World

THREE = ("n1", "n2", "n3")
WANTED = "write a on n1,n2,n3 majority; token a"


class Forgetful(ServerMachine):
    """Begins with small versions whenever it is started: its clock stands still."""

    def __init__(self, node: str, first_version: int = 0) -> None:
        super().__init__(node)


FORGETFUL = Rule("forgetful", "versions begin anew", server=Forgetful)


def first_has_ended(faults: Faults, rule: Rule = OURS) -> World:
    """The first client has got a on n1 and n2, with a token that n1 has given; then it has ended."""
    world = World(
        [f"write b on n1; write c on n1; {WANTED}", WANTED],
        THREE,
        faults,
        rule=rule,
        await_nodes=True,
    )
    for _ in range(2):
        world.step(1)
        world.deliver()
    for _ in range(3):
        world.step(1)
        for node in ("n1", "n2"):
            world.deliver_between(1, node)
            world.deliver_between(node, 1)
    assert list(world.clients[0].tokens.values()) == [3]
    world.deliver()
    return world


@pytest.mark.explore
def test_a_node_that_runs_again_gives_larger_tokens() -> None:
    """One of the two that knew the token crashes at any moment while the next one wants the lock.

    The next one gets a token that is larger, which is checked, or loses the lock before.
    """
    faults = Faults(crashes=1, nodes=("n2",))
    outcome = explore(first_has_ended(faults), at_end=lambda end: len(end.clients[1].tokens))
    assert outcome.ends == {0, 1}


def test_a_node_is_told_the_versions_of_those_that_it_connects_to() -> None:
    """So it gives larger tokens, even if its clock stands still."""
    world = first_has_ended(Faults(crashes=1, nodes=("n2",)), FORGETFUL)
    world.do(("crash", "n2"))
    for node in ("n1", "n3"):
        world.do(("notice", (node, "n2")))
    world.do(("restart", "n2"))
    assert world.servers["n2"].version == 0
    world.do(("connect", ("n1", "n2")))
    for pair in (("n1", "n2"), ("n2", "n1")):
        world.do(("notice", pair))
    assert world.servers["n2"].version == world.servers["n1"].version > 3
    finish(world)
    assert max(world.clients[1].tokens.values()) > 3


@pytest.mark.parametrize("await_nodes", [False, True])
def test_a_lock_that_is_lost_ends_the_transaction_or_is_awaited(await_nodes: bool) -> None:
    """Whenever n2 crashes: the client has its lock to the end, or it ends, or it gets it again."""
    world = World(
        ["write a on n1,n2 all; write b; await"],
        ("n1", "n2"),
        Faults(crashes=1, nodes=("n2",)),
        await_nodes=await_nodes,
    )
    ends = explore(world, at_end=lambda end: (end.clients[0].finished, end.clients[0].failed)).ends
    assert ends == ({(True, False)} if await_nodes else {(True, False), (True, True)})


def test_what_is_lost_is_told_once() -> None:
    """A client that loses its lock is told so, and gets it again when the node is back."""
    world = World(
        ["write a on n2; write b; await"],
        ("n1", "n2"),
        Faults(crashes=1, nodes=("n2",)),
        trace=True,
        await_nodes=True,
    )
    world.step(1)
    world.deliver()
    client = world.clients[0]
    assert client.told
    world.do(("crash", "n2"))
    world.do(("notice", ("n1", "n2")))
    assert not client.told
    assert client.host.lost == {("a",)}
    finish(world)
    assert world.losses == 1
    assert [event.lost for event in world.events or () if event.lost] == [((1, (("a",),)),)]
