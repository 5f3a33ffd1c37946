"""The port: the one place where a simulation replaces the real world.

Programs and the product run in a simulation unchanged.

**What is replaced.** The product depends on the world in three ways:

* *A caller* depends on greenlets, waits, a clock, and on other callers that run first. `world()`
  returns the `World` of the caller, from which the product gets these. It is the real world, or a
  simulated one, which is a subclass. Only `stand_in` installs it. To a simulated world belong its
  own clients, the actors and greenlets that they start, and the callbacks that it calls. Other
  threads and greenlets of the program stay in the real world.
* *A node* depends on clocks, a turn, a background, counters and agents. These are arguments of
  `locks.node.node.Node`. A simulated node is a subclass that passes its own. It also replaces three
  functions of `locks.node.ports.NodePort`, `deliver`, `perform` and `request`, because its messages
  take time. It replaces the program's node as any node can (`locks.program.default.stand_in`).
* *Machines* (`locks.core`) depend on nothing: events in, effects out. The caller of a machine
  chooses order, time and faults. So machines contain nothing for a simulation. Other rules are
  subclasses of machines, and a study of a machine reads its parts; both belong to the simulation.

**Who decides.** The product defines *where* something can happen: a caller waits, it starts a
greenlet, or others may run first (`World.step`, `World.give_way`, and each turn of a node). The
simulation decides *what* happens there and when, and refuses calls that it cannot simulate. Faults
need no hooks: a client dies by an exception where it waits, and machines have events for the loss
of a connection or a node. Reports to the simulation (`World.note`, `World.failed`) change nothing
in the product.

**What it costs.** The methods of the real world do what the product would do without them, or
nothing. A transaction that begins, takes a free lock, and ends calls none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import gevent
from gevent._hub_local import get_hub_if_exists

from locks.runtime.clock import monotonic
from locks.runtime.hub_life import new_greenlet

if TYPE_CHECKING:
    from greenlet import greenlet
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["REAL", "Place", "World", "is_simulated", "stand_in", "world"]

T = TypeVar("T")


class Place(Protocol):
    """A place to block for a caller that has no real thread or greenlet to block."""

    def wait(self, timeout: float | None) -> None:
        """Block until released, or until the timeout has passed."""

    def release(self) -> None:
        """Let the caller continue."""


class World:
    """The world of a caller. This is the real one; a simulated one is a subclass with its own methods."""

    # --- The caller

    def is_here(self) -> bool:
        """Whether the caller is in this world."""
        return True

    # --- Waits and time

    def place(self) -> Place | None:
        """The place where the caller blocks; `None` for its own thread or greenlet.

        Raises:
            MisuseError: The caller cannot block.
        """
        return None

    def look(self) -> None:
        """The caller will only inspect a state: a simulation delivers messages in flight first."""

    def clock(self) -> Callable[[], float]:
        """The caller's clock, in seconds, for measuring short times, too."""
        return monotonic

    def is_event_loop(self, current: greenlet) -> bool:
        """Whether a greenlet of a simulation runs an event loop, which would wait with it."""
        return False

    # --- Greenlets

    def new_greenlet(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> Any:
        """Make a greenlet, which is not started yet.

        It is gevent's, or has `start`, `rawlink`, `dead`, `value` and `exception` like gevent's.
        """
        return new_greenlet(function, *args)

    def kill(self, subject: greenlet, error: BaseException) -> bool:
        """Soon raise an error in a greenlet of a simulation; return whether the greenlet is one."""
        return False

    # --- Points where others may run first

    def give_way(self) -> None:
        """Let other greenlets of the caller's thread run first, if there can be any."""
        if get_hub_if_exists() is not None:
            gevent.sleep(0)

    def step(self) -> None:
        """Let others run first in a simulation. A real thread can be interrupted here anyway."""

    def stepwise(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return a function with a `step` before each call; for functions that are called often."""
        return function

    # --- Reports to a simulation

    def note(self, client: object, what: str, *args: object) -> None:
        """Report an action of a client, or its result.

        Args:
            client: The client; `None` for the caller.
            what: The action, as a format for `str.format`.
            *args: The arguments of the format.
        """

    def failed(self, error: object) -> None:
        """Report an error of which nobody else is notified. A simulation fails with it.

        Other values than errors are ignored.
        """

    # --- Refusals of a simulation

    def check_actor(self, actor: Any) -> None:
        """Raise `MisuseError` if an actor, given by its reference, does not belong to this world."""

    def check_nodes(self, names: Iterable[str]) -> None:
        """Raise `MisuseError` if no election can be held on these nodes."""


REAL = World()
_standing: World | None = None


@contextmanager
def stand_in(simulated: World) -> Iterator[None]:
    """For the duration of a block, let a simulated world replace the real one for callers in it."""
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
