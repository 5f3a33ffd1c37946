"""The contents of the page at one moment, as tables of rows of JSON values.

A row contains nothing that changes by itself: it has the time when something began, by a given clock, instead of a duration.
So a row changes only if something has happened. The key of a row stays the same while its meaning does: a lock
that is first waited for and then granted is one row that changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

from locks.core.facts import DeadlockFact, MemberFact, RequestFact
from locks.facts.around import (
    Around,
    ElectionFact,
    elections,
    group_name,
    groups,
    is_contest,
    is_of_election,
)
from locks.facts.data import deadlock_as_data, id_as_data, member_as_data, tree_as_data
from locks.facts.graph import WaitReport, grouped
from locks.facts.look import Look
from locks.model import AgentId, is_held_up_id

__all__ = ["TABLES", "Picture", "Row", "key_of", "picture_of"]

Row = dict[str, Any]
Picture = Mapping[str, Mapping[str, Row]]
"""Rows by table and key; neither is ever changed."""

TABLES = ("state", "servers", "agents", "locks", "waits", "deadlocks", "elections", "groups")
MOST_LOCKS = 20_000  # rows; the longest times, waiting first
MOST_DEADLOCKS = 100
MOST_GROUPS = 200  # and as many elections; the first by name
MOST_FOLLOWERS = 20  # named members of each kind
SAME = 1_000_000  # microseconds between reports of one deadlock by several servers


def key_of(agent: AgentId) -> str:
    """The key of an agent's row; the agent's text alone is not unique."""
    return f"{agent.created:x}-{agent}"


def picture_of(look: Look, error: str = "") -> Picture:
    """Make the picture of a look.

    Args:
        look: The look.
        error: Why the look failed completely; "" if it did not.
    """
    rows = grouped(look.waits)
    rows.sort(key=lambda facts: facts[0].granted)  # stable: the longest stays first
    shown = rows[:MOST_LOCKS]
    edges = _edges(look.waits)
    around = look.around or Around((), (), ())
    led = _elections(look, around)
    peopled = groups(each for each in around.members if not is_of_election(each.group))
    facts = [group[0] for group in shown]
    facts += [election.grant for election in led if election.grant is not None]
    ends = [fact for edge in look.waits.edges for fact in edge]
    return {
        "state": {
            "cluster": {
                **_state(look, error),
                "left_out": len(rows) - len(shown),
                "elections": len(led),
                "groups": len(peopled),
                "unheard": len(around.silent),
            }
        },
        "servers": _servers(look),
        "agents": _agents(facts + ends, look.waits.roots),
        "locks": {_lock_key(group): _lock(group) for group in shown},
        "waits": edges,
        "deadlocks": _deadlocks(look.deadlocks),
        "elections": {repr(each.resource): _election(each) for each in led[:MOST_GROUPS]},
        "groups": {" ".join(key): _group(peopled[key]) for key in islice(peopled, MOST_GROUPS)},
    }


def _state(look: Look, error: str) -> Row:
    return {
        "answered": len(look.nodes),
        "servers": look.known,
        "needed": look.required,
        "enough": look.enough,
        "error": error,
    }


def _servers(look: Look) -> dict[str, Row]:
    rows: dict[str, Row] = {
        fact.node: {
            "version": fact.version,
            "program": fact.program,
            "started": fact.started / 1e6,
            "ahead": fact.ahead_of(look.at),
            "sees": len(fact.servers),
            "clients": fact.clients,
            "deadlocks": fact.statistics.broken.total,
            "table": tree_as_data(fact.statistics.table),
            "silent": "",
        }
        for fact in sorted(look.nodes, key=attrgetter("node"))
    }
    for name, reason in look.silent:
        rows[name] = {"silent": reason}
    return rows


def _agents(facts: Iterable[RequestFact], roots: Sequence[AgentId]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for fact in facts:
        key = key_of(fact.request.agent)
        if key not in rows:
            rows[key] = {
                "name": str(fact.request.agent),
                "label": fact.label,
                "program": fact.program,
                "pid": fact.pid,
                "address": fact.address,
                "root": False,
            }
        elif fact.address and not rows[key]["address"]:
            rows[key]["address"] = fact.address
    for agent in roots:
        rows[key_of(agent)]["root"] = True
    return rows


def _lock_key(facts: Sequence[RequestFact]) -> str:
    node, number = min(fact.request.key for fact in facts)
    return f"{number} {node}"


def _lock(facts: Sequence[RequestFact]) -> Row:
    first = facts[0]
    server, begun = _longest(facts)
    return {
        "agent": key_of(first.request.agent),
        **id_as_data(first.request.lock_id),
        "mode": first.request.mode,
        "held": first.granted,
        "since": begun,
        "clock": server,
        "servers": sorted(fact.request.node for fact in facts),
    }


def _longest(facts: Sequence[RequestFact]) -> tuple[str, float]:
    """The server with the earliest begin of the hold or wait, and that time; 0 if none knows."""
    known = [
        (fact.since if fact.granted else fact.asked, fact.request.node)
        for fact in facts
        if (fact.since if fact.granted else fact.asked)
    ]
    begun, server = min(known) if known else (0, facts[0].request.node)
    return server, begun / 1e6


def _edges(waits: WaitReport) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for waiter, holder in waits.edges:
        pair = (key_of(waiter.request.agent), key_of(holder.request.agent))
        is_own = is_held_up_id(waiter.request.lock_id)
        rows.setdefault(
            " ".join(pair),
            {
                "waiter": pair[0],
                "holder": pair[1],
                **({"id": []} if is_own else id_as_data(waiter.request.lock_id)),
                "mode": waiter.request.mode,
                "ahead": not holder.granted,
            },
        )
    return rows


def _elections(look: Look, around: Around) -> list[ElectionFact]:
    """The elections. The locks show who leads. Client nodes know terms and followers; they are asked less often."""
    locked = [fact for fact in look.waits.requests if is_contest(fact.request.lock_id)]
    newest = {fact.node: fact for fact in (*around.nodes, *look.nodes)}
    return elections(locked, around.members, newest.values(), look.needed)


def _election(fact: ElectionFact) -> Row:
    grant = fact.grant
    return {
        "name": group_name(fact.resource),
        "leader": key_of(grant.request.agent) if grant else "",
        "term": fact.term,
        "since": grant.since / 1e6 if grant else 0,
        "clock": grant.request.node if grant else "",
        "candidates": len(fact.candidates),
        "workers": len(fact.workers),
        "followers": [
            {"role": role, **member_as_data(each)}
            for role, instances in (("candidate", fact.candidates), ("worker", fact.workers))
            for each in instances[:MOST_FOLLOWERS]
        ],
    }


def _group(facts: Sequence[MemberFact]) -> Row:
    return {
        "scope": facts[0].scope,
        "name": group_name(facts[0].group),
        "members": len(facts),
        "nodes": len({fact.node for fact in facts}),
    }


def _deadlocks(facts: Iterable[DeadlockFact]) -> dict[str, Row]:
    """The newest deadlocks, one row for each, also if several servers resolved it at the same time."""
    rows: dict[str, Row] = {}
    latest: dict[Any, tuple[int, Row]] = {}
    for fact in sorted(facts, key=lambda each: (each.at, each.report.server, each.number)):
        report = fact.report
        same = (report.agent, report.lock_id, frozenset(report.agents))
        at, row = latest.get(same, (0, {}))
        if row and fact.at - at <= SAME:
            if report.server not in row["servers"]:
                row["servers"] = [*row["servers"], report.server]
            continue
        row = {
            **deadlock_as_data(fact),
            "agent_key": key_of(report.agent),
            "agents": [key_of(agent) for agent in report.agents],
            "servers": [report.server],
        }
        latest[same] = (fact.at, row)
        rows[f"{fact.at} {fact.number} {report.server}"] = row
    newest = list(rows)[-MOST_DEADLOCKS:]
    return {key: rows[key] for key in newest}
