"""Messages between the instances of an election, as tuples with Erlang terms.

Their form is `("$leader", kind, sender, *fields)`. The sender is an actor's reference, and becomes
a pid on the way to another node.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

import pykka

from locks import MisuseError
from locks.node import RemoteError
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage, Form, Forms, brief, tag_of
from locks.ranges import LONGEST_NAME, Version
from locks.values import Atom
from locks.wire.versions import check_version
from locks_leader.core.messages import ForwardAnswer, Member, Message

__all__ = [
    "CALL",
    "CANCEL",
    "CAST",
    "INFO",
    "LEADER_CAST",
    "LOCKS_LEADER",
    "TAG",
    "check_ticket",
    "pack",
    "pack_outcome",
    "unpack",
    "unpack_outcome",
]

LOCKS_LEADER = constant("locks_leader")  # as the first element of ids, compared with decoded ones
TAG = Atom("$leader")
CALL = Atom("call")  # from a client: (TAG, CALL, ticket, request)
CANCEL = Atom("cancel")  # from a client: (TAG, CANCEL, ticket)
CAST = Atom("cast")  # from a client: (TAG, CAST, message)
LEADER_CAST = Atom("$locks_leader_cast")
INFO = Atom("$locks_leader_info")
RAISED = Atom("raised")
OK = Atom("ok")


def _to_member(term: Any) -> pykka.ActorRef[Any]:
    if not isinstance(term, pykka.ActorRef):
        raise BadMessage(f"{term!r:.200} is no instance")
    return term


# The fields of a message follow its tag and its sender.
_FORMS = Forms(
    {
        Member: Form(lambda member: member, _to_member),
        Version: Form(lambda term: term, check_version),
    }
)
_TAGS = {
    kind: Atom("answer" if kind is ForwardAnswer else tag_of(kind)) for kind in get_args(Message)
}
_PACK = {kind: _FORMS.message(kind).pack for kind in _TAGS}
_UNPACK = {tag: _FORMS.message(kind).unpack for kind, tag in _TAGS.items()}


def pack(message: Message, sender: pykka.ActorRef[Any]) -> tuple[Any, ...]:
    """The tuple of a message."""
    kind = type(message)
    return (TAG, _TAGS[kind], sender, *_PACK[kind](message))


def unpack(term: tuple[Any, ...]) -> tuple[pykka.ActorRef[Any], Message]:
    """The sender and the message of a tuple.

    Raises:
        MisuseError: It is no such tuple.
    """
    unpack_fields = _UNPACK.get(term[1]) if len(term) > 2 and type(term[1]) is Atom else None
    if unpack_fields is not None:
        with suppress(BadMessage):
            return _to_member(term[2]), unpack_fields(term[3:])
    raise MisuseError(f"{term!r:.200} is not a message of an election", value=f"{term!r:.200}")


def check_ticket(ticket: Any) -> str:
    """Return the ticket of a client's call.

    Raises:
        MisuseError: It is no ticket of a client.
    """
    if type(ticket) is not str or len(ticket) > LONGEST_NAME:
        raise MisuseError(f"{brief(ticket)} is not the ticket of a call", value=brief(ticket))
    return ticket


def pack_outcome(value: Any, is_here: bool) -> tuple[Any, ...]:
    """The outcome of a call: an answer, or an exception; for another node, its name and text.

    Args:
        value: The outcome.
        is_here: Whether it is for an instance of the same node, which can have the exception
            itself.
    """
    if isinstance(value, Exception) and not is_here:
        return (RAISED, type(value).__name__, str(value))
    return (OK, value)


def unpack_outcome(term: Any) -> Any:
    """The answer in a tuple, or the exception to raise."""
    if type(term) is tuple and len(term) == 3 and term[0] == RAISED:
        return RemoteError(f"the leader raised {term[1]}: {term[2]}", kind=term[1])
    if type(term) is tuple and len(term) == 2 and term[0] == OK:
        return term[1]
    return RemoteError(f"{term!r:.200} is not the outcome of a call", kind=None)
