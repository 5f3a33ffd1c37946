"""A shortest schedule on which the original fails: every order of events of a small world, breadth first.

`shortest_failure` looks for one, with the search of `locks_lab.explorer.shortest`. The search
continues from states of the world, so the world is reset to each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from locks_lab.explorer.shortest import Found, shortest
from locks_lab.original.world import Choice, World
from locks_lab.worlds.client import SERIALS
from locks_lab.worlds.host import Violation

__all__ = ["KINDS", "kind_of", "shortest_failure"]

State = tuple[Any, ...]
KINDS = {"stuck": "stuck:", "exclusion": "broken exclusion:", "crash": "the lock server crashes:"}


def kind_of(violation: Violation) -> str:
    """The kind of a failure."""
    return next(kind for kind, begin in KINDS.items() if str(violation).startswith(begin))


class Space:
    """The states of a world, and the moves between them.

    Args:
        world: The world, in its first state; it is used up.
        wanted: The kinds of failures that count; the search does not continue after other failures.
    """

    def __init__(self, world: World, wanted: Sequence[str]) -> None:
        self.world = world
        self.wanted = wanted
        self.first = world.state

    def start(self) -> State:
        """The state in which the world was."""
        return self.first

    def moves(self, state: State) -> list[Choice]:
        """All that can happen next."""
        self.world.state = state
        return self.world.choices()

    def after(self, state: State, move: Choice) -> State | None:
        """The state after something has happened."""
        self.world.state = state
        try:
            self.world.do(move)
        except Violation as violation:
            if kind_of(violation) in self.wanted:
                raise
            return None
        return self.world.state

    def check(self, state: State, moves: Sequence[Choice]) -> None:
        """Check that no client waits in a state in which nothing can happen any more."""
        if not moves and "stuck" in self.wanted:
            self.world.state = state
            self.world.check_quiet()


def _party(choice: Choice) -> Hashable:
    """The party of an event; an agent counts as its client."""
    match choice:
        case ("deliver", (_, receiver)):
            return receiver if isinstance(receiver, str) else receiver.serial % SERIALS
        case (_, number):
            return number


def shortest_failure(
    world: World,
    wanted: Sequence[str] = tuple(KINDS),
    limit: int = 500_000,
    who: Callable[[Choice], Hashable] | None = _party,
) -> Found[State, Choice]:
    """Look for a shortest failing schedule.

    Args:
        world: The world, in its first state; it is used up.
        wanted: The kinds of failures: `"stuck"`, `"exclusion"`, `"crash"`.
        limit: The largest number of states.
        who: Returns the party of a choice. Of several shortest schedules, the one with the fewest
            changes of party is found.

    Raises:
        TooManyStates: There are more than `limit` states, so nothing is proven.
    """
    space = Space(world, wanted)
    return shortest(space, space.check, limit, who=who)
