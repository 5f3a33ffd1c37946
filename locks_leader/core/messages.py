"""What the instances of an election say to each other.

Messages are immutable values. `Message` is all that an instance takes in from another one; it is closed.
What happens to an instance besides, and what it wants done, is in `locks_leader.core.events`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

from locks.ranges import Number, Version

__all__ = [
    "Affirm",
    "Announce",
    "Forward",
    "ForwardAnswer",
    "FromLeader",
    "Kind",
    "LeaderCast",
    "Member",
    "Message",
    "NotTheLeader",
    "Resign",
    "Role",
    "YieldTo",
]

Kind = Literal["candidate", "worker"]
Role = Literal["candidate", "following", "syncing", "leader"]
Member = Hashable  # an instance of the election; the core compares them, and that is all


class Announce(NamedTuple):
    """I lead you; `payload` is what `elected` has for its new followers."""

    term: Version
    payload: Any


class FromLeader(NamedTuple):
    """The leader broadcasts something."""

    term: Version
    payload: Any


class Affirm(NamedTuple):
    """I still lead you, with a new term from now on."""

    term: Version


class Resign(NamedTuple):
    """I do not lead any more."""

    term: Version


class YieldTo(NamedTuple):
    """The leader of this term gives its place to `heir`: everybody else stands last behind it."""

    term: Version
    heir: Member


class Forward(NamedTuple):
    """A call for the leader, from an instance that was asked to pass it on."""

    number: Number
    request: Any


class ForwardAnswer(NamedTuple):
    """The leader's answer to `Forward`."""

    number: Number
    value: Any


class NotTheLeader(NamedTuple):
    """The answer to `Forward` of one who does not lead: the call was not carried out."""

    number: Number


class LeaderCast(NamedTuple):
    """A message for the leader, which nobody waits for."""

    request: Any


Message = (
    Announce
    | FromLeader
    | Affirm
    | Resign
    | YieldTo
    | Forward
    | ForwardAnswer
    | NotTheLeader
    | LeaderCast
)
