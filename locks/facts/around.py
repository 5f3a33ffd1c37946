"""Elections and process groups, as the nodes around tell of them; pure.

Three things are put together for an election: who has its lock, and since when, of the lock servers; which
instances take part, of the process groups; and of the instances' own nodes whether they lead, and in which term. A leader
whose node does not answer still has the lock: then it is known without its term.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from locks.core.facts import MemberFact, NodeFact, RequestFact
from locks.model import AgentId, LockId, show
from locks.node.observing.elections import (
    LOCKS_LEADER,
    MERGE,
    PREFIX,
    ElectionLock,
    candidates_for,
    election_of,
    is_contest,
    workers_for,
)

__all__ = [
    "LOCKS_LEADER",
    "MERGE",
    "PREFIX",
    "Around",
    "ElectionFact",
    "ElectionLock",
    "elections",
    "group_name",
    "groups",
    "is_contest",
    "is_of_election",
]


class Around(NamedTuple):
    """What was told by all lock servers, and by all client nodes that are connected with them.

    Attributes:
        nodes: What each says of itself.
        members: The members of process groups.
        silent: Those that have not answered, each with why.
    """

    nodes: tuple[NodeFact, ...]
    members: tuple[MemberFact, ...]
    silent: tuple[tuple[str, str], ...]


def group_name(group: Any) -> str:
    """A group, for a person."""
    for role, lock_id in (("candidates", candidates_for(group)), ("workers", workers_for(group))):
        if lock_id is not None:
            return f"{role} of {election_of(lock_id)}"
    return group if type(group) is str and group.isprintable() else repr(group)


def groups(members: Iterable[MemberFact]) -> dict[tuple[str, str], list[MemberFact]]:
    """The members of each group, by the scope and the name of the group, sorted."""
    found: dict[tuple[str, str], list[MemberFact]] = {}
    for fact in members:
        found.setdefault((fact.scope, group_name(fact.group)), []).append(fact)
    return {each: found[each] for each in sorted(found)}


def is_of_election(group: Any) -> bool:
    """Whether that is a group of an election's candidates or workers."""
    return candidates_for(group) is not None or workers_for(group) is not None


class ElectionFact(NamedTuple):
    """An election, as the nodes tell it.

    Attributes:
        resource: What it is about.
        leader: What the leader has of the election's lock, on each lock server; empty if nobody leads.
        term: The leader's term; `None` if it does not say.
        grant: With which of these it had enough of them.
        candidates: The candidates, but for the leader.
        workers: The workers.
    """

    resource: Any
    leader: tuple[RequestFact, ...]
    term: int | None
    grant: RequestFact | None
    candidates: tuple[MemberFact, ...]
    workers: tuple[MemberFact, ...]

    @property
    def seconds(self) -> float:
        """For how long it has had the lock on enough lock servers."""
        return self.grant.seconds if self.grant else 0.0


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
        if is_contest(fact.request.lock_id):
            _parts(found, fact.request.lock_id).add(fact)
    for member in instances:
        stands_for, works_for = candidates_for(member.group), workers_for(member.group)
        if stands_for is not None:
            _parts(found, stands_for).candidates.append(member)
        elif works_for is not None:
            _parts(found, works_for).workers.append(member)
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
        for agent, held in self.holders.items():
            key = (name, agent.node)
            said = terms.get(key)
            leads = said is not None if key in terms else len(held) >= needed
            if leads and len(held) > len(leader):
                leader, term = held, said
        grants = sorted(leader, key=lambda fact: -fact.seconds)
        others = list(self.candidates)
        own = [each for each in others if leader and each.node == leader[0].request.agent.node]
        if own:
            others.remove(own[0])
        return ElectionFact(
            self.resource,
            tuple(leader),
            term,
            grants[min(needed, len(grants)) - 1] if grants else None,
            tuple(others),
            tuple(self.workers),
        )


def _parts(found: dict[str, _Parts], lock_id: LockId) -> _Parts:
    name = show(lock_id[1:])
    if name not in found:
        found[name] = _Parts(lock_id[1])
    return found[name]
