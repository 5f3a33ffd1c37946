"""The parts that messages are made of: references, lock ids, records, reports, as terms and back.

A part that the receiver knows itself is left out: `KNOWN` stands for the node in a record of the sending
lock server's own, and for agent and client in a record of the receiver's own request.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from locks.core.messages import Surrender
from locks.errors import OperatingError
from locks.model import MODES, AgentId, Deadlock, Edge, LockId, Mode, Place, RequestRecord
from locks.otp.etf_decode import constant
from locks.otp.terms import Atom, Pid

__all__ = [
    "ATOMS",
    "KNOWN",
    "LOCK_SERVER",
    "NOWHERE",
    "OURS",
    "SERIAL_BITS",
    "SERIAL_MASK",
    "BadMessage",
    "Context",
    "agent_numbered",
    "agent_of",
    "check",
    "is_ours",
    "mode_term",
    "one_of",
    "own_agent",
    "parts",
    "pid_of",
    "place_term",
    "record_term",
    "records_term",
    "report_term",
    "surrender_term",
    "to_agent",
    "to_end",
    "to_lock_id",
    "to_mode",
    "to_place",
    "to_record",
    "to_records",
    "to_report",
]

LOCK_SERVER = "locks_server"
OURS = constant("$locks")
SERIAL_BITS = 12  # of an agent's `created`: its serial number; those above are microseconds
SERIAL_MASK = (1 << SERIAL_BITS) - 1


class BadMessage(OperatingError):
    """Another node has sent something that is no message of ours."""


def agent_numbered(number: int, node: str) -> AgentId:
    """The reference of the agent with this number, of a node."""
    return AgentId(number, node, number & SERIAL_MASK)


def agent_of(pid: Pid) -> AgentId:
    """The reference of the agent with this pid."""
    return agent_numbered(pid.number, pid.node)


def pid_of(agent: AgentId, creation: int = 0) -> Pid:
    """The pid of an agent; without its node's creation, it does for everything but sending."""
    return Pid(agent.created, agent.node, creation)


# --- As terms ---------------------------------------------------------------------------------

ATOMS = {
    text: constant(text)
    for text in (
        *MODES, "granted", "waiting", "gone", "surrendered", "aborted", "request", "release",
        "surrender", "remove", "standing", "inquire", "raise", "told", "released", "raised",
        "surrendered", "resolved", "knowledge", "no_locks", "have_all_locks", "cannot_serve",
    )
}  # fmt: skip
KNOWN = 0  # stands for what the receiver knows itself


def mode_term(mode: Mode | None) -> Atom | None:
    """The term of a mode, or of none."""
    return None if mode is None else ATOMS[mode]


def place_term(place: Place) -> Any:
    """The term of a place in the order."""
    return place if type(place) is int else (place.numerator, place.denominator)


def record_term(record: RequestRecord, at: str | None, receiver: AgentId | None) -> tuple[Any, ...]:
    """The term of a record, told by the node `at` to `receiver`; without them, a whole one."""
    node, number, agent, client, lock_id, mode, state, place, since, blocked, version = record
    own = agent == receiver
    return (
        KNOWN if node == at else node,
        number,
        KNOWN if own else Pid(agent[0], agent[1], 0),
        KNOWN if own else client,
        list(lock_id),
        ATOMS[mode],
        ATOMS[state],
        place if type(place) is int else place_term(place),
        since,
        blocked,
        version,
    )


def records_term(
    records: tuple[RequestRecord, ...], at: str | None, receiver: AgentId | None
) -> list[Any]:
    """The terms of records; see `record_term`."""
    return [record_term(record, at, receiver) for record in records]


def report_term(report: Deadlock | None) -> Any:
    """The term of a report, or of none."""
    if report is None:
        return None
    agent, lock_id, node, action, cycle, rule = report
    edges = [
        (record_term(edge.waiter, None, None), record_term(edge.holder, None, None))
        for edge in cycle
    ]
    return (pid_of(agent), list(lock_id), node, ATOMS[action], edges, rule)


def surrender_term(m: Surrender) -> tuple[Any, ...]:
    """The term of a surrender, without its tag."""
    return (m.agent.created, list(m.lock_id), m.waiter, m.holder, report_term(m.report))


# --- And back ---------------------------------------------------------------------------------


def is_ours(term: Any) -> bool:
    """Whether a term claims to be a message of ours."""
    return type(term) is tuple and len(term) > 1 and term[0] is OURS


def check(value: Any, kind: type[Any]) -> Any:
    """Return a value if it is of exactly this type."""
    if type(value) is not kind:
        raise BadMessage(f"{value!r} should be a {kind.__name__}")
    return value


def to_agent(term: Any) -> AgentId:
    """An agent, by its pid."""
    if type(term) is not Pid:
        raise BadMessage(f"{term!r} should be a pid")
    return agent_of(term)


def own_agent(term: Any, context: Context) -> AgentId:
    """An agent of the sender's node, by its number."""
    if type(term) is not int or not 0 <= term < 1 << 64:
        raise BadMessage(f"{term!r} should be the number of an agent")
    return agent_numbered(term, context.node)


def to_lock_id(term: Any) -> LockId:
    """A lock id, from a list of what can be a key."""
    if type(term) is not list or not term:
        raise BadMessage(f"{term!r} should be a list that is not empty")
    lock_id = tuple(term)
    try:
        hash(lock_id)
    except TypeError:
        raise BadMessage(f"{term!r} has elements that can't be keys") from None
    return lock_id


def one_of(term: Any, *names: str) -> Any:
    """The name of an atom, if it is one of these."""
    if type(term) is Atom and term.name in names:
        return term.name
    raise BadMessage(f"{term!r} should be one of {', '.join(names)}")


def to_mode(term: Any) -> Mode:
    """A mode, by its atom."""
    if type(term) is Atom and term.name in MODES:
        return term.name
    raise BadMessage(f"{term!r} should be a mode: {', '.join(MODES)}")


def to_place(term: Any) -> Place:
    """A place in the order."""
    if type(term) is int:
        return term
    if type(term) is tuple and len(term) == 2 and all(type(n) is int for n in term) and term[1]:
        return Fraction(*term)
    raise BadMessage(f"{term!r} should be a place in an order")


class Context(NamedTuple):
    """What the receiver knows itself: who sent the message, and who gets it."""

    node: str
    receiver: AgentId | None
    client: str


NOWHERE = Context("", None, "")


def to_record(term: Any, context: Context) -> RequestRecord:
    """A record of a request."""
    if type(term) is not tuple or len(term) != 11:
        raise BadMessage(f"{term!r} should be a request record")
    node, number, pid, client, lock_id, mode, state, place, since, blocked, version = term
    if not (
        (type(node) is str or (node == KNOWN and context.node))
        and type(number) is type(since) is type(version) is int
        and type(blocked) is bool
        and (
            (type(pid) is Pid and type(client) is str)
            or (pid == client == KNOWN and context.receiver is not None)
        )
    ):
        raise BadMessage(f"{term!r} should be a request record")
    if type(pid) is Pid:
        agent = agent_of(pid)
    else:
        assert context.receiver is not None
        agent, client = context.receiver, context.client
    return RequestRecord(
        node if type(node) is str else context.node,
        number,
        agent,
        client,
        to_lock_id(lock_id),
        to_mode(mode),
        one_of(state, "granted", "waiting", "gone"),
        place if type(place) is int else to_place(place),
        since,
        blocked,
        version,
    )


def to_records(term: Any, context: Context) -> tuple[RequestRecord, ...]:
    """Records of requests."""
    return tuple([to_record(each, context) for each in check(term, list)])


def parts(term: Any, count: int) -> tuple[Any, ...]:
    """Take a tuple of so many parts apart."""
    if type(term) is not tuple or len(term) != count:
        raise BadMessage(f"{term!r} should be a tuple of {count}")
    return term


def to_report(term: Any) -> Deadlock | None:
    """A report of a deadlock, or none."""
    if term is None:
        return None
    agent, lock_id, node, action, cycle, rule = parts(term, 6)
    edges = [parts(edge, 2) for edge in check(cycle, list)]
    return Deadlock(
        to_agent(agent),
        to_lock_id(lock_id),
        check(node, str),
        one_of(action, "surrendered", "aborted"),
        tuple(
            Edge(to_record(waiter, NOWHERE), to_record(holder, NOWHERE)) for waiter, holder in edges
        ),
        check(rule, str),
    )


def to_end(term: Any) -> tuple[int, int] | None:
    """One end of the edge that a surrender is for, or none."""
    if term is None:
        return None
    number, since = parts(term, 2)
    return (check(number, int), check(since, int))
