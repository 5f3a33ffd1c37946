"""The invariants of a world, and its wait-for graph.

Each check raises a `Violation` that tells what is wrong. A check of one party, or of two, has only
these as arguments, so that the explorer can remember the result.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from locks.core.messages import (
    AgentMessage,
    Release,
    Remove,
    Resolved,
    ServerEffect,
    ServerMessage,
    Surrender,
    Surrendered,
    ToAgent,
    ToWatcher,
    Unwatch,
    Watch,
)
from locks.core.server.machine import ServerMachine
from locks.core.server.tree import Entry
from locks.errors import assert_never
from locks.model import (
    RIVALS,
    AgentId,
    Deadlock,
    Edge,
    LockId,
    RequestKey,
    RequestRecord,
    blocks,
    covers,
    how_many_block,
    related,
    show,
    unit_at,
    units_of,
)
from locks.ranges import replace
from locks_lab.worlds.client import ScriptedClient, TokenKey
from locks_lab.worlds.host import Host, Violation, needed
from locks_lab.worlds.study import study

__all__ = [
    "Bearer",
    "Served",
    "bound",
    "check_clean",
    "check_done",
    "check_exclusion",
    "check_heard",
    "check_report",
    "check_rule",
    "check_standing",
    "check_token",
    "check_told",
    "check_units",
    "edges_of",
    "excused",
    "granted",
    "is_deadlock",
    "keys",
    "mail_of",
    "reached",
    "requester",
    "serve",
]

Granted = dict[tuple[int, int], Entry]


# --- Clients and lock tables --------------------------------------------------------------------


def check_told(host: Host, server: ServerMachine) -> None:
    """Check that all locks of whose grants a client was notified are granted in the lock table."""
    for (node, lock_id), mode in host.told.items():
        if node == server.node:
            own = server.table.own(host.ref, lock_id)
            if not any(e.granted and covers(e.mode, mode) for e in own):
                raise Violation(
                    f"{host.agent.client} was told that it has {mode} {show(lock_id)} on {node}; "
                    "the lock table does not know"
                )


def check_standing(
    host: Host, servers: Mapping[str, ServerMachine], others: Mapping[AgentId, Host]
) -> None:
    """Check that a held majority lock is granted on all its servers that are up; no message is in flight.

    The exception: a conflicting request is granted there, by which another agent holds a lock.
    """
    agent = host.agent
    for info in agent.lock_info() if host.had else ():
        if info.lock_id not in host.had or not info.held or info.lock_id in host.lost:
            continue
        if not info.require.startswith("majority") or study(agent).giving_up:
            continue
        for node in info.nodes:
            server = servers.get(node)
            if server is None or node not in study(agent).alive or node in info.granted:
                continue
            if not any(
                entry.granted
                and entry.mode in RIVALS[info.mode]
                and entry.requester.id in others
                and others[entry.requester.id].has(entry.slot.lock_id)
                for entry in server.table.related(info.lock_id)
            ):
                raise Violation(
                    f"{agent.client} has {info.mode} {show(info.lock_id)} on {len(info.granted)} of "
                    f"{len(info.nodes)} servers, and not on {node}, which is up"
                )


def check_exclusion(one: Host, other: Host, node: str) -> None:
    """Check that two clients were not notified of conflicting locks on a node."""
    theirs = [(lock_id, mode) for (where, lock_id), mode in other.told.items() if where == node]
    for (where, lock_id), mode in one.told.items():
        for other_id, other_mode in theirs if where == node else ():
            if lock_id == other_id and units_of(lock_id):
                check_units(one, other, lock_id, node)
            elif mode in RIVALS[other_mode] and related(lock_id, other_id):
                raise Violation(
                    f"on {node} {one.agent.client} has {mode} {show(lock_id)} "
                    f"and {other.agent.client} has {other_mode} {show(other_id)}"
                )


def check_units(one: Host, other: Host, lock_id: LockId, node: str) -> None:
    """Check that two clients hold different units of a counted lock, so there are enough units."""
    units = [_unit(host, lock_id, node) for host in (one, other)]
    if units[0] == units[1] or not set(units) <= set(range(units_of(lock_id))):
        raise Violation(
            f"on {node} {one.agent.client} and {other.agent.client} have the units {units} of "
            f"{show(lock_id)}"
        )


def _unit(host: Host, lock_id: LockId, node: str) -> int | None:
    asked = study(host.agent).asked(lock_id)
    records = asked.records.get(node, ()) if asked is not None else ()
    return next((unit_at(record) for record in records if record.state == "granted"), None)


class Bearer(Protocol):
    """A client that gets fencing tokens.

    Attributes:
        tokens: The fencing tokens that it has got.
    """

    tokens: dict[TokenKey, int]

    @property
    def host(self) -> Host:
        """Its agent."""


def check_token(
    client: Bearer,
    key: TokenKey,
    others: Iterable[Bearer],
    servers: Iterable[ServerMachine | None],
) -> None:
    """Check that a new fencing token is larger than all earlier tokens of conflicting locks.

    This holds if the grants that the agent knows still exist. If they do not, another client may
    have got the lock meanwhile. Then the token is out of date, and a resource will refuse it.
    """
    host, token = client.host, client.tokens[key]
    running = {server.node: server for server in servers if server is not None}
    (info,) = (info for info in host.agent.lock_info() if info.lock_id == key.lock_id)
    for node, since in zip(info.granted, info.versions, strict=True):
        server = running.get(node)
        own = server.table.own(host.ref, key.lock_id) if server is not None else []
        if not any(entry.granted and entry.since == since for entry in own):
            return
    for other in others:
        for earlier, its in other.tokens.items():
            if not key.is_ordered_with(earlier) or not related(earlier.lock_id, key.lock_id):
                continue
            if earlier.agent == key.agent:
                falls = earlier.lock_id == key.lock_id and token < its
            else:
                falls = earlier.mode in RIVALS[key.mode] and token <= its
            if falls:
                raise Violation(
                    f"fencing tokens of {show(key.lock_id)} fall: {host.agent.client} gets "
                    f"{token}, after {other.host.agent.client} had {its} for {show(earlier.lock_id)}"
                )


def check_heard(host: Host, message: AgentMessage) -> None:
    """Check that an agent that is notified of a deadlock keeps the report for its client."""
    report = None
    if isinstance(message, Resolved):
        report = message.report
    elif isinstance(message, Surrendered) and message.done:
        report = message.message.report
    if report is not None and report not in host.agent.deadlocks:
        raise Violation(f"{host.agent.client} will not hear of a deadlock: {report}")


# --- One step of a lock server ------------------------------------------------------------------


def granted(server: ServerMachine) -> Granted:
    """The requests that are granted, by number and the version of their grant."""
    return {
        (entry.number, entry.since): entry
        for owner in server.table.requesters.values()
        for entry in owner.all()
        if entry.granted
    }


class Served(NamedTuple):
    """The result of a message to a lock server.

    Attributes:
        effects: The effects of the lock server.
        before: The grants before.
        after: The grants now.
        resolved: The deadlock that it has resolved by a surrender, if it has.
    """

    effects: list[ServerEffect]
    before: Granted
    after: Granted
    resolved: Deadlock | None


def requester(message: ServerMessage) -> AgentId | None:
    """The agent that a message comes from, for the lock server; watchers are not agents."""
    return None if isinstance(message, (Watch, Unwatch)) else message.agent


def mail_of(node: str, effects: Iterable[ServerEffect]) -> list[tuple[str, str | AgentId, Any]]:
    """The messages of a lock server without watchers: sender, receiver, message."""
    found: list[tuple[str, str | AgentId, Any]] = []
    for effect in effects:
        match effect:
            case ToAgent():
                found.append((node, effect.agent, effect.message))
            case ToWatcher():
                raise Violation(f"nobody watches: {effect}")
            case _:
                assert_never(effect)
    return found


def serve(server: ServerMachine, message: ServerMessage) -> Served:
    """Let a lock server handle a message, and check the result.

    Grants must end only by release, removal or surrender. Deadlocks must be resolved only for edges
    that exist, and must be reported to all.
    """
    before = granted(server)
    surrender = message if isinstance(message, Surrender) and message.report is not None else None
    stood = surrender is not None and _edge_stands(server, surrender)
    effects = server.handle(message)
    server.changed = ()  # only for callers that keep times; it must not make states different
    after = granted(server)
    for key, entry in before.items():
        if key not in after and not _takes(message, entry.requester.id, entry.slot.lock_id):
            raise Violation(f"{message} took {show(entry.slot.lock_id)} from {entry.requester.id}")
    if surrender is None:
        return Served(effects, before, after, None)
    _check_answers(surrender, stood, [e for e in effects if isinstance(e, ToAgent)])
    return Served(effects, before, after, surrender.report if stood else None)


def _edge_stands(server: ServerMachine, message: Surrender) -> bool:
    """Whether the edge and the knot of a surrender exist; a lock server must check this, too."""
    records = {
        (entry.number, entry.since): entry.record(server.node)
        for owner in server.table.requesters.values()
        for entry in owner.all()
    }
    if not all(end in records and records[end].blocked for end in message.knot):
        return False
    return any(
        message.agent == edge.holder.agent
        and message.waiter == (edge.waiter.number, edge.waiter.since)
        and message.holder == (edge.holder.number, edge.holder.since)
        for edge in edges_of(server)
    )


def _check_answers(message: Surrender, stood: bool, mail: list[ToAgent]) -> None:
    """A surrender is carried out if its edge stood, answered, and reported.

    The answer to an agent of another node that aborts comes before all else, others come last.
    """
    assert message.report is not None
    answers = [e.message for e in mail if isinstance(e.message, Surrendered)]
    is_first = message.aborts and any(each.node != message.agent.node for each in answers)
    ends = mail[:1] if is_first else mail[-1:]
    if answers != [e.message for e in ends] or answers[0].message != message:
        raise Violation(f"{message} is answered by {answers}")
    if answers[0].done != stood:
        raise Violation(f"done: {answers[0].done}, though the edge stands: {stood}: {message}")
    reported = [
        e.agent
        for e in mail
        if isinstance(e.message, Resolved) and e.message.report == message.report
    ]
    others = [agent for agent in message.report.agents if agent != message.agent]
    if reported != (others if stood else []):
        raise Violation(f"{message} is reported to {reported}")


def _takes(message: ServerMessage, agent: AgentId, lock_id: LockId) -> bool:
    """Whether a message may take a grant from an agent; all others must not."""
    if requester(message) != agent:
        return False
    if isinstance(message, Surrender):
        return message.aborts or related(message.lock_id, lock_id)
    return isinstance(message, Remove) or (
        isinstance(message, Release) and message.lock_id == lock_id
    )


def check_rule(server: ServerMachine, before: Container[tuple[int, int]] = ()) -> None:
    """Check that each waiting request is blocked by another one, and that no new grant skips a request.

    The exception: a request may be granted with another one of its agent that covers it, even if a
    request of another agent is ahead.
    """
    records = {
        entry: entry.record(server.node)
        for owner in server.table.requesters.values()
        for entry in owner.all()
    }
    for entry, mine in records.items():
        if entry.granted and (entry.number, entry.since) in before:
            continue
        if not entry.granted:
            if not _has_to_wait(replace(mine, state="waiting"), records.values()):
                raise Violation(f"{mine} waits for nothing")
        elif _has_to_wait(replace(mine, state="waiting"), records.values()):
            own = [o for o in entry.requester.all() if o is not entry and o.granted]
            if not any(covers(o.mode, entry.mode) for o in own if _is_above(o, entry)):
                raise Violation(f"{mine} is granted too early")
        elif units_of(mine.lock_id):
            _check_units_in_order(entry, mine, records.values())


def _has_to_wait(record: RequestRecord, others: Iterable[RequestRecord]) -> bool:
    """Whether enough requests are granted or ahead to block a waiting one."""
    found = [how_many_block(o.lock_id, record.lock_id) for o in others if blocks(o, record)]
    return any(found.count(enough) >= enough for enough in set(found))


def _check_units_in_order(
    entry: Entry, mine: RequestRecord, others: Iterable[RequestRecord]
) -> None:
    """Check that no earlier request for a unit still waits, if nothing else blocks it."""
    others = list(others)
    for other in others:
        if (
            other.lock_id == mine.lock_id
            and other.state == "waiting"
            and other.since < entry.number
            and entry.requester.total == 1
            and not any(o.lock_id != other.lock_id and blocks(o, other) for o in others)
        ):
            raise Violation(f"{mine} is granted before {other}")


def _is_above(one: Entry, other: Entry) -> bool:
    """Whether a request is on the id of another one, or above it."""
    above = one.slot.lock_id
    return above == other.slot.lock_id[: len(above)]


def check_report(report: Deadlock) -> None:
    """The youngest agent of a cycle has yielded, for the cycle's first edge."""
    if report.agent != max(report.agents):
        raise Violation(f"not the youngest of its cycle yields: {report}")
    first = report.cycle[0]
    given_up = report.cycle[1].waiter if first.is_hold_up else first.waiter
    named = (first.holder.agent, given_up.lock_id, given_up.node)
    if named != (report.agent, report.lock_id, report.node):
        raise Violation(f"the report of a deadlock is about something else: {report}")
    for edge, following in zip(report.cycle, (*report.cycle[1:], first), strict=True):
        if not blocks(edge.holder, edge.waiter) or edge.holder.agent != following.waiter.agent:
            raise Violation(f"what is reported is no cycle: {report}")


def check_clean(server: ServerMachine) -> None:
    """Check that a lock server is empty when no client needs it any more."""
    table = server.table
    root = table.find(())
    assert root is not None
    left = {
        "requests": table.ids(),
        "owners": list(table.requesters),
        "slots": list(root.children),
        "below": sum(root.below),
        "waiting": table.statistics().waiting,
        "entries": table.statistics().entries,
    }
    if any(left.values()):
        raise Violation(f"left in {server.node}: { ({k: v for k, v in left.items() if v}) }")


def check_done(client: ScriptedClient) -> None:
    """Nothing is left in an agent that has ended."""
    agent = client.agent
    if agent.ended is None:  # it has crashed
        return
    if study(agent).remains:
        raise Violation(f"left in {agent.client}: {', '.join(study(agent).remains)}")


# --- The wait-for graph -------------------------------------------------------------------------


def edges_of(server: ServerMachine) -> list[Edge]:
    """The edges of the wait-for graph in one lock table."""
    found = []
    for owner in server.table.requesters.values():
        for entry in owner.all():
            if not entry.granted:
                waiter = entry.record(server.node)
                for other in server.table.related(waiter.lock_id):
                    holder = other.record(server.node)
                    if blocks(holder, waiter):
                        found.append(Edge(waiter, holder))
    return found


def keys(edge: Edge) -> tuple[RequestKey, RequestKey]:
    """The key of an edge: its waiting request and the request that it waits for."""
    return (edge.waiter.key, edge.holder.key)


def is_deadlock(message: Surrender, edges: list[Edge], hosts: Iterable[Host]) -> bool:
    """Whether the edge for which a surrender is made really lies in a deadlock now."""
    assert message.report is not None
    assert message.waiter is not None
    assert message.holder is not None
    node = message.report.server
    named = ((node, message.waiter[0]), (node, message.holder[0]))
    stuck = bound(edges, hosts)
    follow: dict[AgentId, set[AgentId]] = {}
    start = None
    for edge in edges:
        w, h = edge.waiter.agent, edge.holder.agent
        if w in stuck and h in stuck:
            follow.setdefault(w, set()).add(h)
            if keys(edge) == named:
                start = (h, w)
    return start is not None and start[1] in reached(start[0], follow)


def bound(edges: list[Edge], hosts: Iterable[Host]) -> set[AgentId]:
    """The agents that cannot get their locks unless an agent gives way.

    A request for one lock id on several nodes may need only some of them. A majority always
    includes its gate.
    """
    blockers: dict[tuple[AgentId, str, LockId], dict[int, set[AgentId]]] = {}
    for w, h in edges:
        there = blockers.setdefault((w.agent, w.node, w.lock_id), {})
        there.setdefault(how_many_block(h.lock_id, w.lock_id), set()).add(h.agent)
    requests = {host.ref: host.agent.lock_info() for host in hosts}
    gates = {host.ref: study(host.agent).gates for host in hosts}
    found = {w.agent for w, _ in edges if w.agent in requests}

    def is_free(agent: AgentId, node: str, lock_id: LockId) -> bool:
        there = blockers.get((agent, node, lock_id), {})
        return all(len(those & found) < enough for enough, those in there.items())

    while True:
        free = {
            agent
            for agent in found
            if all(
                sum(is_free(agent, n, i.lock_id) for n in i.nodes)
                >= needed(i.require, i.nodes, i.nodes)
                and is_free(agent, gates[agent].get(i.lock_id, ""), i.lock_id)
                for i in requests[agent]
            )
        }
        if not free:
            return found
        found -= free


def excused(edges: list[Edge], hosts: Iterable[Host]) -> set[AgentId]:
    """The agents that wait for nodes that are down, or for such agents."""
    found = {host.ref for host in hosts if host.agent.status() == "cannot_serve"}
    follow: dict[AgentId, set[AgentId]] = {}
    for edge in edges:
        follow.setdefault(edge.holder.agent, set()).add(edge.waiter.agent)
    for agent in list(found):
        found |= reached(agent, follow)
    return found


def reached(start: AgentId, follow: Mapping[AgentId, set[AgentId]]) -> set[AgentId]:
    """The start, and all agents that can be reached from it."""
    seen, todo = {start}, [start]
    while todo:
        new = follow.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen
