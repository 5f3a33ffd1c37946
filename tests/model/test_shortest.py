"""A shortest schedule that goes wrong, or none: the search itself, and in worlds of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locks.errors import InvalidOption
from locks_lab.explorer.explore import TooManyStates, explore
from locks_lab.explorer.shortest import shortest, shortest_schedule
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import RULES
from locks_lab.worlds.world import World

OPPOSITE = ["write a; write b", "write b; write a"]


class Graph:
    """A model that is a graph: its states are numbers, and each move is the number it leads to."""

    def __init__(self, edges: dict[int, list[int]]) -> None:
        self.edges = edges

    def start(self) -> int:
        return 0

    def moves(self, state: int) -> list[int]:
        return self.edges.get(state, [])

    def after(self, state: int, move: int) -> int | None:
        return move


def wrong_at(*bad: int) -> Callable[[int, Sequence[int]], None]:
    """A check that complains of these states."""

    def check(state: int, moves: Sequence[int]) -> None:
        if state in bad:
            raise Violation(f"{state} is bad")

    return check


def depths(edges: dict[int, list[int]]) -> dict[int, int]:
    """How far each number is from 0, found in another way: by relaxing all edges until it rests."""
    found = {0: 0}
    for _ in range(len(edges) + 1):
        for state, following in edges.items():
            for new in following:
                if state in found:
                    found[new] = min(found.get(new, 1000), found[state] + 1)
    return found


# --- Graphs


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10),
    st.integers(0, 9),
    st.booleans(),
)
def test_it_finds_the_shortest_way_or_proves_that_there_is_none(
    edges: dict[int, list[int]], bad: int, by_party: bool
) -> None:
    """In any graph: as short as by another algorithm, and each state is counted once."""
    who = (lambda move: move % 2) if by_party else None
    found = shortest(Graph(edges), wrong_at(bad), who=who)
    distance = depths(edges)
    if bad not in distance:
        assert found.violation is None
        assert found.schedule == found.path == ()
        assert (found.states, found.depth) == (len(distance), max(distance.values()))
    else:
        assert str(found.violation) == f"{bad} is bad"
        assert len(found.schedule) == found.depth == distance[bad]
        assert found.path == (0, *found.schedule)
        assert all(b in edges[a] for a, b in pairwise(found.path))


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10),
    st.integers(1, 9),
)
def test_of_the_shortest_schedules_it_finds_one_with_the_fewest_changes(
    edges: dict[int, list[int]], bad: int
) -> None:
    """With `who`, no schedule of the same length has fewer changes of party."""
    found = shortest(Graph(edges), wrong_at(bad), who=lambda move: move % 3)
    if found.violation is None:
        return
    ways: list[tuple[int, ...]] = [()]
    for _ in found.schedule:
        ways = [(*way, new) for way in ways for new in edges.get(way[-1] if way else 0, [])]
    fewest = min(changes(way) for way in ways if way[-1] == bad)
    assert changes(found.schedule) == fewest


def changes(way: Sequence[int]) -> int:
    """How often the party changes, where a move's party is what is left when it is divided by 3."""
    return sum(a % 3 != b % 3 for a, b in pairwise(way))


def test_too_many_states_prove_nothing() -> None:
    """Whoever exceeds the limit is told so; a limit of none is refused."""
    edges = {n: [n + 1] for n in range(100)}
    assert shortest(Graph(edges), limit=101).states == 101
    with pytest.raises(TooManyStates, match="more than 100 states"):
        shortest(Graph(edges), limit=100)
    with pytest.raises(InvalidOption, match="limit=0"):
        shortest(Graph(edges), limit=0)


# --- Worlds


def test_it_sees_as_many_states_as_the_explorer() -> None:
    """Breadth first and depth first visit the same states of a world, and find nothing wrong in it."""
    for reduce in (True, False):
        deep = explore(World(OPPOSITE), reduce=reduce)
        broad = shortest_schedule(World(OPPOSITE), reduce=reduce)
        assert broad.violation is None
        assert (broad.states, broad.transitions) == (deep.states, deep.transitions)


def test_what_it_finds_goes_wrong_in_the_world_itself() -> None:
    """Its schedule leads there without the explorer, and is shorter than what that finds first."""
    twice = [
        "write a; write b; again; write b; write a",
        "write b; write a; again; write a; write b",
    ]
    few = RULES["few"]
    found = shortest_schedule(World(twice, rule=few))
    assert "stuck" in str(found.violation)
    world = World(twice, rule=few)
    for choice in found.schedule:
        world.do(choice)
    with pytest.raises(Violation, match="stuck"):
        world.check_quiet()
    with pytest.raises(Violation) as caught:
        explore(World(twice, rule=few), reduce=False)
    longer: list[object] = caught.value.schedule  # type: ignore[attr-defined]
    assert (len(found.schedule), len(longer)) == (15, 33)
