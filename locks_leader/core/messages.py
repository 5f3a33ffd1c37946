"""The messages between the instances of an election.

Messages are immutable values. `Message` is the closed union of all messages that an instance takes
in from another one. Other events, and effects, are in `locks_leader.core.events`.
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
    """The sender leads the receiver; `payload` is the message of `elected` for new followers."""

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
    """The sender no longer leads."""

    term: Version


class YieldTo(NamedTuple):
    """The leader of this term gives its place to `heir`: all others move behind it in the queue."""

    term: Version
    heir: Member


class Forward(NamedTuple):
    """A call for the leader, passed on by another instance."""

    number: Number
    request: Any


class ForwardAnswer(NamedTuple):
    """The leader's answer to `Forward`."""

    number: Number
    value: Any


class NotTheLeader(NamedTuple):
    """The answer to `Forward` of an instance that does not lead: the call was not carried out."""

    number: Number


class LeaderCast(NamedTuple):
    """A message for the leader, without an answer."""

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
