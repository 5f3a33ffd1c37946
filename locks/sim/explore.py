"""Every interleaving of a small world: messages between two parties in order, all else in any order.

    print(explore(World(["write a; write b", "write b; write a"])))

The machines and clients of `locks.sim.world` are run as they are, and its checks are made in every
state. An agent looks at what it knows (`settle`) at any time after a message that leaves something
to look at. When nothing needs to happen any more, whoever still waits must do so for nodes that are
down; when nothing can happen any more, all must have finished, and lock servers and agents must be
empty. No state may be reached from itself: so every schedule comes to an end.

Agents that begin later, after an abort or another transaction, are younger than all that came before
them, and among themselves in the order of their clients: other orders of their ages are not explored.
So a schedule with such agents is replayed as a case (`locks.sim.case`), which goes by clients' numbers.

The search is depth first, over the states of `locks.sim.space`, which also says how it is kept small.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from locks.errors import LocksError
from locks.sim.host import Violation
from locks.sim.space import Space, State
from locks.sim.world import World

__all__ = ["Outcome", "TooManyStates", "collector_off", "explore"]


Counts = tuple[int, int, int, int]


class TooManyStates(LocksError):
    """There are more states than allowed: nothing is proven."""


class Outcome(NamedTuple):
    """What an exploration found.

    Attributes:
        states: Different states of the world.
        transitions: Events that lead from one to another.
        terminal: Those where nothing can happen any more.
        surrenders: How many deadlocks were resolved, at least and at most.
        superfluous: How many of those, at most, were none (any more).
        outdated: How many of the reports, at most, named an edge that was not there (any more).
        parties: Different states of single parties.
        seconds: How long it took.
        ends: What `at_end` returned for the terminal states.
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


@contextmanager
def collector_off() -> Iterator[None]:
    """Don't look for garbage: a search makes millions of tuples, and none that refer to themselves."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def explore(
    world: World,
    limit: int = 1_000_000,
    most: int | None = None,
    at_end: Callable[[World], Any] | None = None,
    rename: bool = True,
    reduce: bool = True,
) -> Outcome:
    """Explore a world depth first.

    Args:
        world: The world, in its first state; it is used up.
        limit: The most states.
        most: The most surrenders; one more on any path is a violation.
        at_end: Looks at each terminal state: at its parties, not at counters of the world.
        rename: Rename counters, so that more states are the same.
        reduce: Leave out orders of independent events.

    Raises:
        Violation: With the schedule that leads there, as choices of the world, in `schedule`; or
            the world comes to no end.
        TooManyStates: There are more than `limit` states.
    """
    begun = time.perf_counter()
    with collector_off():
        found = _explore(Space(world, rename, reduce), limit, most, at_end)
    return found._replace(seconds=time.perf_counter() - begun)


class _Visit:
    """A state on the path: what is still to be tried there, and what was found from there on."""

    __slots__ = (
        *("least", "most", "move", "moves", "outdated", "quiet"),
        *("state", "superfluous", "surrendered"),
    )

    def __init__(self, state: State, space: Space) -> None:
        self.state = state
        self.moves = space.moves(state)
        self.quiet = all(map(space.is_fault, self.moves)) and not space.is_unsettled(state)
        self.move: Any = None
        self.surrendered = (0, 0, 0)
        self.least = 1 << 30
        self.most = -1
        self.superfluous = self.outdated = 0


def _explore(
    space: Space, limit: int, most: int | None, at_end: Callable[[World], Any] | None
) -> Outcome:
    state = space.start()
    # Of each state: the least and the most surrenders from there on, the most superfluous ones, and
    # the most outdated reports; nothing while it is on the path.
    known: dict[State, Counts | None] = {state: None}
    shared: dict[Counts, Counts] = {}
    transitions = terminal = 0
    ends: dict[Any, Any] = {}
    path: list[_Visit] = []
    try:
        path.append(_Visit(state, space))
        while True:
            here = path[-1]
            state = here.state
            if here.quiet and here.move is None and here.moves:
                space.check_quiet(state)
            if here.moves:
                move = here.move = here.moves.pop()
                new = space.after(state, move)
                if new is None:
                    continue
                transitions += 1
                here.surrendered = space.surrendered(state, move)
                if here.surrendered[0] and most is not None and _surrenders(path) > most:
                    raise Violation(f"more than {most} surrenders")
                if new not in known:
                    if len(known) >= limit:
                        raise TooManyStates(
                            f"more than {limit:,} states: nothing is proven. Explore a smaller "
                            "world, or allow more"
                        )
                    known[new] = None
                    path.append(_Visit(new, space))
                    continue
                found = known[new]
                if found is None:
                    raise Violation("this can go on for ever")
            else:
                if here.move is None and not space.is_unsettled(state):
                    terminal += 1
                    key = (state[0], state[2])
                    if key not in ends:
                        end = space.check_end(state)
                        ends[key] = at_end(end) if at_end is not None else None
                    here.least = here.most = 0
                found = (here.least, here.most, here.superfluous, here.outdated)
                found = known[state] = shared.setdefault(found, found)
                path.pop()
                if not path:
                    if not terminal:
                        raise Violation("this comes to no end")
                    break
                here = path[-1]
            done, superfluous, outdated = here.surrendered
            here.least = min(here.least, found[0] + done)
            here.most = max(here.most, found[1] + done if found[1] >= 0 else -1)
            here.superfluous = max(here.superfluous, found[2] + superfluous)
            here.outdated = max(here.outdated, found[3] + outdated)
    except Violation as violation:
        violation.schedule = [  # type: ignore[attr-defined]
            choice for each in path if each.move for choice in space.choices(each.move)
        ]
        raise
    return Outcome(
        len(known),
        transitions,
        terminal,
        found[:2],
        found[2],
        found[3],
        len(space.kept),
        0.0,
        frozenset(ends.values()),
    )


def _surrenders(path: list[_Visit]) -> int:
    """How many surrenders were carried out on a path."""
    return sum(each.surrendered[0] for each in path)
