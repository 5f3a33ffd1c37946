"""The parties of a simulated election, and their messages besides those of the election."""

from __future__ import annotations

from typing import Any, NamedTuple

from locks.core.messages import AgentMessage, ServerMessage
from locks.model import AgentId
from locks_leader.core.events import MemberDown
from locks_leader.core.messages import AnyMessage, Kind

__all__ = [
    "Ask",
    "Gone",
    "Here",
    "MemberId",
    "Poll",
    "Said",
    "State",
    "ToInstance",
    "ToNode",
    "WatchRequest",
    "member_id",
]


class MemberId(AgentId):
    """An instance's reference. It was created at 0, so it is never that of an agent."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.node}.{self.serial}"

    __repr__ = __str__


def member_id(node: str, number: int) -> MemberId:
    """The reference of an instance; `number` is used only once on a node."""
    return MemberId(0, node, number)


class Here(NamedTuple):
    """A node's list of its instances for another node; process groups send it on each new connection."""

    members: tuple[tuple[MemberId, Kind], ...]


class Gone(NamedTuple):
    """An instance of a node has ended, as process groups report it to another node."""

    member: MemberId


class WatchRequest(NamedTuple):
    """An instance monitors another one, on another node. It is answered by `MemberDown`."""

    watcher: MemberId
    member: MemberId


class Ask(NamedTuple):
    """A leader asks a candidate for its state."""

    number: int


class State(NamedTuple):
    """The answer to `Ask`."""

    number: int
    data: Any


ToInstance = AnyMessage | MemberDown | Ask | State
ToNode = ServerMessage | Here | Gone | WatchRequest
Said = ToInstance | ToNode | AgentMessage


class Poll:
    """A callback `elected` that waits for the states of others.

    Attributes:
        number: Its number.
        waits: The instances that have not answered yet.
        states: The states that have arrived.
    """

    def __init__(self, number: int, waits: list[MemberId]) -> None:
        self.number = number
        self.waits = waits
        self.states: list[frozenset[str]] = []
