"""The port: the one place where a simulation stands in for the world, so that programs and the product run in it unchanged.

**What is replaced.** The product meets the world in three ways:

* *A caller* meets greenlets, waits, a clock, and others who run first. The product asks for these where the caller is: `world()` returns the
  `World`. It is the real one, or a simulated one, which is a subclass. `stand_in` installs it, and nothing else does. A simulated world
  has its own clients, the actors and greenlets that they begin, and the callbacks that it calls. Other threads and greenlets
  of the program stay in the real one.
* *A node* is made of clocks, a turn, a background, counters and agents. These are arguments of `locks.node.node.Node`. A simulated node is a
  subclass that passes its own, and replaces three functions of `locks.node.ports.NodePort`, `deliver`, `perform` and `request`, because
  its messages take their time. It replaces the program's node as any node can (`locks.program.default.stand_in`).
* *Machines* (`locks.core`) meet nothing: events in, effects out. Whoever feeds a machine chooses order, time and faults. So machines have
  nothing for a simulation. Other rules are subclasses of machines, and a study of a machine reads its parts; both belong to whoever does so.

**Who decides.** The product says *where* something can happen: a caller waits, it begins a greenlet, others may run first (`World.step`,
`World.give_way`, and each turn of a node). The simulation decides *what* happens there and when, and refuses what it can't simulate. Faults need no hook
of their own: a client dies by an exception where it waits, and machines have events for the loss of a connection or a node. Reports
to the simulation (`World.note`, `World.failed`) change nothing in the product.

**What it costs.** The real world's methods do what the product would do without them, or nothing. To begin a transaction, to lock what is free, and
to end calls none of them.
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
    """What a caller meets. This is the real world; a simulated one is a subclass that has its own version of each method."""

    # --- Who calls

    def is_here(self) -> bool:
        """Whether the caller is in this world."""
        return True

    # --- Waits and time

    def place(self) -> Place | None:
        """Where the caller blocks; `None`: in its own thread or greenlet.

        Raises:
            MisuseError: It can't block.
        """
        return None

    def look(self) -> None:
        """The caller does not wait for its answer, and looks only: a simulation lets arrive what is under way."""

    def clock(self) -> Callable[[], float]:
        """What tells the caller seconds, also short ones."""
        return time.perf_counter

    def is_event_loop(self, current: greenlet) -> bool:
        """Whether it is a greenlet of a simulation that runs an event loop, which would wait with it."""
        return False

    # --- Greenlets

    def new_greenlet(self, function: Callable[..., object], *args: Any) -> Any:
        """A greenlet that is to be started: gevent's, or one that has `start`, `rawlink`, `dead`, `value` and `exception` as gevent's have."""
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
        """Let others go first in a simulation. A real thread can be interrupted here anyway."""

    def stepwise(self, function: Callable[..., T]) -> Callable[..., T]:
        """A function that is called often, with a `step` before each call."""
        return function

    # --- What a simulation wants to know

    def note(self, client: object, what: str, *args: object) -> None:
        """Report what a client does, or what becomes of it.

        Args:
            client: The client; `None` for the caller.
            what: What it does, with places for `args` as for `str.format`.
            *args: What is put there, if anybody wants to know.
        """

    def failed(self, error: object) -> None:
        """Report that something has ended with this, and nobody else is notified. If it is an error, a simulation fails with it."""

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
