"""The parts that messages are made of: references, lock ids, places, records, as terms and back.

`FORMS` is the table of them, for what anybody may read. A part of a message that its receiver knows
itself is left out: `KNOWN` stands for the node in a record of the sending lock server's own, and for
agent and client in a record of the receiver's own request (`record_term`, `to_record`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, NamedTuple

from msgspec.structs import astuple

from locks.errors import InvalidLockId
from locks.model import (
    HELD_UP,
    AgentId,
    KnownId,
    LockId,
    Mode,
    Place,
    RequestRecord,
    State,
    agent_numbered,
    check_lock_id,
)
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage, Form, Forms, brief
from locks.otp.bytes.terms import Pid
from locks.ranges import (
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_NUMBER,
    PLACE_BITS,
    Created,
    Name,
    Number,
    Version,
)
from locks.wire.versions import check_version

__all__ = [
    "FORMS",
    "KNOWN",
    "LOCK_SERVER",
    "OURS",
    "Context",
    "agent_of",
    "is_ours",
    "mode_term",
    "pid_of",
    "record_term",
    "to_known_lock_id",
    "to_lock_id",
    "to_mode",
    "to_record",
]

LOCK_SERVER: Final = "locks_server"
OURS: Final = constant("$locks")
MOST_PLACE: Final = 1 << PLACE_BITS


def is_ours(term: Any) -> bool:
    """Whether a term claims to be a message of ours."""
    return type(term) is tuple and len(term) > 1 and term[0] is OURS


# --- References ---------------------------------------------------------------------------------


def agent_of(pid: Pid) -> AgentId:
    """The reference of the agent with this pid."""
    return agent_numbered(pid.number, pid.node)


def pid_of(agent: AgentId, creation: int = 0) -> Pid:
    """The pid of an agent; without its node's creation, it does for everything but sending."""
    # Made for each message. Functions of named tuples cost three times as much as `tuple.__new__`.
    return tuple.__new__(Pid, (agent.created, agent.node, creation))


def _to_agent(term: Any) -> AgentId:
    """An agent, by its pid."""
    if type(term) is not Pid:
        raise BadMessage(f"{brief(term)} should be a pid")
    return agent_of(term)


# --- Lock ids and places ------------------------------------------------------------------------


def to_lock_id(term: Any) -> LockId:
    """A lock id that another node may ask for, from a list of what can be a key."""
    if type(term) is not list or not term:
        raise BadMessage(f"{brief(term)} should be a list that is not empty")
    try:
        return check_lock_id(tuple(term))
    except InvalidLockId as error:
        raise BadMessage(str(error)) from None


_HELD_UP_REST: Final = Forms({}).of(tuple[Name, Created, Number]).unpack


def to_known_lock_id(term: Any) -> LockId:
    """A lock id that another node may tell of; it may stand for a client's wait (`HELD_UP`)."""
    if type(term) is list and len(term) == 4 and term[0] == HELD_UP:
        return (HELD_UP, *_HELD_UP_REST(tuple(term[1:])))
    return to_lock_id(term)


def _place_term(place: Place) -> Any:
    return place if type(place) is int else (place.numerator, place.denominator)


def _to_place(term: Any) -> Place:
    if type(term) is int and -MOST_PLACE < term < MOST_PLACE:
        return term
    if type(term) is tuple and len(term) == 2 and type(term[0]) is type(term[1]) is int:
        above, below = term
        if -MOST_PLACE < above < MOST_PLACE and 0 < below < MOST_PLACE:
            return Fraction(above, below)
    raise BadMessage(f"{brief(term)} should be a place in an order")


def _same(value: Any) -> Any:
    return value


FORMS = Forms(
    {
        AgentId: Form(pid_of, _to_agent),
        LockId: Form(list, to_lock_id),
        KnownId: Form(list, to_known_lock_id),
        Place: Form(_place_term, _to_place),
        Version: Form(_same, check_version),
    }
)
mode_term, to_mode, _ = FORMS.of(Mode)
_state_term, _to_state, _ = FORMS.of(State)

# --- Compact records: the receiver fills in its own agent ---------------------------------------

KNOWN: Final = 0


class Context(NamedTuple):
    """What the receiver knows itself: who sent the message, and who gets it."""

    node: str
    receiver: AgentId | None
    client: str


def record_term(record: RequestRecord, context: tuple[Any, AgentId | None]) -> tuple[Any, ...]:
    """The term of a record, told by a node to a receiver: the two are the context.

    This and `to_record` are written by hand because agent and client are left out together, and
    because most of what is sent are records.
    """
    node, number, agent, client, lock_id, mode, state, place, since, blocked, version = astuple(
        record
    )
    at, receiver = context
    own = agent == receiver
    return (
        KNOWN if node == at else node,
        number,
        KNOWN if own else Pid(agent[0], agent[1], 0),
        KNOWN if own else client,
        list(lock_id),
        mode_term(mode),
        _state_term(state),
        place if type(place) is int else _place_term(place),
        since,
        blocked,
        version,
    )


def _is_known(term: Any) -> bool:
    return type(term) is int and term == KNOWN


def to_record(term: Any, context: Context) -> RequestRecord:
    """A record of a request."""
    if type(term) is not tuple or len(term) != 11:
        raise BadMessage(f"{brief(term)} should be a request record")
    node, number, pid, client, lock_id, mode, state, place, since, blocked, version = term
    if not (
        ((type(node) is str and len(node) <= LONGEST_NAME) or (_is_known(node) and context.node))
        and type(number) is int
        and 0 <= number <= MOST_NUMBER
        and type(blocked) is bool
        and (
            (type(pid) is Pid and type(client) is str and len(client) <= LONGEST_TEXT)
            or (_is_known(pid) and _is_known(client) and context.receiver is not None)
        )
    ):
        raise BadMessage(f"{brief(term)} should be a request record")
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
        to_known_lock_id(lock_id),
        to_mode(mode),
        _to_state(state),
        place if type(place) is int and -MOST_PLACE < place < MOST_PLACE else _to_place(place),
        check_version(since),
        blocked,
        check_version(version),
    )
