"""Messages between the participants of an ownership, as tuples with Erlang terms.

    to the session         (tag, id of the session, participant, *fields)
    from the session       (tag, id of the session, agreements, *fields)

Each message is a cast to an instance. `KNOWN` stands for the participant that receives the message.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple, get_args

from pykka import ActorRef

from locks import MisuseError
from locks.otp.bytes.fields import BadMessage, Form, Forms, brief, tag_of
from locks.ownership.messages import AnyWorker, Group, Owned, ToParticipant, ToSession
from locks.ranges import MOST_NUMBER, Version
from locks.wire.versions import check_version

__all__ = ["FromParticipant", "FromSession", "SessionId", "pack", "unpack"]

SessionId = tuple[int, str]  # the leader's term when it was elected, and its node
KNOWN = 0


class FromParticipant(NamedTuple):
    """A participant's message to the session `id`."""

    id: SessionId
    participant: ActorRef[Any]
    message: ToSession


class FromSession(NamedTuple):
    """A message of the session `id`, with the number of its agreements."""

    id: SessionId
    agreements: int
    message: ToParticipant


class _Receiver(NamedTuple):
    me: ActorRef[Any]
    groups: int


def _to_group(term: Any, receiver: _Receiver) -> int:
    if type(term) is not int or not 0 <= term < receiver.groups:
        raise BadMessage(f"{brief(term)} is not a group")
    return term


def _to_owned(term: Any, receiver: _Receiver) -> dict[int, int]:
    if type(term) is not dict or not all(type(each) is int and each > 0 for each in term.values()):
        raise BadMessage(f"{brief(term)} are not the tokens of groups")
    return {_to_group(group, receiver): check_version(token) for group, token in term.items()}


_FORMS = Forms(
    {
        AnyWorker: Form(lambda worker, _: KNOWN, lambda term, receiver: receiver.me, True),
        Group: Form(lambda group, _: group, _to_group, True),
        Owned: Form(lambda owned, _: dict(owned), _to_owned, True),
        Version: Form(lambda token: token, check_version),
    }
)
_TAGS = {kind: tag_of(kind) for kind in (*get_args(ToSession), *get_args(ToParticipant))}
_PACK = {kind: _FORMS.message(kind).pack for kind in _TAGS}
_UNPACK = {tag: _FORMS.message(kind).unpack for kind, tag in _TAGS.items()}


def pack(sent: FromParticipant | FromSession) -> tuple[Any, ...]:
    """The tuple of a message."""
    id, about, message = sent
    kind = type(message)
    return (_TAGS[kind], id, about, *_PACK[kind](message))


def unpack(term: Any, me: ActorRef[Any], groups: int) -> FromParticipant | FromSession:
    """The message of a tuple.

    Args:
        term: The tuple. Its id may be any value: it is compared with that of a known session.
        me: The participant that has received it.
        groups: How many groups there are.

    Raises:
        MisuseError: It is no such tuple.
    """
    if type(term) is tuple and len(term) > 2 and type(term[0]) is str and term[0] in _UNPACK:
        tag, id, about, *_ = term
        with suppress(BadMessage):
            message = _UNPACK[tag](term[3:], _Receiver(me, groups))
            if (
                isinstance(message, ToParticipant)
                and type(about) is int
                and 0 <= about <= MOST_NUMBER
            ):
                return FromSession(id, about, message)
            if isinstance(message, ToSession) and isinstance(about, ActorRef):
                return FromParticipant(id, about, message)
    raise MisuseError(f"{term!r:.200} is not a message of an ownership", value=f"{term!r:.200}")
