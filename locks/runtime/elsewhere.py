"""Greenlets, waits and a clock: gevent's and the machine's, or those of a simulation that stands in for them.

While one does, its clients wait by its clock (`locks.runtime.waiter`), and greenlets that they begin, actors above all, are simulated, too.
Other threads and greenlets of the program go on as ever.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import gevent
from gevent._hub_local import get_hub_if_exists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from greenlet import greenlet

__all__ = [
    "Elsewhere",
    "Place",
    "check_actor",
    "check_nodes",
    "clock",
    "give_way",
    "here",
    "kill_simulated",
    "new_greenlet",
    "note",
    "note_value",
    "place",
    "stand_in",
    "step",
    "stepwise",
    "unseen",
]


class Place(Protocol):
    """Where a caller blocks that has no real thread or greenlet to block."""

    def wait(self, timeout: float | None) -> None:
        """Block until released, or until the time has run out."""

    def release(self) -> None:
        """Let it go on."""


class Elsewhere(Protocol):
    """What stands in: a simulation."""

    def place(self) -> Place | None:
        """Where the caller blocks; `None` if it blocks where it is."""

    def is_here(self) -> bool:
        """Whether it is the simulation that calls."""

    def new_greenlet(self, function: Callable[..., object], args: tuple[Any, ...]) -> Any:
        """A greenlet of the simulation, which is used like gevent's."""

    def kill(self, subject: greenlet, error: BaseException) -> bool:
        """Have an error raised in a greenlet of the simulation soon; returns whether it is one."""

    def give_way(self) -> None:
        """Let others go first."""

    def clock(self) -> float:
        """The simulation's time in seconds."""

    def check_actor(self, actor: Any) -> None:
        """Raise an error if an actor, given by its reference, is not of the simulation."""

    def check_nodes(self, names: Iterable[str]) -> None:
        """Raise an error if no election can be held on these nodes."""

    def fail(self, error: Exception) -> None:
        """Have the run fail."""

    def note_of(self, client: object, what: str) -> None:
        """Put down what a client does, or what becomes of it."""


_elsewhere: Elsewhere | None = None


@contextmanager
def stand_in(simulation: Elsewhere) -> Iterator[None]:
    """For a while, have a simulation stand in."""
    global _elsewhere
    before, _elsewhere = _elsewhere, simulation
    try:
        yield
    finally:
        _elsewhere = before


def here() -> Elsewhere | None:
    """The simulation, if it is the simulation that calls."""
    return _elsewhere if _elsewhere is not None and _elsewhere.is_here() else None


def place() -> Place | None:
    """Where the caller blocks; `None` if it blocks where it is."""
    return None if _elsewhere is None else _elsewhere.place()


def new_greenlet(function: Callable[..., object], *args: Any) -> Any:
    """A greenlet that is to be started: gevent's, or the simulation's that calls."""
    if (simulation := here()) is not None:
        return simulation.new_greenlet(function, args)
    return gevent.Greenlet(function, *args)


def kill_simulated(subject: greenlet, error: BaseException) -> bool:
    """Have an error raised in a simulated greenlet soon; returns whether it is one."""
    return _elsewhere is not None and _elsewhere.kill(subject, error)


def give_way() -> None:
    """Let other greenlets of the caller's thread go first, if there can be any."""
    if (simulation := here()) is not None:
        simulation.give_way()
    elif get_hub_if_exists() is not None:
        gevent.sleep(0)


def step() -> None:
    """In a simulation: let others go first."""
    if (simulation := here()) is not None:
        simulation.give_way()


def stepwise(function: Callable[..., object]) -> Callable[..., object]:
    """A function before which others go first, in a simulation; else the function itself."""
    if here() is None:
        return function

    def call(*args: Any) -> object:
        step()
        return function(*args)

    return call


def check_actor(actor: Any) -> None:
    """In a simulation: raise `MisuseError` if an actor, given by its reference, is not simulated."""
    if (simulation := here()) is not None:
        simulation.check_actor(actor)


def check_nodes(names: Iterable[str]) -> None:
    """In a simulation: raise `MisuseError` if no election can be held on these nodes."""
    if (simulation := here()) is not None:
        simulation.check_nodes(names)


def note(client: object, what: str, *args: object) -> None:
    """In a simulation: put down what a client does, or what becomes of it; `args` are for the places in `what`."""
    if (simulation := here()) is not None:
        simulation.note_of(client, what.format(*args))


def note_value(client: Callable[[], object], what: str, value: object) -> None:
    """The same, with a value behind it, if there is one; it asks who the client is only then."""
    if value is not None and (simulation := here()) is not None:
        simulation.note_of(client(), f"{what} {value!r:.60}")


def unseen(error: object) -> None:
    """In a simulation: something has ended by this, and nobody else is told; if it is an error, the run fails with it."""
    if isinstance(error, Exception) and (simulation := here()) is not None:
        simulation.fail(error)


def clock() -> Callable[[], float]:
    """What tells the caller seconds, also short ones."""
    if (simulation := here()) is not None:
        return simulation.clock
    return time.perf_counter
