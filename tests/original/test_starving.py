"""Whether anybody is starved: fair cycles in graphs of states, and which rules for queues have them."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from benchmarks.messages import markdown
from benchmarks.original import starving
from locks_lab.explorer.search import TooManyStates
from locks_lab.explorer.starving import components, explored, starved
from locks_lab.original.turns import RULES, SMALL, Turns, judge, tell
from tests.helpers import SEED
from tests.original.test_explore import rows_on_the_page

Edges = dict[int, list[tuple[int, int]]]


class Drawn:
    """A graph with a party for each move; 0 waits in all states but the first."""

    def __init__(self, edges: Edges, obliged: dict[int, set[int]]) -> None:
        self.edges = edges
        self.must = obliged

    def start(self) -> int:
        """The first state."""
        return 0

    def moves(self, state: int) -> list[tuple[int, int]]:
        """Pairs of a party and the next state."""
        return self.edges[state]

    def after(self, state: int, move: tuple[int, int]) -> int:
        """The next state."""
        return move[1]

    def who(self, move: tuple[int, int]) -> int:
        """The party."""
        return move[0]

    def waiting(self, state: int) -> Collection[int]:
        """Nobody waits at first."""
        return {0} if state else ()

    def obliged(self, state: int) -> Collection[int]:
        """As it was given."""
        return self.must.get(state, ())


def is_starved(edges: Edges, obliged: dict[int, set[int]]) -> bool:
    """Whether party 0 is starved."""
    drawn = Drawn(edges, obliged)
    return starved(explored(drawn), drawn) is not None


def test_only_a_fair_cycle_starves() -> None:
    """A cycle in which somebody never does what it could do all the time does not count."""
    edges: Edges = {0: [(0, 1)], 1: [(1, 2), (2, 0)], 2: [(1, 1), (2, 0)]}
    assert is_starved(edges, {1: {1}, 2: {1}})
    assert not is_starved(edges, {1: {1, 2}, 2: {1, 2}})  # 2 rests for ever
    assert is_starved(edges, {1: {1, 2}, 2: {1}})  # and can't move all the time
    assert is_starved(
        {0: [(0, 1)], 1: [(1, 2)], 2: [(1, 1)]}, {1: {1, 2}, 2: {1, 2}}
    )  # can't at all
    both = {1: {1, 2}, 2: {1, 2}, 3: {1, 2}}
    edges = {0: [(0, 1)], 1: [(1, 2), (1, 3)], 2: [(1, 1)], 3: [(1, 1), (2, 0)]}
    assert is_starved(edges, both)  # 2 could move in 3, which can be left out
    assert not is_starved({0: [(0, 1)], 1: [(1, 2)], 2: []}, {})  # no cycle
    assert not is_starved({0: [(0, 1)], 1: [(1, 0)]}, {})  # it is served in it


def test_components_are_what_reaches_each_other() -> None:
    """Compared with what can be reached from where, in random graphs."""
    rng = random.Random(SEED)
    for _ in range(100):
        size = rng.randint(1, 8)
        graph = {
            n: [(0, rng.randrange(size)) for _ in range(rng.randint(0, 3))] for n in range(size)
        }
        near = {n: {new for _, new in graph[n]} | {n} for n in graph}
        for _ in graph:
            near = {n: set().union(*(near[other] for other in near[n])) for n in graph}
        naive = {frozenset(m for m in near[n] if n in near[m]) for n in graph}
        found = components(graph)
        assert {frozenset(part) for part in found} == naive
        assert sum(map(len, found)) == size


@pytest.mark.slow
@pytest.mark.parametrize("world", SMALL)
@pytest.mark.parametrize(
    "rule",
    [pytest.param(each, marks=pytest.mark.explore if "16" in each else ()) for each in RULES],
)
def test_what_starves_can_be_played(rule: str, world: str) -> None:
    """The moves that are told lead into a cycle; the client waits in all of it, and whoever is obliged in all of it moves."""
    found = judge(RULES[rule], SMALL[world]).starved
    if found is None:
        return
    turns = Turns(RULES[rule], SMALL[world])
    state = turns.start()
    for move in found.before:
        assert move in turns.moves(state)
        state = turns.after(state, move)
    first, seen = state, []
    for move in found.cycle:
        assert move in turns.moves(state)
        assert found.party in turns.waiting(state)
        seen.append(set(turns.obliged(state)))
        state = turns.after(state, move)
    assert state == first
    assert set.intersection(*seen) <= {client for _, client in found.cycle}
    assert f"client {found.party + 1} is never served" in tell(found)


def test_our_lock_table_starves_nobody() -> None:
    """Nor with four clients that want two or three objects each."""
    for claims in (["abc", "bca", "cab", "a"], ["ab", "bc", "cd", "da"], ["a"] * 4):
        assert judge(RULES["ours"], claims).starved is None


def test_who_swaps_can_go_on_for_ever() -> None:
    """Two yield to each other, and never to the third."""
    found = judge(RULES["swap"], ["abc", "bca", "cab"]).starved
    assert found is not None
    assert {kind for kind, _ in found.cycle} == {"yields"}


@pytest.mark.explore
def test_the_table_of_the_page_is_what_is_counted() -> None:
    """`python -m benchmarks.original --write` writes it."""
    assert markdown(starving(), {0}).splitlines() == rows_on_the_page("starving")


def test_too_many_states_are_said() -> None:
    """Then nothing is proven."""
    with pytest.raises(TooManyStates):
        explored(Turns(RULES["ours"], ["abc", "bca"]), limit=10)
