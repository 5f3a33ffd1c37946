"""The messages between lock servers and agents, as Erlang terms.

A message to a lock server is a cast to the name `locks_server`, as in the original; one to an agent is
sent to its pid. Each is a tuple that begins with the atom `$locks`, so that the original, which has
other messages, takes no notice of them. An agent's reference is its pid: `created` is the pid's number,
and so references have the same order here and in Erlang. A lock id is a list, as in the original.

What arrives is data from another program: everything is checked before it is a message again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from locks.core.messages import (
    AgentMessage,
    Inquire,
    Knowledge,
    RaiseVersion,
    Release,
    Released,
    Remove,
    Request,
    RequestStates,
    Resolved,
    ServerMessage,
    StandingElsewhere,
    Surrender,
    Surrendered,
    VersionRaised,
)
from locks.model import AgentId, RequestRecord
from locks.otp.terms import Atom
from locks.wire.forms import (
    ATOMS,
    OURS,
    BadMessage,
    Context,
    check,
    mode_term,
    own_agent,
    parts,
    pid_of,
    records_term,
    report_term,
    surrender_term,
    to_agent,
    to_end,
    to_lock_id,
    to_mode,
    to_records,
    to_report,
)

__all__ = ["pack", "unpack_to_agent", "unpack_to_server"]

GRANTED = ATOMS["granted"]

_Packer = Callable[[Any, AgentId | None], tuple[Any, ...]]
_PACKERS: dict[type[Any], tuple[Atom, _Packer]] = {
    # To lock servers. The agent is of the sender's node.
    Request: (
        ATOMS["request"],
        lambda m, _: (m[0][0], m[1], list(m[2]), ATOMS[m[3]], m[4], m[5]),
    ),
    Release: (
        ATOMS["release"],
        lambda m, _: (m.agent.created, list(m.lock_id), mode_term(m.mode)),
    ),
    Surrender: (ATOMS["surrender"], lambda m, _: surrender_term(m)),
    Remove: (ATOMS["remove"], lambda m, _: (m.agent.created,)),
    StandingElsewhere: (
        ATOMS["standing"],
        lambda m, _: (m.agent.created, m.requests_elsewhere, m.waits_elsewhere),
    ),
    Inquire: (ATOMS["inquire"], lambda m, _: (m.agent.created,)),
    RaiseVersion: (
        ATOMS["raise"],
        lambda m, _: (m.agent.created, list(m.lock_id), m.since, m.version),
    ),
    # To agents.
    RequestStates: (ATOMS["told"], lambda m, to: (m.node, records_term(m.records, m.node, to))),
    Released: (
        ATOMS["released"],
        lambda m, to: (m.node, list(m.lock_id), records_term(m.records, m.node, to)),
    ),
    VersionRaised: (
        ATOMS["raised"],
        lambda m, _: (m.node, list(m.lock_id), m.since, m.version, m.done),
    ),
    Surrendered: (
        ATOMS["surrendered"],
        lambda m, to: (
            m.node,
            surrender_term(m.message),
            m.done,
            records_term(m.records, m.node, to),
            m.version,
        ),
    ),
    Resolved: (
        ATOMS["resolved"],
        lambda m, to: (report_term(m.report), records_term(m.records, None, to)),
    ),
    Knowledge: (
        ATOMS["knowledge"],
        lambda m, to: (pid_of(m.sender), records_term(m.records, None, to), m.forgot),
    ),
}


def pack(message: Any, receiver: AgentId | None = None) -> tuple[Any, ...]:
    """The term of a message to a lock server, or to an agent, the receiver."""
    if type(message) is RequestStates and len(message.records) == 1:
        granted = _granted(message.node, message.records[0], receiver)
        if granted is not None:
            return granted
    tag, fields = _PACKERS[type(message)]
    return (OURS, tag, *fields(message, receiver))


def _granted(at: str, record: RequestRecord, receiver: AgentId | None) -> tuple[Any, ...] | None:
    """The term of the most frequent message: the receiver's request has just been granted."""
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
    return (OURS, GRANTED, node, number, list(lock_id), ATOMS[mode], place, version)


def _to_granted(fields: tuple[Any, ...], context: Context) -> RequestStates:
    node, number, lock_id, mode, place, version = parts(fields, 6)
    if not (type(node) is str and type(number) is type(place) is type(version) is int):
        raise BadMessage(f"{fields!r} does not say what is granted")
    if context.receiver is None:
        raise BadMessage("what is granted is said to an agent")
    record = RequestRecord(
        node,
        number,
        context.receiver,
        context.client,
        to_lock_id(lock_id),
        to_mode(mode),
        "granted",
        place,
        version,
        False,
        version,
    )
    return RequestStates(node, (record,))


def _to_surrender(term: Any, agent: Callable[[Any], AgentId]) -> Surrender:
    number, lock_id, waiter, holder, report = parts(term, 5)
    return Surrender(
        agent(number), to_lock_id(lock_id), to_end(waiter), to_end(holder), to_report(report)
    )


def _to_request(fields: tuple[Any, ...], context: Context) -> Request:
    agent, client, lock_id, mode, requests, waits = parts(fields, 6)
    if not (type(client) is str and type(requests) is type(waits) is bool):
        raise BadMessage(f"{fields!r} should be a request")
    return Request(
        own_agent(agent, context),
        client,
        to_lock_id(lock_id),
        to_mode(mode),
        requests,
        waits,
    )


def _to_release(fields: tuple[Any, ...], context: Context) -> Release:
    agent, lock_id, mode = parts(fields, 3)
    found = None if mode is None else to_mode(mode)
    return Release(own_agent(agent, context), to_lock_id(lock_id), found)


def _to_raise(fields: tuple[Any, ...], context: Context) -> RaiseVersion:
    agent, lock_id, since, version = parts(fields, 4)
    return RaiseVersion(
        own_agent(agent, context), to_lock_id(lock_id), check(since, int), check(version, int)
    )


def _to_standing(fields: tuple[Any, ...], context: Context) -> StandingElsewhere:
    agent, requests, waits = parts(fields, 3)
    return StandingElsewhere(own_agent(agent, context), check(requests, bool), check(waits, bool))


def _to_told(fields: tuple[Any, ...], context: Context) -> RequestStates:
    node, records = parts(fields, 2)
    known = Context(check(node, str), context.receiver, context.client)
    return RequestStates(node, to_records(records, known))


def _to_released(fields: tuple[Any, ...], context: Context) -> Released:
    node, lock_id, records = parts(fields, 3)
    found = to_records(records, Context(check(node, str), *context[1:]))
    return Released(node, to_lock_id(lock_id), found)


def _to_raised(fields: tuple[Any, ...], context: Context) -> VersionRaised:
    node, lock_id, since, version, done = parts(fields, 5)
    return VersionRaised(
        check(node, str),
        to_lock_id(lock_id),
        check(since, int),
        check(version, int),
        check(done, bool),
    )


def _to_surrendered(fields: tuple[Any, ...], context: Context) -> Surrendered:
    node, message, done, records, version = parts(fields, 5)
    return Surrendered(
        check(node, str),
        _to_surrender(message, lambda number: _is_receiver(number, context)),
        check(done, bool),
        to_records(records, Context(node, *context[1:])),
        check(version, int),
    )


def _is_receiver(number: Any, context: Context) -> AgentId:
    if context.receiver is None or number != context.receiver.created:
        raise BadMessage(f"an answer to a surrender of another agent, {number!r}")
    return context.receiver


def _to_resolved(fields: tuple[Any, ...], context: Context) -> Resolved:
    report, records = parts(fields, 2)
    found = to_report(report)
    if found is None:
        raise BadMessage("a resolved deadlock without a report")
    return Resolved(found, to_records(records, context))


def _to_knowledge(fields: tuple[Any, ...], context: Context) -> Knowledge:
    sender, records, forgot = parts(fields, 3)
    found = to_records(records, context)
    return Knowledge(to_agent(sender), found, check(forgot, bool))


_Unpacker = Callable[[tuple[Any, ...], Context], Any]
_TO_SERVER: dict[Atom, _Unpacker] = {
    ATOMS["request"]: _to_request,
    ATOMS["release"]: _to_release,
    ATOMS["surrender"]: lambda fields, context: _to_surrender(
        fields, lambda number: own_agent(number, context)
    ),
    ATOMS["remove"]: lambda fields, context: Remove(own_agent(parts(fields, 1)[0], context)),
    ATOMS["standing"]: _to_standing,
    ATOMS["inquire"]: lambda fields, context: Inquire(own_agent(parts(fields, 1)[0], context)),
    ATOMS["raise"]: _to_raise,
}
_TO_AGENT: dict[Atom, _Unpacker] = {
    ATOMS["told"]: _to_told,
    GRANTED: _to_granted,
    ATOMS["released"]: _to_released,
    ATOMS["raised"]: _to_raised,
    ATOMS["surrendered"]: _to_surrendered,
    ATOMS["resolved"]: _to_resolved,
    ATOMS["knowledge"]: _to_knowledge,
}


def unpack_to_server(term: tuple[Any, ...], node: str) -> ServerMessage:
    """The message to a lock server that a term stands for.

    Args:
        term: The term.
        node: The node that sent it: it speaks for its own agents only.

    Raises:
        BadMessage: It is none.
    """
    return _unpack(_TO_SERVER, term, Context(node, None, ""))  # type: ignore[no-any-return]


def unpack_to_agent(term: tuple[Any, ...], receiver: AgentId, client: str) -> AgentMessage:
    """The message to an agent that a term stands for.

    Args:
        term: The term.
        receiver: The agent.
        client: The name of its client.

    Raises:
        BadMessage: It is none.
    """
    return _unpack(_TO_AGENT, term, Context("", receiver, client))  # type: ignore[no-any-return]


def _unpack(unpackers: dict[Atom, _Unpacker], term: tuple[Any, ...], context: Context) -> Any:
    found = unpackers.get(term[1]) if type(term[1]) is Atom else None
    if found is None:
        raise BadMessage(f"there is no message {term[1]!r} to whom it was sent")
    return found(term[2:], context)
