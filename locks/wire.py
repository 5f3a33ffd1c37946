"""The messages between lock servers and agents, as Erlang terms.

A message to a lock server is a cast to the name `locks_server`, as in the original; one to an agent is
sent to its pid. Each is a tuple that begins with the atom `$locks`, so that the original, which has
other messages, takes no notice of them. An agent's reference is its pid: `created` is the pid's number,
and so references have the same order here and in Erlang. A lock id is a list, as in the original.

What arrives is data from another program: everything is checked before it is a message again.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from locks.errors import OperatingError
from locks.messages import (
    Inquire,
    Knowledge,
    Raise,
    Raised,
    Release,
    Released,
    Remove,
    Request,
    Resolved,
    Standing,
    Surrender,
    Surrendered,
    Told,
)
from locks.model import (
    MODES,
    AgentId,
    Contender,
    Deadlock,
    Edge,
    LockId,
    LockInfo,
    LockResult,
    Notification,
    Place,
    RequestRecord,
    View,
)
from locks.otp.terms import Atom, Pid

__all__ = [
    "LOCK_SERVER",
    "OURS",
    "VIEW",
    "BadMessage",
    "agent_of",
    "is_ours",
    "pack",
    "pack_info",
    "pack_notification",
    "pack_result",
    "pack_view",
    "pid_of",
    "to_lock_id",
    "unpack",
    "unpack_info",
    "unpack_result",
    "unpack_view",
]

LOCK_SERVER = "locks_server"
OURS = Atom("$locks")
VIEW = Atom("view")
LOCKS_AGENT = Atom("locks_agent")
SERIAL_BITS = 12  # of an agent's `created`: its serial number; those above are microseconds


class BadMessage(OperatingError):
    """Another node has sent something that is no message of ours."""


def agent_of(pid: Pid) -> AgentId:
    """The reference of the agent with this pid."""
    return AgentId(pid.number, pid.node, pid.number & ((1 << SERIAL_BITS) - 1))


def pid_of(agent: AgentId, creation: int = 0) -> Pid:
    """The pid of an agent; without its node's creation, it does for everything but sending."""
    return Pid(agent.created, agent.node, creation)


# --- Packing ------------------------------------------------------------------------------------

_ATOMS = {
    text: Atom(text)
    for text in (
        *MODES, "granted", "waiting", "gone", "surrendered", "aborted", "request", "release",
        "surrender", "remove", "standing", "inquire", "raise", "told", "released", "raised",
        "surrendered", "resolved", "knowledge", "no_locks", "have_all_locks", "cannot_serve",
    )
}  # fmt: skip


def _mode(mode: str | None) -> Atom | None:
    return None if mode is None else _ATOMS[mode]


def _place(place: Place) -> Any:
    return place if type(place) is int else (place.numerator, place.denominator)


def _record(record: RequestRecord) -> tuple[Any, ...]:
    node, number, agent, client, lock_id, mode, state, place, since, blocked, version = record
    return (
        node,
        number,
        Pid(agent[0], agent[1], 0),
        client,
        list(lock_id),
        _ATOMS[mode],
        _ATOMS[state],
        place if type(place) is int else _place(place),
        since,
        blocked,
        version,
    )


def _records(records: tuple[RequestRecord, ...]) -> list[Any]:
    return [_record(record) for record in records]


def _report(report: Deadlock | None) -> Any:
    if report is None:
        return None
    agent, lock_id, node, action, cycle, rule = report
    edges = [(_record(edge.waiter), _record(edge.holder)) for edge in cycle]
    return (pid_of(agent), list(lock_id), node, _ATOMS[action], edges, rule)


def _surrender(m: Surrender) -> tuple[Any, ...]:
    return (pid_of(m.agent), list(m.lock_id), m.waiter, m.holder, _report(m.report))


_PACKERS: dict[type[Any], tuple[Atom, Callable[[Any], tuple[Any, ...]]]] = {
    Request: (
        _ATOMS["request"],
        lambda m: (
            Pid(m[0][0], m[0][1], 0),
            m.client,
            list(m.lock_id),
            _ATOMS[m.mode],
            m.requests_elsewhere,
            m.waits_elsewhere,
        ),
    ),
    Release: (
        _ATOMS["release"],
        lambda m: (pid_of(m.agent), list(m.lock_id), _mode(m.mode)),
    ),
    Surrender: (_ATOMS["surrender"], _surrender),
    Remove: (_ATOMS["remove"], lambda m: (pid_of(m.agent),)),
    Standing: (
        _ATOMS["standing"],
        lambda m: (pid_of(m.agent), m.requests_elsewhere, m.waits_elsewhere),
    ),
    Inquire: (_ATOMS["inquire"], lambda m: (pid_of(m.agent),)),
    Raise: (
        _ATOMS["raise"],
        lambda m: (pid_of(m.agent), list(m.lock_id), m.since, m.version),
    ),
    Told: (_ATOMS["told"], lambda m: (m.node, _records(m.records))),
    Released: (
        _ATOMS["released"],
        lambda m: (m.node, list(m.lock_id), _records(m.records)),
    ),
    Raised: (
        _ATOMS["raised"],
        lambda m: (m.node, list(m.lock_id), m.since, m.version, m.done),
    ),
    Surrendered: (
        _ATOMS["surrendered"],
        lambda m: (m.node, _surrender(m.message), m.done, _records(m.records), m.version),
    ),
    Resolved: (_ATOMS["resolved"], lambda m: (_report(m.report), _records(m.records))),
    Knowledge: (
        _ATOMS["knowledge"],
        lambda m: (pid_of(m.sender), _records(m.records), m.forgot),
    ),
}


def pack(message: Any) -> tuple[Any, ...]:
    """The term of a message to a lock server or an agent."""
    tag, fields = _PACKERS[type(message)]
    return (OURS, tag, *fields(message))


# --- Unpacking ----------------------------------------------------------------------------------


def _check(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise BadMessage(f"{value!r} should be a {kind.__name__}")
    return value


def _to_agent(term: Any) -> AgentId:
    if type(term) is not Pid:
        raise BadMessage(f"{term!r} should be a pid")
    return AgentId(term[0], term[1], term[0] & 0xFFF)


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


def _one_of(term: Any, *names: str) -> Any:
    if type(term) is Atom and term.name in names:
        return term.name
    raise BadMessage(f"{term!r} should be one of {', '.join(names)}")


def _to_place(term: Any) -> Place:
    if type(term) is int:
        return term
    if type(term) is tuple and len(term) == 2 and all(type(n) is int for n in term) and term[1]:
        return Fraction(*term)
    raise BadMessage(f"{term!r} should be a place in an order")


_TYPES = (str, int, Pid, str, list, Atom, Atom, None, int, bool, int)


def _to_record(term: Any) -> RequestRecord:
    if type(term) is not tuple or len(term) != len(_TYPES):
        raise BadMessage(f"{term!r} should be a request record")
    for value, kind in zip(term, _TYPES, strict=True):
        if type(value) is not kind and kind is not None:
            raise BadMessage(f"{value!r} should be a {kind.__name__} in {term!r}")
    node, number, pid, client, lock_id, mode, state, place, since, blocked, version = term
    return RequestRecord(
        node,
        number,
        AgentId(pid[0], pid[1], pid[0] & 0xFFF),
        client,
        to_lock_id(lock_id),
        _one_of(mode, "read", "write"),
        _one_of(state, "granted", "waiting", "gone"),
        place if type(place) is int else _to_place(place),
        since,
        blocked,
        version,
    )


def _to_records(term: Any) -> tuple[RequestRecord, ...]:
    return tuple([_to_record(each) for each in _check(term, list)])


def _fields(term: Any, count: int) -> tuple[Any, ...]:
    if type(term) is not tuple or len(term) != count:
        raise BadMessage(f"{term!r} should be a tuple of {count}")
    return term


def _to_report(term: Any) -> Deadlock | None:
    if term is None:
        return None
    agent, lock_id, node, action, cycle, rule = _fields(term, 6)
    edges = [_fields(edge, 2) for edge in _check(cycle, list)]
    return Deadlock(
        _to_agent(agent),
        to_lock_id(lock_id),
        _check(node, str),
        _one_of(action, "surrendered", "aborted"),
        tuple(Edge(_to_record(waiter), _to_record(holder)) for waiter, holder in edges),
        _check(rule, str),
    )


def _to_end(term: Any) -> tuple[int, int] | None:
    if term is None:
        return None
    number, since = _fields(term, 2)
    return (_check(number, int), _check(since, int))


def _to_surrender(fields: tuple[Any, ...]) -> Surrender:
    agent, lock_id, waiter, holder, report = _fields(fields, 5)
    return Surrender(
        _to_agent(agent), to_lock_id(lock_id), _to_end(waiter), _to_end(holder), _to_report(report)
    )


def _to_request(fields: tuple[Any, ...]) -> Request:
    agent, client, lock_id, mode, requests, waits = _fields(fields, 6)
    return Request(
        _to_agent(agent),
        _check(client, str),
        to_lock_id(lock_id),
        _one_of(mode, "read", "write"),
        _check(requests, bool),
        _check(waits, bool),
    )


def _to_release(fields: tuple[Any, ...]) -> Release:
    agent, lock_id, mode = _fields(fields, 3)
    found = None if mode is None else _one_of(mode, "read", "write")
    return Release(_to_agent(agent), to_lock_id(lock_id), found)


def _to_raise(fields: tuple[Any, ...]) -> Raise:
    agent, lock_id, since, version = _fields(fields, 4)
    return Raise(_to_agent(agent), to_lock_id(lock_id), _check(since, int), _check(version, int))


def _to_standing(fields: tuple[Any, ...]) -> Standing:
    agent, requests, waits = _fields(fields, 3)
    return Standing(_to_agent(agent), _check(requests, bool), _check(waits, bool))


def _to_told(fields: tuple[Any, ...]) -> Told:
    node, records = _fields(fields, 2)
    return Told(_check(node, str), _to_records(records))


def _to_released(fields: tuple[Any, ...]) -> Released:
    node, lock_id, records = _fields(fields, 3)
    return Released(_check(node, str), to_lock_id(lock_id), _to_records(records))


def _to_raised(fields: tuple[Any, ...]) -> Raised:
    node, lock_id, since, version, done = _fields(fields, 5)
    return Raised(
        _check(node, str),
        to_lock_id(lock_id),
        _check(since, int),
        _check(version, int),
        _check(done, bool),
    )


def _to_surrendered(fields: tuple[Any, ...]) -> Surrendered:
    node, message, done, records, version = _fields(fields, 5)
    return Surrendered(
        _check(node, str),
        _to_surrender(message),
        _check(done, bool),
        _to_records(records),
        _check(version, int),
    )


def _to_resolved(fields: tuple[Any, ...]) -> Resolved:
    report, records = _fields(fields, 2)
    found = _to_report(report)
    if found is None:
        raise BadMessage("a resolved deadlock without a report")
    return Resolved(found, _to_records(records))


def _to_knowledge(fields: tuple[Any, ...]) -> Knowledge:
    sender, records, forgot = _fields(fields, 3)
    return Knowledge(_to_agent(sender), _to_records(records), _check(forgot, bool))


_UNPACKERS: dict[Atom, Callable[[tuple[Any, ...]], Any]] = {
    _ATOMS["request"]: _to_request,
    _ATOMS["release"]: _to_release,
    _ATOMS["surrender"]: _to_surrender,
    _ATOMS["remove"]: lambda fields: Remove(_to_agent(*_fields(fields, 1))),
    _ATOMS["standing"]: _to_standing,
    _ATOMS["inquire"]: lambda fields: Inquire(_to_agent(*_fields(fields, 1))),
    _ATOMS["raise"]: _to_raise,
    _ATOMS["told"]: _to_told,
    _ATOMS["released"]: _to_released,
    _ATOMS["raised"]: _to_raised,
    _ATOMS["surrendered"]: _to_surrendered,
    _ATOMS["resolved"]: _to_resolved,
    _ATOMS["knowledge"]: _to_knowledge,
}


def is_ours(term: Any) -> bool:
    """Whether a term claims to be a message of ours."""
    return type(term) is tuple and len(term) > 1 and term[0] == OURS


def unpack(term: tuple[Any, ...]) -> Any:
    """The message to a lock server or an agent that a term stands for.

    Raises:
        BadMessage: It is none.
    """
    found = _UNPACKERS.get(term[1]) if type(term[1]) is Atom else None
    if found is None:
        raise BadMessage(f"there is no message {term[1]!r}")
    return found(term[2:])


# --- What agents answer to clients, and lock servers to watchers, of other nodes -----------------


def pack_result(result: LockResult) -> tuple[Any, ...]:
    """The term of a result."""
    return (_ATOMS[result.status], [_report(report) for report in result.deadlocks])


def unpack_result(term: Any) -> LockResult:
    """The result that a term stands for."""
    status, reports = _fields(term, 2)
    found = [_to_report(report) for report in _check(reports, list)]
    return LockResult(
        _one_of(status, "no_locks", "waiting", "have_all_locks", "cannot_serve"),
        tuple(report for report in found if report is not None),
    )


def pack_info(info: LockInfo) -> tuple[Any, ...]:
    """The term of what an agent knows of one lock."""
    lock_id, mode, nodes, require, granted, held, claimed = info
    return (list(lock_id), mode, list(nodes), require, list(granted), held, claimed)


def unpack_info(term: Any) -> LockInfo:
    """What an agent knows of one lock."""
    lock_id, mode, nodes, require, granted, held, claimed = _fields(term, 7)
    return LockInfo(
        to_lock_id(lock_id),
        _check(mode, str),
        tuple(_check(nodes, list)),
        _check(require, str),
        tuple(_check(granted, list)),
        _check(held, bool),
        _check(claimed, bool),
    )


def pack_notification(news: Notification, agent: Any) -> tuple[Any, ...]:
    """What an agent tells its client: the atom `locks_agent`, the agent, a kind, and a value."""
    value = news.value
    if news.kind == "have_all_locks":
        value = [_report(report) for report in value]
    elif news.kind == "lock_info":
        value = _record(value)
    elif news.kind == "lost":
        value = [list(lock_id) for lock_id in value]
    return (LOCKS_AGENT, agent, news.kind, value)


def pack_view(view: View) -> tuple[Any, ...]:
    """The term of a view, for a watcher of another node."""
    requests = [
        (pid_of(c.agent), c.client, list(c.lock_id), _ATOMS[c.mode], c.granted, c.version, c.number)
        + (_place(c.place),)
        for c in view.requests
    ]
    return (OURS, VIEW, list(view.lock_id), view.node, requests, view.version)


def unpack_view(term: Any) -> View:
    """The view that a term stands for."""
    ours, tag, lock_id, node, requests, version = _fields(term, 6)
    if ours != OURS or tag != VIEW:
        raise BadMessage(f"{term!r} should be a view")
    contenders = []
    for each in _check(requests, list):
        agent, client, its_id, mode, granted, since, number, place = _fields(each, 8)
        contenders.append(
            Contender(
                _to_agent(agent),
                _check(client, str),
                to_lock_id(its_id),
                _one_of(mode, "read", "write"),
                _check(granted, bool),
                _check(since, int),
                _check(number, int),
                _to_place(place),
            )
        )
    return View(to_lock_id(lock_id), _check(node, str), tuple(contenders), _check(version, int))
