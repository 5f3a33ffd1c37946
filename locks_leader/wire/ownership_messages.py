"""Messages between the participants of an ownership, as tuples that Erlang has terms for.

    to the session         (what, id of the session, participant, *fields)
    from the session       (what, id of the session, agreements, *fields)

Each of them is a cast to an instance. What has arrived is checked field by field.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pykka import ActorRef

from locks import MisuseError
from locks.errors import assert_never
from locks.ownership.messages import (
    Closed,
    Grant,
    GroupsReleased,
    Leaving,
    Renew,
    Report,
    Revoke,
    ToParticipant,
    ToSession,
    Welcome,
)

__all__ = ["FromParticipant", "FromSession", "SessionId", "pack", "unpack"]

SessionId = tuple[int, str]  # the leader's term when it was elected, and its node


class FromParticipant(NamedTuple):
    """What a participant says to the session `id`."""

    id: SessionId
    participant: ActorRef[Any]
    message: ToSession


class FromSession(NamedTuple):
    """What the session `id` says, under which there were so many agreements."""

    id: SessionId
    agreements: int
    message: ToParticipant


def pack(sent: FromParticipant | FromSession) -> tuple[Any, ...]:
    """The tuple that stands for a message; the receiver's own name is left out."""
    id, about, message = sent
    match message:
        case Report(owned, agreements):
            return ("report", id, about, dict(owned), agreements)
        case GroupsReleased(groups):
            return ("released", id, about, list(groups))
        case Leaving():
            return ("leaving", id, about)
        case Welcome():
            return ("welcome", id, about)
        case Grant(_, groups, token):
            return ("granted", id, about, list(groups), token)
        case Renew(_, groups, token):
            return ("renewed", id, about, list(groups), token)
        case Revoke(_, groups):
            return ("revoked", id, about, list(groups))
        case Closed():
            return ("closed", id, about)
        case _:
            return assert_never(message)


def unpack(term: Any, me: ActorRef[Any], groups: int) -> FromParticipant | FromSession:
    """The message that a tuple stands for.

    Args:
        term: The tuple. Any value does for an id: it is compared with that of a known session.
        me: The participant that has received it.
        groups: How many groups there are.

    Raises:
        MisuseError: It stands for none.
    """

    def are_groups(values: list[Any]) -> bool:
        return all(type(value) is int and 0 <= value < groups for value in values)

    match term:
        case ("report", id, ActorRef() as worker, dict(owned), int(agreements)):
            tokens = owned.values()
            if are_groups(list(owned)) and all(type(each) is int and each > 0 for each in tokens):
                return FromParticipant(id, worker, Report(owned, agreements))
        case ("released", id, ActorRef() as worker, list(released)) if are_groups(released):
            return FromParticipant(id, worker, GroupsReleased(tuple(released)))
        case ("leaving", id, ActorRef() as worker):
            return FromParticipant(id, worker, Leaving())
        case ("welcome", id, int(agreements)):
            return FromSession(id, agreements, Welcome(me))
        case ("granted", id, int(agreements), list(granted), int(token)) if are_groups(granted):
            return FromSession(id, agreements, Grant(me, tuple(granted), token))
        case ("renewed", id, int(agreements), list(renewed), int(token)) if are_groups(renewed):
            return FromSession(id, agreements, Renew(me, tuple(renewed), token))
        case ("revoked", id, int(agreements), list(revoked)) if are_groups(revoked):
            return FromSession(id, agreements, Revoke(me, tuple(revoked)))
        case ("closed", id, int(agreements)):
            return FromSession(id, agreements, Closed(me))
    raise MisuseError(f"{term!r:.200} is no message of an ownership", value=f"{term!r:.200}")
