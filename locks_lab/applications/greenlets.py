"""Simulated clients of an application, and what is put down of them."""

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
    """What somebody did, or what became of it.

    Attributes:
        time: When, in seconds of virtual time.
        who: The name of who it was.
        what: What it was.
        place: Where in the user's code.
        matters: Whether it is to be told in any case.
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
        value: What its function returned.
        killed: Whether it was killed, or its node has crashed.
        number: Its number in the simulation, from 1 on.
        maker: The client with which it dies, if it is an actor.
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
        self.gone = False  # with its node: it can't do anything any more
        self.number = 0
        self.maker: Client | None = None
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
        """Let it go on where it waits, or have something raised there, until it waits again or ends."""
        place = self if self.parked is None else self.parked
        if fatal is not None:
            place.throw(fatal)
        else:
            place.switch()

    def leave(self) -> bool:
        """All clients have ended, and nothing is under way: end, if it is none of them; returns whether it was told to now."""
        return False

    def at(self, runs: bool, place: Place | None) -> str:
        """What it does now, and where, in words."""
        what = "runs" if runs else "waits" if self else "has not begun"
        return what if place is None else f"{what} at {place} in {place.function}"


def words_of(
    report: Deadlock, places: Mapping[str, Place | None]
) -> tuple[str, str, tuple[str, ...]]:
    """A deadlock in words: whose it is, what was done, and who waits for whom and where.

    Args:
        report: The deadlock.
        places: Where the clients stand, by their names.
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
    """Whether a lock was not free for a request, as its answer says."""
    return isinstance(answer, RequestStates) and any(
        record.agent == request.agent and record.state == "waiting"
        for record in answer.records
        if record.lock_id == request.lock_id
    )
