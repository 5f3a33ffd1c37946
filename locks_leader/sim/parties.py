"""Who there is in a simulated election, and what they say besides its messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from locks.model import AgentId
from locks_leader.core.membership import Kind

__all__ = ["Ask", "Down", "Here", "MemberId", "State", "Watch", "member_id"]


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
    """One node tells another one of its instances: process groups do so on each new connection."""

    members: tuple[tuple[MemberId, Kind], ...]


class Watch(NamedTuple):
    """An instance monitors another one, on another node."""

    watcher: MemberId
    member: MemberId


class Down(NamedTuple):
    """An instance is told that one that it monitors has ended."""

    member: MemberId


class Ask(NamedTuple):
    """A leader asks a candidate for its state."""

    number: int


class State(NamedTuple):
    """The answer to `Ask`."""

    number: int
    data: Any
