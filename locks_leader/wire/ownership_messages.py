"""Messages between the participants of an ownership, as tuples that Erlang has terms for.

    to the session         (what, id of the session, participant, *fields)
    from the session       (what, id of the session, agreements, *fields)

Each of them is a cast to an instance. What has arrived is checked field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pykka

from locks import MisuseError
from locks.ownership.messages import (
    Closed,
    Grant,
    Leaving,
    Released,
    Renew,
    Report,
    Revoke,
    ToParticipant,
    ToSession,
    Welcome,
)

__all__ = [
    "FROM_SESSION",
    "TO_SESSION",
    "FromParticipant",
    "FromSession",
    "SessionId",
    "pack_from_session",
    "pack_to_session",
    "unpack",
]

Ref = pykka.ActorRef[Any]
SessionId = tuple[int, str]  # the leader's term when it was elected, and its node

TO_SESSION: dict[str, type[Any]] = {"report": Report, "released": Released, "leaving": Leaving}
FROM_SESSION: dict[str, type[Any]] = {
    "welcome": Welcome,
    "granted": Grant,
    "renewed": Renew,
    "revoked": Revoke,
    "closed": Closed,
}
NAMES = {kind: name for name, kind in (TO_SESSION | FROM_SESSION).items()}


class FromParticipant(NamedTuple):
    """What a participant says to the session `id`."""

    id: SessionId
    participant: Ref
    message: ToSession


class FromSession(NamedTuple):
    """What the session `id` says, which knows of so many agreements."""

    id: SessionId
    agreements: int
    message: ToParticipant


def pack_to_session(message: ToSession, id: SessionId, participant: Ref) -> tuple[Any, ...]:
    """The tuple that stands for what a participant says."""
    return (NAMES[type(message)], id, participant, *map(_term, message))


def pack_from_session(message: ToParticipant, id: SessionId, agreements: int) -> tuple[Any, ...]:
    """The tuple that stands for what a session says; its receiver is left out."""
    return (NAMES[type(message)], id, agreements, *map(_term, message[1:]))


def unpack(term: Any, me: Ref, groups: int) -> FromParticipant | FromSession:
    """What a tuple stands for. Its id is any value: only messages of a known session are acted on.

    Args:
        term: The tuple.
        me: The participant that has received it.
        groups: How many groups there are.

    Raises:
        MisuseError: It stands for nothing.
    """
    if type(term) is tuple and len(term) > 2 and type(term[0]) is str:
        what, id, about, *fields = term
        said, told = TO_SESSION.get(what), FROM_SESSION.get(what)
        if said and isinstance(about, pykka.ActorRef) and _fit(said._fields, fields, groups):
            return FromParticipant(id, about, said(*map(_value, fields)))
        if told and _is_number(about, groups) and _fit(told._fields[1:], fields, groups):
            return FromSession(id, about, told(me, *map(_value, fields)))
    raise MisuseError(f"{term!r:.200} is no message of an ownership", value=f"{term!r:.200}")


# --- Fields ---------------------------------------------------------------------------------------


def _term(field: Any) -> Any:
    return list(field) if type(field) is tuple else field


def _value(term: Any) -> Any:
    return tuple(term) if type(term) is list else term


def _fit(names: Sequence[str], fields: Sequence[Any], groups: int) -> bool:
    return len(names) == len(fields) and all(
        CHECKS[name](field, groups) for name, field in zip(names, fields, strict=True)
    )


def _is_number(field: Any, groups: int) -> bool:
    return type(field) is int and field >= 0


def _are_groups(field: Any, groups: int) -> bool:
    return type(field) is list and all(type(each) is int and 0 <= each < groups for each in field)


def _are_tokens(field: Any, groups: int) -> bool:
    return (
        type(field) is dict
        and _are_groups(list(field), groups)
        and all(_is_number(token, groups) for token in field.values())
    )


CHECKS: dict[str, Callable[[Any, int], bool]] = {
    "owned": _are_tokens,
    "agreements": _is_number,
    "groups": _are_groups,
    "token": _is_number,
}
