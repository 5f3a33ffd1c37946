"""Searching all states of a model: what the searches have in common, and the one that goes deep first.

A model has immutable states: where it begins, what can happen in a state, and what comes of it
(`Model`). `locks_lab.explorer.space` has that of a world of locks, `locks_lab.leader.explore` that of a world of
elections, and examples have models of their own.

`DepthFirst` goes on from each new state at once, and keeps the way to where it is. So it sees when a
state is reached from itself, and it can find out something about each state from all that follows:
what a subclass takes together in `take_in` and returns in `leave`. Breadth first is
`locks_lab.explorer.shortest`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from locks.errors import LocksError
from locks_lab.worlds.host import Violation

__all__ = ["DepthFirst", "Model", "TooManyStates", "Visit", "collector_off", "too_many"]

NOW_AND_THEN = 10_000  # states

S = TypeVar("S", bound=Hashable)
M = TypeVar("M")
V = TypeVar("V")


class Model(Protocol[S, M]):
    """States, and what leads from one to another. States are immutable and can be hashed."""

    def start(self) -> S:
        """The state in which all begins."""
        ...  # pragma: no cover

    def moves(self, state: S) -> Sequence[M]:
        """All that can happen in a state, always in the same order."""
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
    """A state on the way to where a search is.

    Attributes:
        state: The state.
        moves: What is still to be tried there.
        move: What was tried last.
    """

    __slots__ = ("move", "moves", "state")

    def __init__(self, state: S, moves: Sequence[M]) -> None:
        self.state = state
        self.moves = list(moves)
        self.move: M | None = None


class DepthFirst(Generic[S, M, V]):
    """A search that goes on from each new state at once.

    Subclasses say what is checked, and what is found out of each state: a value of type `V`.

    Args:
        model: The model.
        limit: The most states.

    Attributes:
        known: Of each state its value; None while it is on the path.
        path: The states on the way to where the search is.
        transitions: Moves that led from one state to another.
        see: Is told now and then how many states are known.
    """

    see: Callable[[int], object] | None = None

    def __init__(self, model: Model[S, M], limit: int) -> None:
        self.model = model
        self.limit = limit
        self.known: dict[S, V | None] = {}
        self.path: list[Any] = []  # of what `enter` returns
        self.transitions = 0

    def run(self) -> V:
        """Visit all states; returns the value of the first one.

        Raises:
            Violation: What is checked is wrong, with the schedule that leads there in `schedule`;
                or a state can be reached from itself.
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
                self.moved(here)
                if new not in known:
                    if len(known) >= self.limit:
                        raise too_many(self.limit)
                    known[new] = None
                    path.append(self.enter(new))
                    if self.see is not None and not len(known) % NOW_AND_THEN:
                        self.see(len(known))
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

    def moved(self, here: Any) -> None:
        """`here.move` leads from `here.state` to another state."""

    def take_in(self, here: Any, value: V) -> None:
        """This is the value of the state to which `here.move` leads."""

    def leave(self, here: Any) -> V:
        """All moves of a state were tried: its value."""
        raise NotImplementedError
