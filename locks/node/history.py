"""What has made a machine what it is.

A machine is deterministic: its state follows from a state before, and from the events since then, in
their order. So a machine that was left half-changed can be made anew. Who carries an event out puts it
down first (`locks.node.agent`, `locks.node.server`); a history that has grown long is begun anew from the
machine's present state.

The machine is made anew in place: whoever knows it goes on knowing it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Protocol

__all__ = ["History", "Machine"]

PER_SIZE = 8  # events for each part of the state that would have to be saved


class Machine(Protocol):
    """What can be made anew."""

    def save(self) -> tuple[Any, int]:
        """Its state, to be used by `load` any number of times, and a measure of its size."""

    def load(self, state: Any) -> None:
        """Have a state that was saved."""


class History:
    """A state of a machine, and the events since then.

    Args:
        machine: The machine.
        state: What `Machine.save` returned.
        long: How many events are worth saving a small state.
        size: The measure of the state's size.

    Attributes:
        steps: The events, as functions with their arguments.
        limit: How many of them there may be.
    """

    __slots__ = ("_long", "_machine", "_state", "limit", "steps")

    def __init__(self, machine: Machine, state: Any, long: int, size: int = 0) -> None:
        self._machine = machine
        self._state = state
        self._long = long
        self.limit = long + PER_SIZE * size
        self.steps: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def cut(self, length: int) -> None:
        """Forget the events after the first `length`."""
        del self.steps[length:]

    def replay(self) -> None:
        """Make the machine anew."""
        self._machine.load(self._state)
        for event, args in self.steps:
            event(*args)

    def past(self, length: int) -> Any:
        """Another machine, as this one was after the first `length` events."""
        machine = copy(self._machine)
        machine.load(self._state)
        for event, args in self.steps[:length]:
            event.__func__(machine, *args)  # type: ignore[attr-defined]
        return machine

    def shortened(self) -> History:
        """A history that begins with the machine as it is now."""
        state, size = self._machine.save()
        return History(self._machine, state, self._long, size)
