"""Searches over all states of a model: their common parts, and the depth-first search.

A `Model` has immutable states: the first state, the moves that are possible in a state, and the
state that follows from a move. `locks_lab.explorer.space` is the model of a world of locks,
`locks_lab.leader.explore` that of a world of elections. Examples have their own models.

`DepthFirst` continues from each new state at once, and keeps the path to the current state. So it
detects a state that is reached from itself. It can also compute a value for each state from all
states that follow: a subclass collects them in `take_in` and returns the value in `leave`. The breadth-first
search is in `locks_lab.explorer.shortest`.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from locks.errors import LocksError
from locks_lab.worlds.host import Violation

__all__ = [
    "DepthFirst",
    "Model",
    "TooManyStates",
    "Visit",
    "collector_off",
    "too_many",
]

S = TypeVar("S", bound=Hashable)
M = TypeVar("M")
V = TypeVar("V")


class Model(Protocol[S, M]):
    """States, and the moves between them. States are immutable and can be hashed."""

    def start(self) -> S:
        """The state in which all begins."""
        ...  # pragma: no cover

    def moves(self, state: S) -> Sequence[M]:
        """All moves that are possible in a state, always in the same order."""
        ...  # pragma: no cover

    def after(self, state: S, move: M) -> S | None:
        """The state after a move; nothing if another order leads there, too.

        Raises:
            Violation: The move itself is wrong.
        """
        ...  # pragma: no cover


class TooManyStates(LocksError):
    """There are more states than allowed: nothing is proven."""


def too_many(limit: int) -> TooManyStates:
    """Say that there are more states than `limit`."""
    return TooManyStates(
        f"more than {limit:,} states: nothing is proven. Search a smaller world, or allow more"
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


class Visit(Generic[S, M]):
    """A state on the path of a search.

    Attributes:
        state: The state.
        moves: The moves that were not tried yet.
        move: The move that was tried last.
    """

    __slots__ = ("move", "moves", "state")

    def __init__(self, state: S, moves: Sequence[M]) -> None:
        self.state = state
        self.moves = list(moves)
        self.move: M | None = None


class DepthFirst(Generic[S, M, V]):
    """A search that continues from each new state at once.

    Subclasses define the checks, and the value of each state, of type `V`.

    Args:
        model: The model.
        limit: The largest number of states.

    Attributes:
        known: The value of each state; None while it is on the path.
        path: The states on the path to the current one.
        transitions: The number of moves that led from one state to another.
    """

    def __init__(self, model: Model[S, M], limit: int) -> None:
        self.model = model
        self.limit = limit
        self.known: dict[S, V | None] = {}
        self.path: list[Any] = []  # the results of `enter`
        self.transitions = 0

    def run(self) -> V:
        """Visit all states; return the value of the first one.

        Raises:
            Violation: A check failed, or a state can be reached from itself. `schedule` has the
                moves that lead there.
            TooManyStates: There are more than `limit` states.
        """
        with collector_off():
            try:
                return self._run()
            except Violation as violation:
                moves = [visit.move for visit in self.path if visit.move is not None]
                violation.schedule = [each for move in moves for each in self.choices(move)]
                raise

    def _run(self) -> V:
        after, known, path = self.model.after, self.known, self.path
        state = self.model.start()
        known[state] = None
        path.append(self.enter(state))
        while True:
            here = path[-1]
            if here.moves:
                move = here.move = here.moves.pop()
                new = after(here.state, move)
                if new is None:
                    continue
                self.transitions += 1
                self.after_move(here)
                if new not in known:
                    if len(known) >= self.limit:
                        raise too_many(self.limit)
                    known[new] = None
                    path.append(self.enter(new))
                    continue
                value = known[new]
                if value is None:
                    raise Violation("this can go on for ever")
            else:
                value = known[here.state] = self.leave(here)
                path.pop()
                if not path:
                    return value
                here = path[-1]
            self.take_in(here, value)

    # --- For subclasses

    def choices(self, move: M) -> Sequence[Any]:
        """A move as choices of the world, for the schedule of a violation."""
        raise NotImplementedError

    def enter(self, state: S) -> Visit[S, M]:
        """A new state is reached: check it."""
        raise NotImplementedError

    def after_move(self, here: Any) -> None:
        """`here.move` leads from `here.state` to another state."""

    def take_in(self, here: Any, value: V) -> None:
        """This is the value of the state to which `here.move` leads."""

    def leave(self, here: Any) -> V:
        """All moves of a state were tried: its value."""
        raise NotImplementedError
