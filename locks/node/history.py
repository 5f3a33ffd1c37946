"""What has made a machine what it is.

A machine is deterministic: its state follows from a state before, and from the events since then, in
their order. So a machine that was left half-changed can be made anew, in place: whoever knows it goes on
knowing it. An actor's *history* is the list of these events, functions with their arguments. The first one
loads the state at which it begins. Who carries an event out puts it down first (`locks.node.client.agent`,
`locks.node.server`); a history that has grown long is begun anew from the machine's present state.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Event", "History", "Machine", "begin", "is_outgrown", "past", "replay"]

Event = Any
"""A tuple: a function, and its arguments. Its identity counts (`locks.node.dispatch`), and compiled code, where it knows the type
of a tuple's elements, keeps these and makes new tuples of them: so it must not know."""
History = list[Event]

PER_SIZE = 8  # events for each part of the state that would have to be saved


class Machine(Protocol):
    """What can be made anew."""

    @property
    def size(self) -> int:
        """A measure of how much there is to save."""

    def save(self) -> Any:
        """Its state, to be used by `load` any number of times."""

    def load(self, state: Any) -> None:
        """Have a state that was saved."""

    def another(self) -> Machine:
        """A machine of its kind that has nothing yet, for a history to be replayed on."""


def begin(machine: Machine, state: Any = None) -> History:
    """A history that begins with a state: the machine's present one, unless one is given."""
    return [(machine.load, (machine.save() if state is None else state,))]


def replay(history: History) -> None:
    """Make the machine of a history anew."""
    for event, args in history:
        event(*args)


def past(machine: Machine, history: History) -> Any:
    """Another machine, as `machine` was at the end of this history."""
    other = machine.another()
    for event, args in history:
        getattr(other, event.__name__)(*args)  # a compiled method has no `__func__`
    return other


def is_outgrown(history: History, machine: Machine, long: int) -> bool:
    """Whether it is time to begin a history anew; `long` events are worth saving a small state."""
    return len(history) > long and len(history) > long + PER_SIZE * machine.size
