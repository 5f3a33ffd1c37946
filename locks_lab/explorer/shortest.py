"""The shortest failing schedule of a model, if there is one: every state, breadth first.

    found = shortest(model, check)
    if found.violation is not None:
        print(found.schedule)  # no schedule with fewer moves fails

A model has immutable states (`locks_lab.explorer.search.Model`). `locks_lab.explorer.space.Space`
is one, and `shortest_schedule` searches a world of lock servers, agents and clients. Examples have
their own models.

States are visited level by level: first all states that one move leads to, then all states that two
moves lead to. So no shorter schedule leads to a violation than the first one that is found. If no
new state is left, there is no violation. `locks_lab.explorer.explore` goes depth first instead. It
also finds schedules that do not end, counts deadlocks, and needs less memory. But the first
schedule that it finds can be much longer than necessary.

Among the shortest schedules, the easiest to read is the one in which each party continues as long
as possible before another one moves. `who` returns the party of a move. If it is given, the search
is made a second time, with the party that moved last as a part of each state. The result is then
the schedule with the fewest changes of party, or the cheapest one, if `price` returns the cost of
leaving a party in the middle of something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from locks.errors import InvalidOption
from locks_lab.explorer.search import Model, collector_off, too_many
from locks_lab.explorer.space import Space, State, Transition
from locks_lab.worlds.events import Choice
from locks_lab.worlds.host import Violation
from locks_lab.worlds.world import World

__all__ = ["Found", "shortest", "shortest_schedule"]

S = TypeVar("S", bound=Hashable)
M = TypeVar("M")


@dataclass(frozen=True)
class Found(Generic[S, M]):
    """The result of a search.

    Attributes:
        violation: The violation; None if there is none.
        schedule: A shortest schedule that leads to it.
        path: The states of this schedule, including the first one. The last one is missing if the
            move into it fails.
        states: The number of different states.
        transitions: The number of moves that lead from one state to another.
        depth: The number of moves to the farthest states, or to the violation.
        seconds: The duration.
    """

    violation: Violation | None
    schedule: tuple[M, ...]
    path: tuple[S, ...]
    states: int
    transitions: int
    depth: int
    seconds: float


class _Seen(NamedTuple):  # a generic one needs Python 3.11
    """A state as it was first come by, or in the way that costs least."""

    state: Any
    before: _Seen | None
    move: Any
    cost: int


def shortest(
    model: Model[S, M],
    check: Callable[[S, Sequence[M]], None] | None = None,
    limit: int = 500_000,
    key: Callable[[S], Hashable] | None = None,
    who: Callable[[M], Hashable] | None = None,
    price: Callable[[S, Hashable, Hashable], int] | None = None,
) -> Found[S, M]:
    """Look for a shortest schedule to a violation.

    Args:
        model: The model.
        check: Called with a state and its moves; raises `Violation` if the state is wrong.
        limit: The largest number of states.
        key: Returns a key of a state; states with equal keys count as equal. The moves after them
            must be equal except for names, and `check` must give the same result. By default the
            state itself.
        who: Returns the party of a move. Of several shortest schedules, the one with the fewest
            changes of party is found.
        price: Returns the cost when, in a state, the second party moves instead of the first one,
            which made the last move; by default 1. At the beginning the first party is None.

    Returns:
        The violation and its schedule. If there is no violation, no schedule leads to one.

    Raises:
        InvalidOption: `limit` is less than 1.
        TooManyStates: There are more than `limit` states, so nothing is proven.
    """
    if limit < 1:
        raise InvalidOption(f"limit={limit!r}: at least one state is visited")
    begun = time.perf_counter()
    with collector_off():
        found = _BreadthFirst(model, check, limit, key, None, price).run()
        if who is not None and found.violation is not None:
            better = _BreadthFirst(model, check, limit, key, who, price).run()
            found = replace(better, states=found.states, transitions=found.transitions)
    return replace(found, seconds=time.perf_counter() - begun)


class _BreadthFirst(Generic[S, M]):
    """A search, level by level; the arguments are those of `shortest`.

    Attributes:
        known: The states of all levels so far, by name: the state itself, or its `key`.
        reached: The states of the next level.
        following: The next level: the states seen, by name, and by party if `who` is given.
        wrong: The violation at this depth, and the cheapest schedule to it: to a state, and perhaps
            one more move.
        transitions: The number of moves that led from one state to another.
    """

    def __init__(
        self,
        model: Model[S, M],
        check: Callable[[S, Sequence[M]], None] | None,
        limit: int,
        key: Callable[[S], Hashable] | None,
        who: Callable[[M], Hashable] | None,
        price: Callable[[S, Hashable, Hashable], int] | None,
    ) -> None:
        self.model = model
        self.check = check
        self.limit = limit
        self.key = key
        self.who = who
        self.price = price
        self.known: set[Hashable] = set()
        self.reached: set[Hashable] = set()
        self.following: dict[Hashable, _Seen] = {}
        self.wrong: tuple[Violation, _Seen, tuple[M, ...]] | None = None
        self.transitions = 0

    def run(self) -> Found[S, M]:
        """Visit level after level, until something is wrong or no state is left."""
        first = self.model.start()
        self.known.add(first if self.key is None else self.key(first))
        level: dict[Hashable, _Seen] = {None: _Seen(first, None, None, 0)}
        depth = 0
        while level:
            self.reached, self.following = set(), {}
            for here in level.values():
                moves = self._look(here)
                if self.wrong is None or self.wrong[2]:
                    self._go_on(here, moves)
                # Otherwise only other violations at this depth matter.
            if self.wrong is not None:
                violation, end, more = self.wrong
                path, schedule = _way(end)
                found = (*schedule, *more)
                counts = len(self.known), self.transitions, len(found), 0.0
                return Found(violation, found, path, *counts)
            self.known |= self.reached
            level = self.following
            depth += bool(level)
        return Found(None, (), (), len(self.known), self.transitions, depth, 0.0)

    def _look(self, here: _Seen) -> Sequence[M]:
        """Check a state; return its moves."""
        moves: Sequence[M] = ()
        try:
            moves = self.model.moves(here.state)
            if self.check is not None:
                self.check(here.state, moves)
        except Violation as error:
            if self.wrong is None or self.wrong[2] or here.cost < self.wrong[1].cost:
                self.wrong = (error, here, ())
        return moves

    def _go_on(self, here: _Seen, moves: Sequence[M]) -> None:
        """Make each of the moves."""
        state, who = here.state, self.who
        last = None if who is None or here.move is None else who(here.move)
        for move in moves:
            party = None if who is None else who(move)
            cost = here.cost
            if last != party:
                cost += 1 if self.price is None else self.price(state, last, party)
            try:
                new = self.model.after(state, move)
            except Violation as error:
                if self.wrong is None or cost < self.wrong[1].cost:
                    self.wrong = (error, here._replace(cost=cost), (move,))
                continue
            if new is not None:
                self.transitions += 1
                self._reach(_Seen(new, here, move, cost), party)

    def _reach(self, seen: _Seen, party: Hashable) -> None:
        """A state is reached: keep the cheapest way to it, if it is new at this depth."""
        name: Hashable = seen.state if self.key is None else self.key(seen.state)
        if name in self.known:
            return
        if name not in self.reached:
            self.reached.add(name)
            if len(self.known) + len(self.reached) > self.limit:
                raise too_many(self.limit)
        place = name if self.who is None else (name, party)
        other = self.following.get(place)
        if other is None or seen.cost < other.cost:
            self.following[place] = seen


def _way(last: _Seen) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The states on the way to a state, and the moves."""
    states, moves = [], []
    here: _Seen | None = last
    while here is not None:
        states.append(here.state)
        if here.move is not None:
            moves.append(here.move)
        here = here.before
    return tuple(states[::-1]), tuple(moves[::-1])


# --- Worlds of lock servers, agents and clients -------------------------------------------------


def shortest_schedule(
    world: World, limit: int = 500_000, rename: bool = True, reduce: bool = False
) -> Found[State, Choice]:
    """Look for a shortest failing schedule of a world.

    The checks are those of `locks_lab.explorer.explore.explore`, except for schedules that do not
    end.

    Args:
        world: The world, in its first state; it is used up.
        limit: The largest number of states.
        rename: Rename counters, so that more states are equal.
        reduce: Leave out orders of independent events. Then there are fewer states. A schedule that
            is found fails, but one of those that were left out may be shorter.

    Returns:
        The result; its schedule consists of choices of the world. A move of the space can be
        several choices.

    Raises:
        TooManyStates: There are more than `limit` states, so nothing is proven.
    """
    space = Space(world, rename, reduce)

    def check(state: State, moves: Sequence[Transition]) -> None:
        if space.is_unsettled(state):
            return  # it is checked when its agents have looked
        if not moves:
            space.check_end(state)
        elif all(map(space.is_fault, moves)):
            space.check_quiet(state)

    found: Found[State, Any] = shortest(space, check, limit)
    return replace(found, schedule=_choices(space, found.schedule))


def _choices(space: Space, moves: Iterable[Transition]) -> tuple[Choice, ...]:
    """Moves of a space as choices of its world."""
    return tuple(choice for move in moves for choice in space.choices(move))
