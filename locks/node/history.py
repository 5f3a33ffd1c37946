"""The histories from which machines can be rebuilt.

A machine is deterministic: its state follows from an earlier state and the events since then, in
order. So a machine that was left half-changed can be rebuilt, in place, so that references to it
stay valid. An actor's *history* is the list of these events, functions with their arguments. The
first event loads the state at which the history begins. Each event is recorded before it is run
(`locks.node.client.agent`, `locks.node.server`). A history that has grown long is restarted from
the machine's present state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Event", "History", "Machine", "begin", "is_outgrown", "past", "replay"]

Event = tuple[Callable[..., object], tuple[Any, ...]]
"""A function and its arguments."""
History = list[Event]

PER_SIZE = 8  # events for each part of the state that would have to be saved


class Machine(Protocol):
    """A machine that can be rebuilt."""

    @property
    def size(self) -> int:
        """A measure of the size of its state."""

    def save(self) -> Any:
        """Its state, to be used by `load` any number of times."""

    def load(self, state: Any) -> None:
        """Have a state that was saved."""

    def another(self) -> Machine:
        """A machine of its kind that has nothing yet, for a history to be replayed on."""


def begin(machine: Machine, state: Any = None) -> History:
    """A history that begins with a state: the machine's present one, unless one is given."""
    return [(machine.load, (machine.save() if state is None else state,))]


def replay(history: History, length: int | None = None) -> None:
    """Rebuild the machine of a history, as it is now or was when the history had this length."""
    for event, args in history[:length]:
        event(*args)


def past(machine: Machine, history: History) -> Any:
    """Another machine, as `machine` was at the end of this history."""
    other = machine.another()
    for event, args in history:
        getattr(other, event.__name__)(*args)
    return other


def is_outgrown(history: History, machine: Machine, long: int) -> bool:
    """Whether it is time to restart a history; after `long` events, saving a small state pays."""
    return len(history) > long and len(history) > long + PER_SIZE * machine.size
