"""Simulated clients of an application, and notes about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from greenlet import greenlet

from locks.core.messages import AgentMessage, Request, RequestStates
from locks.model import Deadlock, Edge, show
from locks_lab.applications.places import Place
from locks_lab.applications.strategies import CLIENTS

__all__ = ["Client", "Note", "has_to_wait", "words_of"]


class Note(NamedTuple):
    """A note of an action, or of its result.

    Attributes:
        time: When it happened, in seconds of virtual time.
        who: The name of the client.
        what: The action.
        place: Where in the user's code it happened.
        matters: Whether every report must include it.
        details: More lines about it.
    """

    time: float
    who: str
    what: str
    place: Place | None = None
    matters: bool = False
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.time:.6f} s  {self.who} {self.what}"


class Client(greenlet):
    """A simulated client: a function of the application.

    Attributes:
        name: Its name, for people.
        node: The node where it runs.
        value: The return value of its function.
        killed: Whether it was killed, or its node has crashed.
        number: Its number in the simulation, from 1.
        maker: For an actor: the client that made it; the actor dies with this client.
        awaits: What it waits for, if that is no lock of `locks`.
    """

    is_helper: ClassVar[bool] = False  # whether it is no client, but runs clients

    def __init__(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], node: str
    ) -> None:
        super().__init__()
        self.name = name
        self.node = node
        self.value: Any = None
        self.killed = False
        self.gone = False  # its node crashed: it can do nothing more
        self.number = 0
        self.maker: Client | None = None
        self.awaits = ""
        self.pace = 1.0
        self.rank = CLIENTS
        self.resumed = 0  # how often: what was to resume it before it was resumed is outdated
        self.fatal: BaseException | None = None
        self.parked: greenlet | None = (
            None  # itself, or a greenlet that it runs, while it waits there
        )
        self._function = function
        self._args = args

    def __repr__(self) -> str:
        return f"<Client {self.name}>"

    def run(self) -> None:
        """Run the function; called by the first switch to this greenlet."""
        self.value = self._function(*self._args)

    def go_on(self, fatal: BaseException | None) -> None:
        """Resume it where it waits, or raise `fatal` there; return when it waits again or ends."""
        place = self if self.parked is None else self.parked
        if fatal is not None:
            place.throw(fatal)
        else:
            place.switch()

    def leave(self) -> bool:
        """All clients have ended, and nothing is in flight: end, if this only serves clients.

        Returns:
            Whether this call made it end.
        """
        return False

    def at(self, runs: bool, place: Place | None) -> str:
        """What it does now, and where, as text."""
        what = "runs" if runs else "waits" if self else "has not begun"
        where = what if place is None else f"{what} at {place} in {place.function}"
        return f"{where} for {self.awaits}" if self.awaits else where


def words_of(
    report: Deadlock, places: Mapping[str, Place | None]
) -> tuple[str, str, tuple[str, ...]]:
    """Describe a deadlock: its clients, the resolution, and who waits for whom, and where.

    Args:
        report: The deadlock.
        places: The clients' positions in the code, by name.
    """
    names = {edge.waiter.agent: edge.waiter.client for edge in report.cycle}
    who = f"deadlock of {', '.join(dict.fromkeys(names.values()))}:"
    what = f"{names[report.agent]} {report.action} {show(report.lock_id)}"
    return who, what, tuple(_in_the_way(edge, places) for edge in report.cycle)


def _in_the_way(edge: Edge, places: Mapping[str, Place | None]) -> str:
    waiter, holder = edge.waiter, edge.holder
    place = places.get(waiter.client)
    where = "" if place is None else f"{place} "
    if edge.is_hold_up:
        return f"{where}{waiter.client} waits, and can't go on with another transaction of its own"
    has = "has" if holder.state == "granted" else "stands ahead with"
    return f"{where}{waiter.client} waits for {waiter.wish}; {holder.client} {has} {holder.wish}"


def has_to_wait(request: Request, answer: AgentMessage) -> bool:
    """Whether a request has to wait, according to the answer."""
    return isinstance(answer, RequestStates) and any(
        record.agent == request.agent and record.state == "waiting"
        for record in answer.records
        if record.lock_id == request.lock_id
    )
