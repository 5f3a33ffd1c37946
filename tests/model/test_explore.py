"""Every interleaving of small worlds.

Run with -s to see for each world, or kind of worlds, how many states there are. `make test` explores
some, `make explore` all of them, and `LOCKS_EXPLORE=1` larger ones, too; what takes longer still is
`python -m locks sim explore` (docs/simulator.md).
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest

from locks_lab.commands.explore import Search, explore_all, searches
from locks_lab.explorer.explore import Explored, explore
from locks_lab.explorer.small_worlds import Kind, ring, small_worlds, start
from locks_lab.schedules.schedule import run
from locks_lab.worlds.host import Violation
from locks_lab.worlds.network import Network, Party
from locks_lab.worlds.world import Faults, World
from tests.helpers import EXPLORE
from tests.model.test_rings import orders

LIMIT = 12_000_000 if EXPLORE else 2_000_000
# Processes, where there are many worlds and no other tests beside this one.
JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1

NODES = ("n1", "n2")
CRASH = Faults(crashes=1, nodes=("n2",), restarts=False)

explored = pytest.mark.skipif(not EXPLORE, reason="takes minutes: set LOCKS_EXPLORE=1")


def report(name: str, outcome: Explored) -> Explored:
    """Print a line of the table."""
    print(f"\n{name:42} {outcome}", end="")
    return outcome


def told(world: World) -> tuple[int, ...]:
    """How many deadlocks each client was told of."""
    return tuple(len(client.agent.deadlocks) for client in world.clients)


# --- Kinds of worlds: all ways to give each client a script

KINDS = {
    "reads, writes, upgrades, release": Kind(modes="rw", extras=("unlock",)),
    "writes, release, timeouts": Kind(extras=("try", "unlock")),
    "one lock: reads, writes, upgrades, release, timeouts": Kind(
        locks=1, modes="rw", extras=("try", "unlock")
    ),
    "reads, writes, aborts": Kind(modes="rw", options=("abort_on_deadlock",)),
    "locks asked for at once": Kind(extras=("ask",)),
    "three agents, one step each": Kind(agents=3, modes="rw", steps=1),
    "three agents, three locks, writes": Kind(agents=3, locks=3),
    "parents and children": Kind(locks=1, depth=2, modes="rw"),
    "two trees": Kind(depth=2),
    "two nodes, all": Kind(locks=1, nodes=2, steps=1),
    "two nodes, all, one crashes": Kind(locks=1, nodes=2, steps=1, faults=CRASH),
    "two nodes, all, one crashes and is awaited": Kind(
        locks=1, nodes=2, steps=1, faults=CRASH, options=("await_nodes",)
    ),
    "two nodes, all, tokens, one crashes and runs again, clients on both": Kind(
        locks=1,
        nodes=2,
        extras=("token",),
        faults=CRASH._replace(restarts=True),
        spread=True,
    ),
    "two nodes, majority, one crashes, clients on both": Kind(
        locks=1, nodes=2, steps=1, require="majority", faults=CRASH, spread=True
    ),
}
if EXPLORE:
    KINDS |= {
        "reads and writes asked for at once": Kind(modes="rw", extras=("ask",)),
        "two nodes, any": Kind(locks=1, nodes=2, steps=1, require="any"),
        "two nodes, all alive, one crashes": Kind(
            locks=1, nodes=2, steps=1, require="all_alive", faults=CRASH
        ),
        "two locks: all of that": Kind(modes="rw", extras=("try", "unlock")),
        "three steps": Kind(modes="rw", steps=3),
        "parents and children, three steps": Kind(locks=1, depth=2, modes="rw", steps=3),
        "three agents, two locks, reads and writes": Kind(agents=3, modes="rw", steps=2),
        "rings of four": Kind(agents=4, locks=4, ring=True),
        "two nodes, cut once": Kind(locks=1, nodes=2, steps=1, faults=Faults(cuts=1), spread=True),
    }


# Of these kinds one world in so many is explored, and all of them with LOCKS_EXPLORE=1.
PART = {
    "three agents, three locks, writes": 3,
    "one lock: reads, writes, upgrades, release, timeouts": 3,
    "writes, release, timeouts": 3,
}
SOME = 2  # worlds of each kind that `make test` explores,
LARGE = {  # but of these, where a single one takes too long; for crashes see test_losses_and_tokens.py
    "two nodes, all, one crashes",
    "two nodes, all, one crashes and is awaited",
    "two nodes, all, tokens, one crashes and runs again, clients on both",
    "two nodes, majority, one crashes, clients on both",
}


def explore_kind(name: str, wanted: list[Search]) -> None:
    """Explore these worlds of a kind."""
    kind = KINDS[name]
    total, wrong = explore_all(wanted, JOBS if len(wanted) > 60 else 1)
    print(f"\n{name}\n{total}")
    assert wrong is None, f"{wrong[0]}: {wrong[1].wrong}"
    assert total.worlds
    calm = not kind.extras and kind.faults == Faults() and kind.require == "all"
    if calm:
        assert total.superfluous == total.outdated == 0


@pytest.mark.parametrize("name", [name for name in KINDS if name not in LARGE])
def test_some_worlds_of_a_kind(name: str) -> None:
    """Nothing goes wrong in some of them, nobody is stuck, and nothing is left.

    Where nobody gives up, and nothing breaks, no deadlock is resolved that is none any more.
    """
    worlds = list(searches(KINDS[name], limit=LIMIT))
    explore_kind(name, worlds[:: -(-len(worlds) // SOME)])


@pytest.mark.explore
@pytest.mark.parametrize("name", KINDS)
def test_all_worlds_of_a_kind(name: str) -> None:
    """The same for all of them."""
    worlds = list(searches(KINDS[name], limit=LIMIT))
    explore_kind(name, worlds[:: 1 if EXPLORE else PART.get(name, 1)])


TOLD_WHOLE = (
    "reads, writes, upgrades, release",
    "reads, writes, aborts",
    "locks asked for at once",
    "three agents, three locks, writes",
    "parents and children",
    "two trees",
    "two nodes, all",
)


@pytest.mark.parametrize("name", TOLD_WHOLE)
def test_some_worlds_where_each_circle_is_told_as_long_ones_are(name: str) -> None:
    """The same if lock servers tell circles to their largest agent alone, however short they are."""
    worlds = list(searches(KINDS[name], "whole", limit=LIMIT))
    explore_kind(name, worlds[:1])


@pytest.mark.explore
@pytest.mark.parametrize("name", TOLD_WHOLE)
def test_all_worlds_where_each_circle_is_told_as_long_ones_are(name: str) -> None:
    """The same for all of them."""
    worlds = list(searches(KINDS[name], "whole", limit=LIMIT))
    explore_kind(name, worlds[:: 1 if EXPLORE else PART.get(name, 1)])


# --- Rings


@pytest.mark.parametrize("order", [*orders(2), *orders(3), *orders(4)], ids=str)
def test_rings_cost_one_surrender(order: tuple[int, ...]) -> None:
    """However messages of a ring of 2, 3 or 4 travel, exactly one agent surrenders, once.

    Each agent is told of it, or has ended before it could be. They have one lock each already.
    """
    world = start_ring(order)
    outcome = report(f"ring of {len(order)} {order}, held", explore(world, LIMIT, at_end=told))
    assert outcome.surrenders == (1, 1)
    assert outcome.superfluous == outcome.outdated == 0
    assert all(max(ends) == 1 for ends in outcome.ends)


def start_ring(order: Sequence[int]) -> World:
    """A ring in which each agent has its first lock; the second ones are still to be asked for."""
    world = World(ring(order))
    for client in world.clients:
        world.step(client.number)
        world.deliver()
    return world


# --- Worlds of more steps

WORLDS = {
    "two readers, one gives up": ["read a; write a", "read a; try write a; await"],
    "upgrade beside a reader": ["read a; read b; write a", "read b; write a"],
    "unlock between": ["write a; unlock a; write b; write a", "write a; write b"],
    "ask both at once": [
        "ask write a; ask write b; await",
        "ask write b; ask write a; await",
    ],
    "ask and unlock": ["ask write a; ask read b; unlock a; await", "write b; write a"],
    "time out": ["write a; try write b; await", "write b; write a"],
    "withdrawn upgrade, again": ["read a; try write a; write a", "read a"],
    "surrender on own wish": ["write a; surrender a; write b", "write b; write a"],
    "two transactions": ["write a; write b; again; write a", "write b; write a"],
    "transactions again and again": [
        "write a; write b; again; write b; write a",
        "write b; write a; again; write a; write b",
    ],
    "parent and child": ["read a/1; write b; read a", "write b; write a/1"],
    "two rows, one table": ["write a/1; write a/2; write b", "write b; write a"],
    "grandchild": ["write a/1/x; write a", "read a/2; write a/1"],
}

if EXPLORE:
    WORLDS |= {"both time out": ["write a; try write b; await", "write b; try write a; await"]}


LONG = {"ask and unlock", "transactions again and again"}


@pytest.mark.parametrize(
    "abort",
    [
        pytest.param(False, id="surrender"),
        pytest.param(True, id="abort", marks=pytest.mark.explore),
    ],
)
@pytest.mark.parametrize(
    "name", [pytest.param(w, marks=pytest.mark.explore if w in LONG else ()) for w in WORLDS]
)
def test_longer_scripts(name: str, abort: bool) -> None:
    """The same for some scripts of more steps, in either order of references."""
    for scripts in (WORLDS[name], WORLDS[name][::-1]):
        outcome = explore(World(scripts, abort_on_deadlock=abort), LIMIT)
        report(f"{name}{' abort' * abort}", outcome)
        if not any(word in "".join(scripts) for word in ("try", "unlock", "surrender")):
            assert outcome.superfluous == 0


@pytest.mark.parametrize("fate", ["ends", "crashes"])
def test_one_that_dies(fate: str) -> None:
    """One of two may end or crash at any moment of a deadlock; the other one finishes."""
    for number in (1, 2):
        faults = Faults(((number, fate),))  # type: ignore[arg-type]
        world = World(["write a; write b", "write b; write a"], faults=faults)
        report(f"opposite orders, {number} {fate}", explore(world, LIMIT))


def permuted(wanted: list[str], order: tuple[int, ...]) -> list[str]:
    """Scripts by their clients' references."""
    return [wanted[i] for i in order]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 1, 0)], ids=str)
def test_a_deadlock_through_one_who_only_stands_ahead(order: tuple[int, ...]) -> None:
    """H reads L and waits for M of B, who waits to read L behind S, who waits to write L."""
    world = World(permuted(["read a; write b", "write a", "write b; read a"], order))
    h, s, b = (order.index(i) + 1 for i in range(3))
    for number in (h, b, s):
        world.step(number)
        world.deliver()
    outcome = report(f"H, S, B in order {order}", explore(world, LIMIT))
    assert outcome.surrenders[0] >= 1


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 1, 0)], ids=str)
def test_a_deadlock_in_which_one_has_two_requests(order: tuple[int, ...]) -> None:
    """Only one agent of three has two requests: it reads a row and wants to write another one.

    Before that, S2 waits to write the row that it reads, and S1 to read the whole table.
    """
    world = World(permuted(["read db/t1; write db/t2", "read db", "write db/t1"], order))
    for number in (order.index(0) + 1, order.index(2) + 1):
        world.step(number)
        world.deliver()
    report(f"A, S1, S2 in order {order}", explore(world, LIMIT))


def test_a_deadlock_over_what_is_left_of_an_upgrade_that_was_given_up() -> None:
    """1 asks for a read, upgrades it and gives the upgrade up, all before a server answers: the read may close a circle.

    Until the release is answered, what is said of the read may be about what was released; then it counts.
    """
    world = World(["write a; ask read b; try write b; await", "read b; write a", "write b"])
    for number in (2, 3, 1):
        world.step(number)
        world.deliver()
    world.step(1)
    world.step(1)
    world.do(("time out", 1))
    world.step(1)
    world.step(2)
    outcome = explore(world)
    assert outcome.surrenders == (1, 1)
    assert not outcome.superfluous


@explored
@pytest.mark.parametrize("scripts", [["write a on n1,n2; write b on n1,n2"] * 2], ids=str)
def test_two_locks_on_two_nodes(scripts: list[str]) -> None:
    """Two agents with two locks on two nodes each, which hold their first locks."""
    world = World([scripts[0], "write b on n1,n2; write a on n1,n2"], NODES)
    for client in world.clients:
        world.step(client.number)
        world.deliver()
    outcome = report("two locks on two nodes", explore(world, LIMIT))
    assert outcome.surrenders[0] >= 1


# --- The explorer itself


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("two readers, one gives up", "grandchild"),
        pytest.param("time out", marks=pytest.mark.explore),
        pytest.param("two transactions", marks=pytest.mark.explore),
    ],
)
def test_random_schedules_end_where_it_says(name: str) -> None:
    """Whatever random schedules of the world itself come to, the explorer has found."""
    found = explore(World(WORLDS[name]), LIMIT, at_end=reports)
    for seed in range(30):
        world = World(WORLDS[name])
        run(world, random.Random(seed))
        assert reports(world) in found.ends, seed
        assert found.surrenders[0] <= len(world.carried_out) <= found.surrenders[1]


def reports(world: World) -> tuple[int, ...]:
    """How many deadlocks each client's ended transactions were told of."""
    return tuple(len(client.reports) for client in world.clients)


def test_who_waits_for_a_node_that_is_down_is_not_stuck() -> None:
    """A client that awaits its node waits for it at the end; one that doesn't has failed."""
    for await_nodes in (False, True):
        world = World(["write a on n2"], NODES, CRASH, await_nodes=await_nodes)
        ends = explore(
            world, at_end=lambda end: (end.clients[0].failed, end.clients[0].finished)
        ).ends
        assert ((False, False) in ends) == await_nodes
        assert ((True, True) in ends) != await_nodes
    world = World(["write a on n2"], NODES, CRASH._replace(restarts=True), await_nodes=True)
    done = explore(world, at_end=lambda end: end.clients[0].finished)
    assert done.ends == {True}


def test_a_lost_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the network loses a message while nothing is broken, somebody is stuck."""
    send = Network.send

    def lossy(self: Network, sender: Party, receiver: Party, message: object) -> None:
        if self.sent == 1:  # the lock server's answer
            self.sent += 1
        else:
            send(self, sender, receiver, message)

    monkeypatch.setattr(Network, "send", lossy)
    with pytest.raises(Violation, match="stuck"):
        run(World(["write a; write b"]), random.Random(1))


def test_worlds_of_a_kind_differ_in_more_than_names() -> None:
    """Each combination of scripts occurs once, whatever its locks are called."""
    assert [len(list(small_worlds(kind))) for kind in (Kind(), Kind(agents=3, locks=3))] == [2, 36]
    first = next(small_worlds(Kind(agents=3, locks=3)))
    assert first.scripts == ring((0, 1, 2))
    held = start(first, held=True)
    assert all(client.told for client in held.clients)
