"""The port: where a simulation stands in for the world, so that programs and the product run in it unchanged.

**What it replaces.** The product meets the world in three places, and each has one way in:

* *What a caller meets*: greenlets, waits, a clock, and others who go first. The product asks the `World` of the caller for these
  (`world`). It is the real one, or that of a simulation, which is a subclass. `stand_in` puts it there, and is the only way to do so.
  It is the world of the simulation's own clients, of the actors and greenlets that they begin, and of what is notified of something in it:
  other threads and greenlets of the program go on in the real one, as ever.
* *What a node is made of*: its clocks, its turn, its background, its counters, its agents. These are arguments of `locks.node.node.Node`. A simulated
  node is a subclass that passes its own, and carries its actors' messages itself: `deliver`, `perform` and `request` of `locks.node.ports.NodePort`.
  It takes the place of the program's node as any other one does (`locks.program.default.stand_in`).
* *Machines* (`locks.core`) meet nothing: events in, effects out. Whoever feeds one chooses order, time and faults. They have nothing for a
  simulation. Other rules are subclasses, and what is studied of a machine is read from it; both belong to who does so.

**Who decides what.** The product says *where* something can happen: where a caller waits, where it begins a greenlet, where others may go first
(`World.step`, `World.give_way`; and each turn of a node). The simulation says *what* happens there and when, and which calls it refuses because it
has nothing like it. Faults need no door of their own: a client dies by an exception where it waits, and a connection or a node is lost by the events that
machines have for it. What the product tells (`World.note`, `World.failed`) changes nothing in it.

**What it costs.** The real world's methods do nothing, or what a program would do without them. None of them is called to begin a transaction, to
lock what is free, or to end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import gevent
from gevent._hub_local import get_hub_if_exists

if TYPE_CHECKING:
    from greenlet import greenlet

__all__ = ["Place", "World", "is_simulated", "stand_in", "world"]

T = TypeVar("T")


class Place(Protocol):
    """Where a caller blocks that has no real thread or greenlet to block."""

    def wait(self, timeout: float | None) -> None:
        """Block until released, or until the time has run out."""

    def release(self) -> None:
        """Let it go on."""


class World:
    """What a caller meets: the real world. A simulation's is a subclass, which has all of it but `is_here` and `stepwise`."""

    # --- Who calls

    def is_here(self) -> bool:
        """Whether the caller is in this world."""
        return True

    # --- Waits and time

    def place(self) -> Place | None:
        """Where the caller blocks; `None` if it blocks where it is.

        Raises:
            MisuseError: It can't block.
        """
        return None

    def look(self) -> None:
        """The caller looks whether it has an answer, and does not wait: in a simulation, what is under way has arrived."""

    def clock(self) -> Callable[[], float]:
        """What tells the caller seconds, also short ones."""
        return time.perf_counter

    def is_event_loop(self, current: greenlet) -> bool:
        """Whether a greenlet of this world runs an event loop, which would wait with it."""
        return False

    # --- Greenlets

    def new_greenlet(self, function: Callable[..., object], *args: Any) -> Any:
        """A greenlet that is to be started, gevent's or one that is used like it."""
        return gevent.Greenlet(function, *args)

    def kill(self, subject: greenlet, error: BaseException) -> bool:
        """Have an error raised in a greenlet of a simulation soon; returns whether it is one."""
        return False

    # --- Where others may go first

    def give_way(self) -> None:
        """Let other greenlets of the caller's thread go first, if there can be any."""
        if get_hub_if_exists() is not None:
            gevent.sleep(0)

    def step(self) -> None:
        """Where a real thread may be interrupted anyway: in a simulation, let others go first."""

    def stepwise(self, function: Callable[..., T]) -> Callable[..., T]:
        """A function that is called often, with a `step` before each call."""
        return function

    # --- What a simulation wants to know

    def note(self, client: object, what: str, *args: object) -> None:
        """Put down what a client does, or what becomes of it.

        Args:
            client: The client; `None` for the caller.
            what: What it does, with places for `args` as for `str.format`.
            *args: What is put there, if anybody puts it down.
        """

    def failed(self, error: object) -> None:
        """Something has ended with this, and nobody else is notified; if it is an error, the run fails with it."""

    # --- What a simulation refuses

    def check_actor(self, actor: Any) -> None:
        """Raise `MisuseError` if an actor, given by its reference, is not of this world."""

    def check_nodes(self, names: Iterable[str]) -> None:
        """Raise `MisuseError` if no election can be held on these nodes."""


REAL = World()
_standing: World | None = None


@contextmanager
def stand_in(simulated: World) -> Iterator[None]:
    """For a while, have a simulated world stand in for the real one, for those who are in it."""
    global _standing
    before, _standing = _standing, simulated
    try:
        yield
    finally:
        _standing = before


def world() -> World:
    """The world of the caller."""
    return _standing if _standing is not None and _standing.is_here() else REAL


def is_simulated() -> bool:
    """Whether the caller is in a simulation."""
    return world() is not REAL
