"""Clients on nodes of their own, connected by way of lock servers: small worlds whole, and random ones."""

from __future__ import annotations

import random
from typing import Any

import pytest

from locks_lab.commands.explore import explore_all, searches
from locks_lab.explorer.small_worlds import Kind, placed, ring, start
from locks_lab.schedules.plan import Plan, client_names, plan
from locks_lab.schedules.schedule import POLICIES, run
from locks_lab.worlds.world import Faults, World
from tests.helpers import EXPLORE

explored = pytest.mark.skipif(not EXPLORE, reason="takes minutes: set LOCKS_EXPLORE=1")
CRASH = Faults((), 0, 1, ("n1",), False)
CRASH_AND_RUN = CRASH._replace(restarts=True)
TWO = Kind(2, 2, 2, "rw", spokes=True, apart=True)
RING = Kind(3, 3, 3, ring=True, held=True, spokes=True, apart=True)


def all_of(kind: Kind) -> Any:
    """What exploring all worlds of a kind finds; nothing may be wrong."""
    total, wrong = explore_all(searches(kind))
    assert wrong is None, wrong
    return total


# --- Whole worlds -------------------------------------------------------------------------------


@pytest.mark.explore
def test_two_clients() -> None:
    """Two lock servers with a lock each; each client takes two steps."""
    total = all_of(TWO._replace(modes="w"))
    assert (total.worlds, total.least, total.most) == (2, 0, 1)
    assert total.superfluous == 0


@pytest.mark.explore
def test_two_clients_who_read_and_write() -> None:
    """The same with reads."""
    total = all_of(TWO)
    assert (total.worlds, total.least, total.most) == (50, 0, 1)
    assert total.superfluous == 0


@pytest.mark.explore
@pytest.mark.parametrize(
    ("modes", "faults"),
    [
        pytest.param("w", CRASH, id="crash"),
        pytest.param("w", CRASH_AND_RUN, id="restart"),
        pytest.param("rw", CRASH, id="reads, crash", marks=explored),
        pytest.param("rw", CRASH_AND_RUN, id="reads, restart", marks=explored),
    ],
)
def test_two_clients_when_a_lock_server_crashes(modes: str, faults: Faults) -> None:
    """At any moment, and the connection of the clients is lost with it."""
    all_of(TWO._replace(modes=modes, faults=faults))


@pytest.mark.slow
def test_rings_of_three_over_one_server() -> None:
    """In both orders, from the very beginning: one surrender, whatever order messages arrive in."""
    total = all_of(RING._replace(nodes=1, held=False))
    assert (total.worlds, total.least, total.most, total.superfluous) == (2, 0, 1, 0)


@pytest.mark.explore
def test_rings_of_three_over_one_server_that_crashes() -> None:
    """Its locks are gone then, and whoever needs them ends."""
    assert all_of(RING._replace(nodes=1, faults=CRASH)).worlds == 2


@explored
def test_rings_of_three_over_three_servers() -> None:
    """From where each client has its first lock."""
    total = all_of(RING)
    assert (total.worlds, total.least, total.most, total.superfluous) == (2, 1, 1, 0)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)], ids=["up", "down"])
def test_rings_of_three_over_three_servers_of_which_one_crashes(order: tuple[int, ...]) -> None:
    """At random moments, with the connections of the clients; exploring that whole takes more than a million states."""
    nodes = ("n1", "n2", "n3")
    crashed = 0
    for seed in range(100):
        faults = Faults((), 0, 1, nodes, bool(seed % 2))
        plan = Plan(placed(ring(order), nodes), nodes, client_names(3), faults)
        if seed % 4 > 1:
            plan = plan._replace(options=("await_nodes",))
        world = plan.world()
        run(world, random.Random(seed), POLICIES[seed % len(POLICIES)], fault_rate=0.05)
        crashed += not world.crashes
    assert crashed > 50


# --- A lock server that one client can't reach --------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_clients_without_a_server_in_common(policy: Any) -> None:
    """Client 3 and client 4, the youngest, are neighbours in the end, and have no lock server in common."""
    scripts = (
        "write a on n4; write b on n1",
        "write c on n2; write d on n3",
        "write b on n1; write c on n2",
        "write d on n3; write a on n4",
    )
    nodes = ("n1", "n2", "n3", "n4")
    reached = {"c1": "n4 n1", "c2": "n2 n3", "c3": "n1 n2", "c4": "n3 n4"}
    unlinked = [(c, n) for c, there in reached.items() for n in nodes if n not in there]
    for seed in range(10):
        world = World(scripts, nodes, homes=client_names(4), unlinked=unlinked)
        for number in (1, 2, 3, 4):
            world.step(number)
            world.deliver()
        run(world, random.Random(seed), policy)
        assert len(world.carried_out) == 1
        assert not world.superfluous
        assert world.sent["Knowledge"] >= 3, seed


# --- Messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 4, 7])
def test_messages_of_a_ring(size: int) -> None:
    """A ring of K takes 2 (K - 1) messages between agents, if they look when all that was on its way has arrived."""
    for seed in range(5):
        order = list(range(size))
        random.Random(seed).shuffle(order)
        world = start(Plan(ring(order), homes=client_names(size)), held=True)
        world.step(*range(1, size + 1))
        world.deliver()
        assert len(world.carried_out) == 1
        assert world.sent["Knowledge"] == 2 * (size - 1)


def test_handing_on_is_told_to_no_agent() -> None:
    """It takes two messages, as on one node."""
    world = World(["write a"] * 6, homes=client_names(6))
    for client in world.clients:
        world.step(client.number)
        world.deliver("n1")
    for client in world.clients[:5]:
        world.deliver()
        before = world.sent.total()
        world.step(client.number)
        world.deliver("n1")
        assert world.sent.total() - before == 2


def test_random_worlds_have_client_nodes() -> None:
    """Some of those that are drawn from seeds, with lock servers that one client can't reach."""
    plans = [plan(seed) for seed in range(200)]
    spokes = [each for each in plans if "c1" in each.homes]
    assert 10 < len(spokes) < 60
    assert any(each.unlinked for each in spokes)
    assert any("c1" in each.faults.nodes for each in spokes)


# --- The connections of client nodes ------------------------------------------------------------


def connected(world: World) -> list[str]:
    """Which client nodes take themselves to be connected with each other."""
    seen = world.network.seen
    return sorted(f"{a}-{b}" for (a, b), how in seen.items() if how == "up" and "n" not in a + b)


def test_a_connection_of_clients_is_lost_with_any_server_of_an_end() -> None:
    """It may be by way of that one; when both have noticed, there is a new one over another server."""
    world = World(["write a"] * 3, ("n1", "n2"), Faults(cuts=1), client_names(3))
    assert len(connected(world)) == 6
    world.do(("cut", ("c1", "n1")))
    assert connected(world) == ["c2-c3", "c3-c2"]
    for pair in world.network.notices():
        world.do(("notice", pair))
    assert sorted(world.network.connectable()) == [("c1", "c2"), ("c1", "c3")]
    for pair in world.network.connectable():
        world.do(("connect", pair))
    for pair in world.network.notices():
        world.do(("notice", pair))
    assert len(connected(world)) == 6
