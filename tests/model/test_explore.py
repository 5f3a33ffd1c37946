"""Every interleaving of small worlds.

Run with -s to see for each world how many states it has.
"""

from __future__ import annotations

import itertools
import os
import random

import pytest

from tests.model.explore import Outcome, Space, TooMany, explore
from tests.model.test_rings import orders, scripts
from tests.model.world import Step, World

EXPLORE = os.environ.get("LOCKS_EXPLORE") == "1"
LIMIT = 12_000_000 if EXPLORE else 1_000_000

A, B, C = ("a",), ("b",), ("c",)
A1, A2, A1X = ("a", 1), ("a", 2), ("a", 1, "x")
ORDERS = [*itertools.permutations(range(3))]
BOTH = (("n1", "n2"), "all")
TURNED = (("n2", "n1"), "all")
ANY = (("n1", "n2"), "any")

explored = pytest.mark.skipif(not EXPLORE, reason="takes minutes: set LOCKS_EXPLORE=1")


def report(name: str, outcome: Outcome) -> Outcome:
    """Print a line of the table."""
    print(f"\n{name:42} {outcome}", end="")
    return outcome


def held(order: tuple[int, ...]) -> World:
    """A ring in which each agent has its first lock; the second ones are still to be asked for."""
    world = World(scripts(order))
    for client in world.clients:
        world.step(client.number)
        world.deliver()
    return world


def told(world: World) -> tuple[int, ...]:
    """How many deadlocks each client was told of."""
    return tuple(len(client.agent.deadlocks) for client in world.clients)


# --- Rings


@pytest.mark.parametrize("order", [*orders(2), *orders(3)], ids=str)
def test_rings_cost_one_surrender(order: tuple[int, ...]) -> None:
    """However messages of a ring of 2 or 3 travel, exactly one agent surrenders, once.

    Each agent is told of it, or has ended before it could be.
    """
    outcome = report(
        f"ring of {len(order)} {order}, held", explore(held(order), LIMIT, at_end=told)
    )
    assert outcome.surrenders == (1, 1)
    assert outcome.superfluous == 0
    assert all(max(ends) == 1 for ends in outcome.ends)


@explored
@pytest.mark.parametrize("order", [*orders(4)], ids=str)
def test_rings_of_four_cost_one_surrender(order: tuple[int, ...]) -> None:
    """The same for rings of 4."""
    outcome = report(f"ring of 4 {order}, held", explore(held(order), LIMIT, at_end=told))
    assert outcome.surrenders == (1, 1)
    assert outcome.superfluous == 0


# --- Two and three agents

READ_A, WRITE_A = ("lock", A, "read"), ("lock", A, "write")
READ_B, WRITE_B = ("lock", B, "read"), ("lock", B, "write")
TRY_A, TRY_B = ("try", A, "write"), ("try", B, "write")

WORLDS: dict[str, list[list[Step]]] = {
    "opposite orders": [[WRITE_A, WRITE_B], [WRITE_B, WRITE_A]],
    "two readers upgrade": [[READ_A, WRITE_A], [READ_A, WRITE_A]],
    "two readers, one gives up": [[READ_A, WRITE_A], [READ_A, TRY_A, ("await",)]],
    "read and write": [[READ_A, WRITE_B], [READ_B, WRITE_A]],
    "upgrade beside a reader": [[READ_A, READ_B, WRITE_A], [READ_B, WRITE_A]],
    "unlock between": [[WRITE_A, ("unlock", A), WRITE_B, WRITE_A], [WRITE_A, WRITE_B]],
    "ask both at once": [
        [("ask", A, "write"), ("ask", B, "write"), ("await",)],
        [("ask", B, "write"), ("ask", A, "write"), ("await",)],
    ],
    "ask and unlock": [
        [("ask", A, "write"), ("ask", B, "read"), ("unlock", A), ("await",)],
        [WRITE_B, WRITE_A],
    ],
    "time out": [[WRITE_A, TRY_B, ("await",)], [WRITE_B, WRITE_A]],
    "withdrawn upgrade, again": [[READ_A, TRY_A, WRITE_A], [READ_A]],
    "surrender on own wish": [[WRITE_A, ("surrender", A), WRITE_B], [WRITE_B, WRITE_A]],
    "two transactions": [[WRITE_A, WRITE_B, ("again",), WRITE_A], [WRITE_B, WRITE_A]],
    "children, then the parent": [
        [("lock", A1, "write"), WRITE_A],
        [("lock", A2, "write"), WRITE_A],
    ],
    "children, then read the parent": [
        [("lock", A1, "write"), READ_A],
        [("lock", A2, "write"), READ_A],
    ],
    "parent and child": [
        [("lock", A1, "read"), WRITE_B, READ_A],
        [WRITE_B, ("lock", A1, "write")],
    ],
    "read the parent, write a child": [
        [READ_A, ("lock", A1, "write")],
        [READ_A, ("lock", A2, "write")],
    ],
    "two rows, one table": [
        [("lock", A1, "write"), ("lock", A2, "write"), WRITE_B],
        [WRITE_B, WRITE_A],
    ],
    "grandchild": [
        [("lock", A1X, "write"), WRITE_A],
        [("lock", A2, "read"), ("lock", A1, "write")],
    ],
}
if EXPLORE:
    WORLDS |= {
        "both time out": [[WRITE_A, TRY_B, ("await",)], [WRITE_B, TRY_A, ("await",)]],
        "three steps": [[WRITE_A, READ_B, WRITE_B, WRITE_A], [READ_B, WRITE_A, WRITE_B]],
        "transactions again and again": [
            [WRITE_A, WRITE_B, ("again",), WRITE_B, WRITE_A],
            [WRITE_B, WRITE_A, ("again",), WRITE_A, WRITE_B],
        ],
        "ring of 3, one by one": scripts((0, 1, 2)),
        "ring of 3 the other way, one by one": scripts((0, 2, 1)),
    }


@pytest.mark.parametrize("abort", [False, True], ids=["surrender", "abort"])
@pytest.mark.parametrize("name", WORLDS)
def test_small_worlds_on_one_node(name: str, abort: bool) -> None:
    """Nothing goes wrong, nobody is stuck, and nothing is left, in either order of references.

    Where nobody withdraws anything, no deadlock is resolved that is none any more.
    """
    for turned in (False, True):
        wanted = WORLDS[name][::-1] if turned else WORLDS[name]
        outcome = explore(World(wanted, abort_on_deadlock=abort), LIMIT)
        report(f"{name}{' turned' * turned}{' abort' * abort}", outcome)
        if not any(step[0] in ("try", "unlock", "surrender") for each in wanted for step in each):
            assert outcome.superfluous == 0


@pytest.mark.parametrize("fate", ["ends", "crashes"])
def test_one_that_dies(fate: str) -> None:
    """One of two may end or crash at any moment of a deadlock; the other one finishes."""
    for number in (1, 2):
        world = World(WORLDS["opposite orders"], mortal={number: fate})  # type: ignore[dict-item]
        report(f"opposite orders, {number} {fate}", explore(world, LIMIT))


def permuted(wanted: list[list[Step]], order: tuple[int, ...]) -> list[list[Step]]:
    """Scripts by their clients' references."""
    return [wanted[i] for i in order]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_deadlock_through_one_who_only_stands_ahead(order: tuple[int, ...]) -> None:
    """H reads L and waits for M of B, who waits to read L behind S, who waits to write L."""
    wanted = permuted([[READ_A, WRITE_B], [WRITE_A], [WRITE_B, READ_A]], order)
    world = World(wanted)
    h, s, b = (order.index(i) + 1 for i in range(3))
    for number in (h, b, s):
        world.step(number)
        world.deliver()
    outcome = report(f"H, S, B in order {order}", explore(world, LIMIT))
    assert outcome.surrenders[0] >= 1


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_deadlock_in_which_one_has_two_requests(order: tuple[int, ...]) -> None:
    """Only one agent of three has two requests: it reads a row and wants to write another one.

    Before that, S2 waits to write the row that it reads, and S1 to read the whole table.
    """
    first, second = ("db", "t1"), ("db", "t2")
    wanted = [
        [("lock", first, "read"), ("lock", second, "write")],
        [("lock", ("db",), "read")],
        [("lock", first, "write")],
    ]
    world = World(permuted(wanted, order))
    a, s2 = order.index(0) + 1, order.index(2) + 1
    for number in (a, s2):
        world.step(number)
        world.deliver()
    report(f"A, S1, S2 in order {order}", explore(world, LIMIT))


# --- Two nodes

NODES = ("n1", "n2")
TWO_NODES: dict[str, list[list[Step]]] = {
    "opposite orders": [[("lock", A, "write", *BOTH)], [("lock", A, "write", *TURNED)]],
    "reads": [[("lock", A, "read", *BOTH)], [("lock", A, "read", *TURNED)]],
}
if EXPLORE:
    TWO_NODES |= {
        "the same order": [[("lock", A, "write", *BOTH)], [("lock", A, "write", *BOTH)]],
        "any": [[("lock", A, "write", *ANY)], [("lock", A, "write", *ANY)]],
        "one lock on each": [
            [("lock", A, "write"), ("lock", B, "write", ("n2",), "all")],
            [("lock", B, "write", ("n2",), "all"), ("lock", A, "write")],
        ],
    }


@pytest.mark.parametrize("abort", [False, True] if EXPLORE else [False], ids=str)
@pytest.mark.parametrize("name", TWO_NODES)
def test_small_worlds_on_two_nodes(name: str, abort: bool) -> None:
    """The same with two nodes.

    In which order a client asks them makes no difference, for the requests travel on different
    links at once: the states are the very same ones (`LOCKS_EXPLORE` explores both orders).
    """
    outcome = explore(World(TWO_NODES[name], NODES, abort_on_deadlock=abort), LIMIT)
    report(f"2 nodes, {name}{' abort' * abort}", outcome)


@explored
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_three_agents_with_two_locks_each(order: tuple[int, ...]) -> None:
    """Three agents take two of three locks each, one by one, not all the same way round."""
    wanted = [
        [WRITE_A, WRITE_B],
        [WRITE_B, WRITE_A],
        [WRITE_A, ("lock", C, "write")],
    ]
    report(f"3 agents {order}", explore(World(permuted(wanted, order)), LIMIT))


TOO_LARGE: dict[str, tuple[list[list[Step]], tuple[str, ...]]] = {
    "three readers upgrade": ([[READ_A, WRITE_A]] * 3, ("n1",)),
    "two locks on two nodes": (
        [
            [("lock", A, "write", *BOTH), ("lock", B, "write", *BOTH)],
            [("lock", B, "write", *BOTH), ("lock", A, "write", *BOTH)],
        ],
        NODES,
    ),
    "two readers upgrade on two nodes": (
        [[("lock", A, "read", *BOTH), ("lock", A, "write", *BOTH)]] * 2,
        NODES,
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_worlds_too_large_to_explore(name: str) -> None:
    """Random schedules where there are more than 14 million states: two surrenders in each.

    They begin where each agent has its first lock. This is no proof.
    """
    wanted, nodes = TOO_LARGE[name]
    world = World(wanted, nodes)
    for client in world.clients:
        world.step(client.number)
        world.deliver()
    space = Space(world, rename=True)
    start = space.start()
    rng = random.Random(0)
    for _ in range(20_000 if EXPLORE else 50):
        state, surrenders = start, 0
        while moves := space.moves(state):
            move = rng.choice(moves)
            after = space.after(state, move)
            surrenders += space.surrendered(state, move)[0]
            state = after
        space.check_end(state[0])
        assert surrenders == 2


# --- The explorer itself


def test_it_finds_the_same_ends_with_real_counters() -> None:
    """Renaming counters makes more states the same, and what can happen stays the same."""
    for name in ("opposite orders", "two readers upgrade", "time out", "grandchild"):
        renamed = explore(World(WORLDS[name]), LIMIT, at_end=told)
        real = explore(World(WORLDS[name]), LIMIT, at_end=told, rename=False)
        assert renamed.states <= real.states
        assert renamed.ends == real.ends, name
        assert renamed.surrenders == real.surrenders, name


RANDOM = {
    "opposite orders",
    "two readers, one gives up",
    "time out",
    "grandchild",
    "two transactions",
}


def test_random_schedules_end_where_it_says() -> None:
    """Whatever random schedules of the world itself come to, the explorer has found."""
    for name in RANDOM:
        wanted = WORLDS[name]
        found = explore(World(wanted), LIMIT, at_end=told)
        for seed in range(100):
            world = World(wanted)
            world.run(random.Random(seed))
            assert told(world) in found.ends, (name, seed)
            assert found.surrenders[0] <= len(world.carried_out) <= found.surrenders[1]


def test_too_many_states_are_no_success() -> None:
    """Whoever exceeds the limit is told so."""
    with pytest.raises(TooMany):
        explore(World(WORLDS["opposite orders"]), 500)
