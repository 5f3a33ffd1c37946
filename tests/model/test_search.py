"""The search that goes deep first, in graphs; what the explorers make of it has tests of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locks_lab.explorer.search import DepthFirst, Visit
from locks_lab.worlds.host import Violation
from tests.model.test_shortest import Graph, depths

GRAPHS = st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10)


class Longest(DepthFirst[int, int, int]):
    """Finds the longest way from each state to an end; some states are wrong."""

    def __init__(self, edges: dict[int, list[int]], *wrong: int, limit: int = 100) -> None:
        super().__init__(Graph(edges), limit)
        self.edges = edges
        self.wrong = wrong
        self.longest: dict[int, int] = {}

    def choices(self, move: int) -> list[int]:
        return [move]

    def enter(self, state: int) -> Visit[int, int]:
        if state in self.wrong:
            raise Violation(f"{state} is wrong")
        self.longest[state] = 0
        return Visit(state, self.edges.get(state, []))

    def take_in(self, here: Any, value: int) -> None:
        self.longest[here.state] = max(self.longest[here.state], value + 1)

    def leave(self, here: Any) -> int:
        return self.longest[here.state]


def longest(edges: dict[int, list[int]], state: int, path: tuple[int, ...] = ()) -> int | None:
    """The longest way from a state to an end, found in another way; None if one has no end."""
    if state in path:
        return None
    ways = [longest(edges, new, (*path, state)) for new in edges.get(state, [])]
    return None if None in ways else max((1 + way for way in ways if way is not None), default=0)


@settings(max_examples=100, deadline=None)
@given(GRAPHS)
def test_it_visits_each_state_once_and_takes_together_what_follows(
    edges: dict[int, list[int]],
) -> None:
    """In any graph: all states that can be reached, unless one of them is reached from itself."""
    search = Longest(edges)
    expected = longest(edges, 0)
    if expected is None:
        with pytest.raises(Violation, match="this can go on for ever") as caught:
            search.run()
        assert caught.value.schedule[-1] in (0, *caught.value.schedule[:-1])
    else:
        assert search.run() == expected
        assert search.known.keys() == depths(edges).keys()
        assert search.transitions == sum(len(edges.get(state, [])) for state in search.known)


def test_a_violation_has_the_schedule_that_leads_there() -> None:
    """The moves from the beginning to what is wrong, also if that is the beginning itself."""
    with pytest.raises(Violation, match="3 is wrong") as caught:
        Longest({0: [1, 2], 1: [3], 2: [4]}, 3).run()
    assert caught.value.schedule == [1, 3]
    with pytest.raises(Violation, match="0 is wrong") as caught:
        Longest({0: [1]}, 0).run()
    assert caught.value.schedule == []
