"""The command `locks leaders`: who leads what, since when, and who follows.

Three things that nodes tell are put together: who has the lock of an election, and since when, of the lock servers; which
instances take part, of the process groups; and of the instances' own nodes whether they lead, and in which term. A leader
whose node does not answer still has the lock: then it is shown without its term.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, NamedTuple

from locks import Atom
from locks.cli.groups import group_name, member_as_data
from locks.cli.observing import (
    FAILED,
    NOTHING,
    add_looking,
    print_json,
    say_silent,
    table,
)
from locks.core.facts import MemberFact, NodeFact, RequestFact
from locks.facts.data import as_json
from locks.facts.gather import all_nodes, members, quorum, requests
from locks.facts.stories import duration, longest
from locks.model import AgentId, LockId, show

__all__ = ["ElectionFact", "add_command", "elections"]

LOCKS_LEADER, WORKERS = Atom("locks_leader"), Atom("workers")
EXAMPLES = """\
  locks leaders
  locks leaders scheduler > /dev/null || alert "nobody leads scheduler"     # as a probe
"""
SAYS = """Who leads what: its term, and for how long it has led; below it those who follow, candidates first. A leader that does
not answer is shown without its term: it has the lock, and leads if it runs."""
HEADS = ("ELECTION", "ROLE", "TERM", "FOR", "WHO", "PROGRAM", "PID", "NODE")


class ElectionFact(NamedTuple):
    """An election, as the nodes tell it.

    Attributes:
        resource: What it is about.
        leader: What the leader has of the election's lock, on each lock server; empty if nobody leads.
        term: The leader's term; `None` if it does not say.
        seconds: For how long it has had the lock on enough lock servers.
        candidates: The candidates, but for the leader.
        workers: The workers.
    """

    resource: Any
    leader: tuple[RequestFact, ...]
    term: int | None
    seconds: float
    candidates: tuple[MemberFact, ...]
    workers: tuple[MemberFact, ...]


def elections(
    locked: Iterable[RequestFact],
    instances: Iterable[MemberFact],
    nodes: Iterable[NodeFact],
    needed: int,
) -> list[ElectionFact]:
    """The elections that these facts tell of, by name.

    Args:
        locked: Requests on the locks of elections.
        instances: Members of process groups.
        nodes: What nodes say of themselves.
        needed: On how many lock servers a lock is needed.
    """
    found: dict[str, _Parts] = {}
    for fact in locked:
        lock_id = fact.request.lock_id
        if len(lock_id) == 2:  # not the lock for merges
            _parts(found, lock_id).add(fact)
    for member in instances:
        match member.group:
            case (head, [first, resource]) if head == first == LOCKS_LEADER:
                _parts(found, (first, resource)).candidates.append(member)
            case (head, kind, [first, resource]) if (
                head == first == LOCKS_LEADER and kind == WORKERS
            ):
                _parts(found, (first, resource)).workers.append(member)
    terms: dict[tuple[str, str], int | None] = {}  # by election and node; None: it does not lead
    for node in nodes:
        for name, leads, term in node.statistics.leaders:
            terms[name, node.node] = term if leads else None
    return [found[name].fact(name, terms, needed) for name in sorted(found)]


class _Parts:
    """What is known of one election."""

    def __init__(self, resource: Any) -> None:
        self.resource = resource
        self.holders: dict[AgentId, list[RequestFact]] = {}
        self.candidates: list[MemberFact] = []
        self.workers: list[MemberFact] = []

    def add(self, fact: RequestFact) -> None:
        if fact.granted:
            self.holders.setdefault(fact.request.agent, []).append(fact)

    def fact(
        self, name: str, terms: dict[tuple[str, str], int | None], needed: int
    ) -> ElectionFact:
        """All of it."""
        leader: list[RequestFact] = []
        term: int | None = None
        for agent, grants in self.holders.items():
            key = (name, agent.node)
            said = terms.get(key)
            leads = said is not None if key in terms else len(grants) >= needed
            if leads and len(grants) > len(leader):
                leader, term = grants, said
        waited = sorted((fact.seconds for fact in leader), reverse=True)
        others = list(self.candidates)
        own = [each for each in others if leader and each.node == leader[0].request.agent.node]
        if own:
            others.remove(own[0])
        return ElectionFact(
            self.resource,
            tuple(leader),
            term,
            waited[min(needed, len(waited)) - 1] if waited else 0.0,
            tuple(others),
            tuple(self.workers),
        )


def _parts(found: dict[str, _Parts], lock_id: LockId) -> _Parts:
    name = show(lock_id[1:])
    if name not in found:
        found[name] = _Parts(lock_id[1])
    return found[name]


def add_command(commands: Any) -> None:
    """Add the command to the command line."""
    parser = add_looking(
        commands,
        "leaders",
        _run,
        what="say who leads what, and who follows",
        says=SAYS,
        nothing="nobody leads NAME",
        examples=EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this election")


def _run(options: argparse.Namespace) -> int:
    locked = requests((LOCKS_LEADER,), timeout=options.timeout)
    instances = members(timeout=options.timeout)
    nodes = all_nodes(timeout=options.timeout)
    _, needed = quorum()
    found = elections(locked.facts, instances.facts, nodes.facts, needed)
    if options.name is not None:
        found = [each for each in found if group_name(each.resource) == options.name]
    silent = dict([*locked.silent, *instances.silent, *nodes.silent])
    if options.json:
        print_json({"elections": [_as_data(each) for each in found], "silent": silent})
    else:
        rows = [row for each in found for row in _as_rows(each)]
        print(table(HEADS, rows) if rows else "There is no election.")
        say_silent(list(silent.items()))
    if silent and not nodes.facts:
        return FAILED
    return NOTHING if options.name is not None and not any(each.leader for each in found) else 0


def _as_rows(fact: ElectionFact) -> list[tuple[str, ...]]:
    name = group_name(fact.resource)
    rows: list[tuple[str, ...]] = []
    if fact.leader:
        first = longest(fact.leader)
        term = "-" if fact.term is None else str(fact.term)
        who = (first.label, first.program or "-", str(first.pid or "-"), first.request.agent.node)
        rows.append((name, "leads", term, duration(fact.seconds), *who))
    else:
        rows.append((name, "nobody leads", *["-"] * 6))
    for role, instances in (("candidate", fact.candidates), ("worker", fact.workers)):
        for each in instances:
            rows.append((name, role, "-", "-", each.member, each.program, str(each.pid), each.node))
    return rows


def _as_data(fact: ElectionFact) -> dict[str, Any]:
    leader = None
    if fact.leader:
        first = longest(fact.leader)
        leader = {
            "agent": str(first.request.agent),
            "label": first.label,
            "program": first.program,
            "pid": first.pid,
            "node": first.request.agent.node,
            "address": first.address,
            "term": fact.term,
            "seconds": fact.seconds,
            "servers": sorted(each.request.node for each in fact.leader),
        }
    return {
        "election": as_json(fact.resource),
        "leader": leader,
        "candidates": [member_as_data(each) for each in fact.candidates],
        "workers": [member_as_data(each) for each in fact.workers],
    }
