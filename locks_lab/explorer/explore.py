"""Every interleaving of a small world: each link keeps its order, all else may happen in any order.

    print(explore(World(["write a; write b", "write b; write a"])))

The machines and clients of `locks_lab.worlds.world` are run without changes, and its checks are
made in every state. An agent examines what it knows (`settle`) at any time after a message that
requires this. When nothing needs to happen any more, clients may wait only for nodes that are down.
When nothing can happen any more, all clients must have finished, and lock servers and agents must
be empty. No state may be reached from itself, so every schedule ends.

Agents that begin later, after an abort or another transaction, are younger than all agents before
them. Among themselves they have the order of their clients. Other orders of their ages are not
explored. So a schedule with such agents is replayed as a case (`locks_lab.cases.case`), which names
clients, not agents.

The search is depth first, over the states of `locks_lab.explorer.space`, which explains how the
number of states is kept small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from locks_lab.explorer.pairs import PairedWorlds
from locks_lab.explorer.search import DepthFirst, TooManyStates, Visit
from locks_lab.explorer.space import Space, State, Transition
from locks_lab.worlds.events import Choice
from locks_lab.worlds.host import Violation
from locks_lab.worlds.world import World

__all__ = ["Explored", "TooManyStates", "explore"]


Counts = tuple[int, int, int, int]


class Explored(NamedTuple):
    """The result of an exploration.

    Attributes:
        states: The number of different states of the world.
        transitions: The number of events that lead from one state to another.
        terminal: The number of states where nothing can happen any more.
        surrenders: The smallest and largest number of resolved deadlocks.
        superfluous: The largest number of these that were not deadlocks, or not any more.
        outdated: The largest number of reports that named an edge that did not exist, or not any
            more.
        parties: The number of different states of single parties.
        seconds: The duration.
        ends: The results of `at_end` for the terminal states.
    """

    states: int
    transitions: int
    terminal: int
    surrenders: tuple[int, int]
    superfluous: int
    outdated: int
    parties: int
    seconds: float
    ends: frozenset[Any]

    def __str__(self) -> str:
        return (
            f"{self.states:8} states {self.transitions:9} transitions {self.terminal:4} terminal "
            f"{self.surrenders[0]}-{self.surrenders[1]} surrenders {self.superfluous} superfluous "
            f"{self.outdated} outdated {self.seconds:6.2f} s"
        )


def explore(
    world: World,
    limit: int = 1_000_000,
    most: int | None = None,
    at_end: Callable[[World], Any] | None = None,
    rename: bool = True,
    reduce: bool = True,
) -> Explored:
    """Explore a world depth first.

    Args:
        world: The world, in its first state; it is used up.
        limit: The largest number of states.
        most: The largest number of surrenders; one more on any path is a violation.
        at_end: Called with each terminal state. It may use the parties, but not counters of the
            world.
        rename: Rename counters, so that more states are equal.
        reduce: Leave out orders of independent events.

    Raises:
        Violation: A check failed, or a schedule does not end. `schedule` has the choices of the
            world that lead there.
        TooManyStates: There are more than `limit` states.
    """
    begun = time.perf_counter()
    space: Any = Space(world, rename, reduce) if world.thin is None else PairedWorlds(world)
    search = _Search(space, limit, most, at_end)
    least, largest, superfluous, outdated = search.run()
    if not search.terminal:
        raise Violation("this comes to no end")
    return Explored(
        len(search.known),
        search.transitions,
        search.terminal,
        (least, largest),
        superfluous,
        outdated,
        len(space.kept),
        time.perf_counter() - begun,
        frozenset(search.ends.values()),
    )


class _Visit(Visit[State, Transition]):
    """A state on the path, with the results of the search from this state on.

    Attributes:
        surrendered: Of the last move: whether it is a surrender, superfluous, outdated.
        least: The smallest number of surrenders up to an end.
        most: The largest number of surrenders up to an end; -1 if no end was found.
        superfluous: The largest number of superfluous surrenders.
        outdated: The largest number of outdated reports.
    """

    __slots__ = ("least", "most", "outdated", "superfluous", "surrendered")

    def __init__(self, state: State, moves: list[Transition]) -> None:
        super().__init__(state, moves)
        self.surrendered = (0, 0, 0)
        self.least = 1 << 30
        self.most = -1
        self.superfluous = self.outdated = 0


class _Search(DepthFirst[State, Transition, Counts]):
    """Computes for each state the numbers of surrenders that follow; see `_Visit`."""

    def __init__(
        self, space: Space, limit: int, most: int | None, at_end: Callable[[World], Any] | None
    ) -> None:
        super().__init__(space, limit)
        self.space = space
        self.most = most
        self.at_end = at_end
        self.terminal = 0
        self.ends: dict[Any, Any] = {}
        self.shared: dict[Counts, Counts] = {}

    def choices(self, move: Transition) -> Sequence[Choice]:
        return self.space.choices(move)

    def enter(self, state: State) -> _Visit:
        space = self.space
        moves = space.moves(state)
        here = _Visit(state, moves)
        space.check_still(state)
        if all(map(space.is_fault, moves)) and not space.is_unsettled(state):
            if moves:
                space.check_quiet(state)
            else:
                here.least = here.most = 0
                self._ended(state)
        return here

    def _ended(self, state: State) -> None:
        """Nothing can happen any more."""
        self.terminal += 1
        key = (state[0], state[2])
        if key not in self.ends:
            end = self.space.check_end(state)
            self.ends[key] = self.at_end(end) if self.at_end is not None else None

    def after_move(self, here: _Visit) -> None:
        assert here.move is not None
        here.surrendered = self.space.surrendered(here.state, here.move)
        if here.surrendered[0] and self.most is not None and self._surrenders() > self.most:
            raise Violation(f"more than {self.most} surrenders")

    def _surrenders(self) -> int:
        """How many surrenders were carried out on the path."""
        return sum(visit.surrendered[0] for visit in self.path)

    def take_in(self, here: _Visit, value: Counts) -> None:
        least, most, superfluous, outdated = value
        done, more_superfluous, more_outdated = here.surrendered
        here.least = min(here.least, least + done)
        here.most = max(here.most, most + done if most >= 0 else -1)
        here.superfluous = max(here.superfluous, superfluous + more_superfluous)
        here.outdated = max(here.outdated, outdated + more_outdated)

    def leave(self, here: _Visit) -> Counts:
        found = (here.least, here.most, here.superfluous, here.outdated)
        return self.shared.setdefault(found, found)
