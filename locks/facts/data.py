"""Facts as JSON data, for commands with `--json` and for the live page; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from locks.core.facts import DeadlockFact, MemberFact, RequestFact
from locks.core.steps import steps_of
from locks.model import AgentId, Edge, LockId, RequestRecord, show
from locks.node.client.clients import parts_of
from locks.node.observing.elections import election_of
from locks.ranges import Value

__all__ = [
    "as_json",
    "deadlock_as_data",
    "fact_as_data",
    "id_as_data",
    "lock_as_data",
    "member_as_data",
    "tree_as_data",
]


def as_json(value: Any) -> Any:
    """A value as JSON data; values other than text, numbers and lists of these are written as in Python."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, AgentId):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [as_json(each) for each in value]
    return repr(value)


def id_as_data(lock_id: LockId) -> dict[str, Any]:
    """A lock id; the id of an election's lock also has the subject of the election."""
    data = {"id": as_json(lock_id), "typed": show(lock_id)}
    election = election_of(lock_id)
    return data if election is None else {**data, "election": as_json(election.resource)}


def tree_as_data(value: Any) -> Any:
    """A tree of values."""
    if isinstance(value, Value):
        return {name: tree_as_data(part) for name, part in asdict(value).items()}
    return [tree_as_data(part) for part in value] if isinstance(value, tuple) else value


def fact_as_data(fact: RequestFact) -> dict[str, Any]:
    """A request at one lock server."""
    request = fact.request
    return {
        **id_as_data(request.lock_id),
        "mode": request.mode,
        "state": "granted" if fact.granted else "waiting",
        "server": request.node,
        "number": request.number,
        "agent": str(request.agent),
        "label": fact.label,
        "program": fact.program,
        "pid": fact.pid,
        "node": request.agent.node,
        "address": fact.address,
        "asked": fact.asked / 1e6,
        "since": fact.since / 1e6 if fact.granted else None,
        "seconds": fact.seconds,
    }


def lock_as_data(facts: Sequence[RequestFact]) -> dict[str, Any]:
    """A lock id that a transaction holds or requests, at all its servers."""
    data = fact_as_data(facts[0])
    for name in ("server", "number"):
        del data[name]
    data["seconds"] = max(fact.seconds for fact in facts)
    data["servers"] = sorted(fact.request.node for fact in facts)
    return data


def deadlock_as_data(fact: DeadlockFact) -> dict[str, Any]:
    """A resolved deadlock."""
    report = fact.report
    yields, steps = steps_of(report, lambda client: parts_of(client)[0], show)
    return {
        "at": fact.at / 1e6,
        "server": report.server,
        "agent": str(report.agent),
        **id_as_data(report.lock_id),
        "node": report.node,
        "action": report.action,
        "rule": report.rule,
        "cycle": [_edge_as_data(edge) for edge in report.cycle],
        "yields": yields,
        "steps": list(steps),
        "text": str(report),
    }


def _edge_as_data(edge: Edge) -> dict[str, Any]:
    return {"waiter": _record_as_data(edge.waiter), "holder": _record_as_data(edge.holder)}


def _record_as_data(record: RequestRecord) -> dict[str, Any]:
    return {
        **id_as_data(record.lock_id),
        "agent": as_json(record.agent),
        "client": record.client,
        "mode": record.mode,
        "state": "granted" if record.state == "granted" else "waiting",
        "server": record.node,
    }


def member_as_data(fact: MemberFact) -> dict[str, Any]:
    """A member of a process group."""
    return {
        "member": fact.member,
        "program": fact.program,
        "pid": fact.pid,
        "node": fact.node,
    }
