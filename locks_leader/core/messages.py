"""The messages between the instances of an election.

Messages are immutable values. `AnyMessage` is the closed union of all messages that an instance takes
in from another one. Other events, and effects, are in `locks_leader.core.events`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

from locks.ranges import Message, Number, Version

__all__ = [
    "Affirm",
    "Announce",
    "AnyMessage",
    "Forward",
    "ForwardAnswer",
    "FromLeader",
    "Kind",
    "LeaderCast",
    "Member",
    "NotTheLeader",
    "Resign",
    "Role",
    "YieldTo",
]

Kind = Literal["candidate", "worker"]
Role = Literal["candidate", "following", "syncing", "leader"]
Member = Hashable  # an instance of the election; the core compares them, and that is all


class Announce(Message, frozen=True):
    """The sender leads the receiver; `payload` is the message of `elected` for new followers."""

    term: Version
    payload: Any


class FromLeader(Message, frozen=True):
    """The leader broadcasts something."""

    term: Version
    payload: Any


class Affirm(Message, frozen=True):
    """I still lead you, with a new term from now on."""

    term: Version


class Resign(Message, frozen=True):
    """The sender no longer leads."""

    term: Version


class YieldTo(Message, frozen=True):
    """The leader of this term gives its place to `heir`: all others move behind it in the queue."""

    term: Version
    heir: Member


class Forward(Message, frozen=True):
    """A call for the leader, passed on by another instance."""

    number: Number
    request: Any


class ForwardAnswer(Message, frozen=True):
    """The leader's answer to `Forward`."""

    number: Number
    value: Any


class NotTheLeader(Message, frozen=True):
    """The answer to `Forward` of an instance that does not lead: the call was not carried out."""

    number: Number


class LeaderCast(Message, frozen=True):
    """A message for the leader, without an answer."""

    request: Any


AnyMessage = (
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
