"""The messages between lock servers and agents, as Erlang terms.

A message to a lock server is a cast to the name `locks_server`; one to an agent is sent to its pid.
Each is a tuple of the atom `$locks`, a tag, and the message's fields in their order. An agent's
reference is its pid: `created` is the pid's number. A lock id is a list.

What arrives is data from another program: everything is checked before it is a message again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, get_args

from locks.core.messages import (
    AgentMessage,
    RaiseVersion,
    RequestStates,
    ServerMessage,
    StandingElsewhere,
    Surrender,
    VersionRaised,
)
from locks.model import AgentId, Deadlock, LockId, Mode, Place, RequestRecord, agent_numbered
from locks.otp.bytes.control import StrangeMessage
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage, Form, Forms, brief, tag_of
from locks.otp.bytes.terms import Atom, Pid
from locks.ranges import Name, Number, Version
from locks.wire.forms import (
    FORMS,
    OURS,
    Context,
    mode_term,
    record_term,
    to_lock_id,
    to_record,
)
from locks.wire.versions import ASKED, check_version

__all__ = ["pack", "unpack_to_agent", "unpack_to_server"]


TAGS: dict[type[Any], str] = {  # of the classes that are not called so on the wire
    StandingElsewhere: "standing",
    RaiseVersion: "raise",
    RequestStates: "told",
    VersionRaised: "raised",
}


def _own_agent(number: Any, node: str) -> AgentId:
    """An agent of the node that sent the message: it speaks for its own agents only."""
    if type(number) is not int or not 0 <= number < 1 << 64:
        raise BadMessage(f"{brief(number)} should be the number of an agent")
    return agent_numbered(number, node)


def _own_watcher(term: Any, node: str) -> Pid:
    """A process of the node that sent the message, which watches a lock id."""
    if type(term) is not Pid or term.node != node:
        raise BadMessage(f"{brief(term)} should be the pid of a watcher")
    return term


def _receiver(number: Any, context: Context) -> AgentId:
    """The agent that gets the message: it is told only of surrenders of its own."""
    if context.receiver is None or number != context.receiver.created:
        raise BadMessage(f"an answer to a surrender of another agent, {brief(number)}")
    return context.receiver


def _by_number(unpack: Callable[[Any, Any], AgentId]) -> Form:
    return Form(lambda agent, _: agent.created, unpack, in_context=True)


def _asked(term: Any) -> int:
    """A version that a lock server is asked to raise its own to."""
    return check_version(term, ASKED)


REPORT = FORMS.of(Deadlock)  # whole for everybody
TO_SERVERS = FORMS.but(
    {
        LockId: Form(list, to_lock_id),
        Version: Form(lambda version: version, _asked),
        AgentId: _by_number(_own_agent),
        Hashable: Form(lambda watcher, _: watcher, _own_watcher, in_context=True),
        Deadlock: REPORT,
    }
)
ANSWERED = FORMS.but({AgentId: _by_number(_receiver), Deadlock: REPORT})
TO_AGENTS = FORMS.but(
    {
        RequestRecord: Form(record_term, to_record, in_context=True),
        Surrender: ANSWERED.of(Surrender),
        Deadlock: REPORT,
    }
)


def _of_all(kinds: Iterable[Any], forms: Forms) -> dict[type[Any], tuple[str, Form]]:
    """The tags and forms of messages."""
    tags = {kind: TAGS.get(kind, tag_of(kind)) for kind in kinds}
    return {kind: (tag, forms.message(kind, OURS, constant(tag))) for kind, tag in tags.items()}


_SERVER_MESSAGES = _of_all(get_args(ServerMessage), TO_SERVERS)
_AGENT_MESSAGES = _of_all(get_args(AgentMessage), TO_AGENTS)
_PACK: Final = {kind: form.pack for kind, (_, form) in (_SERVER_MESSAGES | _AGENT_MESSAGES).items()}
_UNPACK_TO_SERVER: Final = {tag: form.unpack for tag, form in _SERVER_MESSAGES.values()}
_UNPACK_TO_AGENT: Final = {tag: form.unpack for tag, form in _AGENT_MESSAGES.values()}

# --- A request that has just been granted: the most frequent message has a form of its own -------

GRANTED: Final = constant("granted")
_granted_form: Final = FORMS.message(
    tuple[Name, Number, LockId, Mode, Place, Version], OURS, GRANTED
)


def _granted(at: str, record: RequestRecord, receiver: AgentId | None) -> tuple[Any, ...] | None:
    """The term of a request of the receiver that has just been granted; `None` of another one."""
    node, number, agent, _, lock_id, mode, state, place, since, blocked, version = record
    if (
        agent != receiver
        or state != "granted"
        or since != version
        or blocked
        or node != at
        or type(place) is not int
    ):
        return None
    return (OURS, GRANTED, node, number, list(lock_id), mode_term(mode), place, version)


def _to_granted(term: tuple[Any, ...], context: Context) -> RequestStates:
    node, number, lock_id, mode, place, version = _granted_form.unpack(term)
    _, agent, client = context
    assert agent is not None
    record = RequestRecord(
        node, number, agent, client, lock_id, mode, "granted", place, version, False, version
    )
    return RequestStates(node, (record,))


_UNPACK_TO_AGENT[GRANTED.name] = _to_granted

# --- Packing and unpacking ----------------------------------------------------------------------


def pack(message: Any, receiver: AgentId | None = None) -> tuple[Any, ...]:
    """The term of a message to a lock server, or to an agent, the receiver."""
    kind = type(message)
    if kind is RequestStates and len(message.records) == 1:
        granted = _granted(message.node, message.records[0], receiver)
        if granted is not None:
            return granted
    # The first field of what a lock server says is its node.
    term: tuple[Any, ...] = _PACK[kind](message, (message[0], receiver))
    return term


def unpack_to_server(term: tuple[Any, ...], node: str) -> ServerMessage:
    """The message to a lock server that a term stands for.

    Args:
        term: The term.
        node: The node that sent it: it speaks for its own agents only.

    Raises:
        BadMessage: A field of it is wrong.
        StrangeMessage: There is no such message.
    """
    message: ServerMessage = _unpacker(_UNPACK_TO_SERVER, term)(term, node)
    return message


def unpack_to_agent(
    term: tuple[Any, ...],
    receiver: AgentId,
    client: str,
    speaker: str = "",
) -> AgentMessage:
    """The message to an agent that a term stands for.

    Args:
        term: The term.
        receiver: The agent.
        client: The name of its client.
        speaker: The node that sent it: its lock server speaks for itself only, as do its agents.

    Raises:
        BadMessage: A field of it is wrong, or it is said by somebody who must not.
        StrangeMessage: There is no such message.
    """
    first = term[2] if len(term) > 2 else None
    node = first if type(first) is str else ""
    said_by = first.node if type(first) is Pid else first
    if speaker and type(said_by) is str and said_by != speaker:
        raise BadMessage(f"{speaker} can't speak for {brief(said_by)}")
    unpack = _unpacker(_UNPACK_TO_AGENT, term)
    message: AgentMessage = unpack(term, Context(node, receiver, client))
    return message


def _unpacker(unpackers: dict[str, Callable[..., Any]], term: tuple[Any, ...]) -> Any:
    if type(term[1]) is not Atom:
        raise BadMessage(f"{brief(term[1])} is not the tag of a message")
    found = unpackers.get(term[1].name)
    if found is None:
        raise StrangeMessage(f"there is no message {brief(term[1])}")
    return found
