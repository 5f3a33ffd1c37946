"""Whether anybody can be starved: the fair cycles of a model.

A party is starved if it can wait for ever, although everybody else who has something to do does it. In
a finite model, that is a cycle of states in each of which the party waits, and which is *fair*: who is
obliged to move in all of its states, and can do so in one of them, moves in it. A schedule that lets a
holder rest for ever is not fair, and is left out.

The states in which the party waits, and the moves between them, fall into strongly connected
components. If somebody rests in a component, a fair cycle in it has none of the states in which it could
move; so these are taken out, and what is left is looked at in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from locks_lab.explorer.search import Model, too_many

__all__ = ["Graph", "Parties", "Starved", "components", "explored", "starved"]

S = TypeVar("S", bound=Hashable)
M = TypeVar("M")
S_contra = TypeVar("S_contra", contravariant=True)
M_contra = TypeVar("M_contra", contravariant=True)
Graph = Mapping[S, Sequence[tuple[M, S]]]
Goal = Callable[[M | None, S], bool]


class Parties(Protocol[S_contra, M_contra]):
    """Who moves, who waits, and who may not rest for ever."""

    def who(self, move: M_contra) -> int:
        """The party of a move."""
        ...  # pragma: no cover

    def waiting(self, state: S_contra) -> Collection[int]:
        """The parties that wait to be served."""
        ...  # pragma: no cover

    def obliged(self, state: S_contra) -> Collection[int]:
        """The parties that will move sooner or later, as soon as the model lets them."""
        ...  # pragma: no cover


class Starved(Generic[M]):
    """How a party is starved.

    Attributes:
        party: The party.
        before: The moves that lead into the cycle.
        cycle: The moves that repeat for ever.
    """

    def __init__(self, party: int, before: Sequence[M], cycle: Sequence[M]) -> None:
        self.party = party
        self.before = before
        self.cycle = cycle


def explored(model: Model[S, M], limit: int = 200_000) -> Graph[S, M]:
    """The graph of all states of a model, those that are near first.

    Raises:
        TooManyStates: There are more than `limit` states.
    """
    first = model.start()
    graph: dict[S, list[tuple[M, S]]] = {first: []}
    left = deque([first])
    while left:
        state = left.popleft()
        for move in model.moves(state):
            new = model.after(state, move)
            if new is None:
                continue
            graph[state].append((move, new))
            if new not in graph:
                if len(graph) >= limit:
                    raise too_many(limit)
                graph[new] = []
                left.append(new)
    return graph


def starved(graph: Graph[S, M], parties: Parties[S, M]) -> Starved[M] | None:
    """The first party that can be starved; None if nobody can."""
    start = next(iter(graph))
    waiting = {state: frozenset(parties.waiting(state)) for state in graph}
    obliged = {state: frozenset(parties.obliged(state)) for state in graph}
    able = {state: {parties.who(move) for move, _ in graph[state]} for state in graph}
    for party in sorted(frozenset().union(*waiting.values())):
        left = components(_within(graph, {s: None for s in graph if party in waiting[s]}))
        while left:
            part = left.pop()
            inner = _within(graph, part)
            moving = {parties.who(move) for edges in inner.values() for move, _ in edges}
            if not moving:
                continue
            always = frozenset[int].intersection(*(obliged[state] for state in part))
            resting = {who for who in always - moving if any(who in able[s] for s in part)}
            if resting:
                left += components(_within(graph, {s: None for s in part if not resting & able[s]}))
                continue
            entry = next(state for state in graph if state in part)
            before = _path(graph, start, lambda _, new, to=entry: new == to)  # type: ignore[misc]
            others = frozenset().union(*(obliged[state] for state in part)) - always - moving
            goals = [_moves(parties, who) for who in sorted(moving)]
            goals += [_is_free(obliged, who) for who in sorted(others)]
            return Starved(party, before, _cycle(inner, entry, goals))
    return None


def _moves(parties: Parties[S, M], who: int) -> Goal[M, S]:
    return lambda move, _: move is not None and parties.who(move) == who


def _is_free(obliged: Mapping[S, Collection[int]], who: int) -> Goal[M, S]:
    return lambda _, state: who not in obliged[state]


def _within(graph: Graph[S, M], states: Collection[S]) -> Graph[S, M]:
    """The part of a graph that consists of these states."""
    return {state: [(m, s) for m, s in graph[state] if s in states] for state in states}


def _cycle(graph: Graph[S, M], entry: S, goals: Sequence[Goal[M, S]]) -> Sequence[M]:
    """A way from a state back to itself on which all goals are reached."""
    moves: list[M] = []
    way = [entry]
    for goal in goals:
        passed = zip([None, *moves], way, strict=True)
        if not any(goal(move, state) for move, state in passed):
            _walk(graph, moves, way, _path(graph, way[-1], goal))
    if way[-1] != entry:
        _walk(graph, moves, way, _path(graph, way[-1], lambda _, new: new == entry))
    return moves


def _walk(graph: Graph[S, M], moves: list[M], way: list[S], more: Iterable[M]) -> None:
    for move in more:
        moves.append(move)
        way.append(next(new for each, new in graph[way[-1]] if each == move))


def _path(graph: Graph[S, M], start: S, is_last: Goal[M, S]) -> list[M]:
    """The shortest way whose last move, or the state that it leads to, is the wanted one."""
    if is_last(None, start):
        return []
    ways: dict[S, list[M]] = {start: []}
    left = deque([start])
    while left:
        state = left.popleft()
        for move, new in graph[state]:
            if is_last(move, new):
                return [*ways[state], move]
            if new not in ways:
                ways[new] = [*ways[state], move]
                left.append(new)
    raise AssertionError("there is no way")  # pragma: no cover


def components(graph: Graph[S, M]) -> list[set[S]]:
    """The strongly connected components of a graph (Tarjan, 1972), without recursion."""
    order: dict[S, int] = {}
    low: dict[S, int] = {}
    open_: dict[S, None] = {}
    found: list[set[S]] = []
    for root in graph:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        open_[root] = None
        path = [(root, iter(graph[root]))]
        while path:
            state, edges = path[-1]
            for _, new in edges:
                if new not in order:
                    order[new] = low[new] = len(order)
                    open_[new] = None
                    path.append((new, iter(graph[new])))
                    break
                if new in open_:
                    low[state] = min(low[state], order[new])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[state])
                if low[state] == order[state]:
                    part = set()
                    while state not in part:
                        part.add(open_.popitem()[0])
                    found.append(part)
    return found
