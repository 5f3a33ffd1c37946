"""Elections and process groups, from the answers of nodes; pure.

The facts of an election come from three sources. The lock servers report which client holds its lock, and since when.
The process groups contain its instances. The nodes of the instances report whether these lead, and in which term. A leader
whose node does not answer still holds the lock; then its term is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from locks.core.facts import MemberFact, NodeFact, RequestFact
from locks.model import AgentId, LockId, show
from locks.node.observing.elections import (
    ELECTION_ID,
    MERGE,
    PREFIX,
    ElectionLock,
    candidates_for,
    election_of,
    is_contest,
    workers_for,
)

__all__ = [
    "ELECTION_ID",
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
    "is_standing",
    "standing",
]


class Around(NamedTuple):
    """The answers of all lock servers, and of all client nodes that are connected to them.

    Attributes:
        nodes: The facts of each node about itself.
        members: The members of process groups.
        silent: The nodes that did not answer, each with the reason.
    """

    nodes: tuple[NodeFact, ...]
    members: tuple[MemberFact, ...]
    silent: tuple[tuple[str, str], ...]


def group_name(group: Any) -> str:
    """A readable name of a group."""
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


def is_standing(fact: RequestFact) -> bool:
    """Whether that is a candidate that waits while another one leads, which is normal."""
    return not fact.granted and is_contest(fact.request.lock_id)


def standing(requests: Iterable[RequestFact]) -> Counter[str]:
    """How many candidates wait at each lock server while another one leads."""
    return Counter(fact.request.node for fact in requests if is_standing(fact))


class ElectionFact(NamedTuple):
    """An election, from the answers of nodes.

    Attributes:
        resource: The subject of the election.
        leader: The leader's requests for the election's lock, on each lock server; empty if there is no leader.
        term: The leader's term; `None` if it is unknown.
        grant: The one of these with which it held enough of them.
        candidates: The candidates, without the leader.
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
        """Seconds for which it has held the lock on enough lock servers."""
        return self.grant.seconds if self.grant else 0.0


def elections(
    locked: Iterable[RequestFact],
    instances: Iterable[MemberFact],
    nodes: Iterable[NodeFact],
    needed: int,
) -> list[ElectionFact]:
    """The elections in these facts, by name.

    Args:
        locked: Requests on the locks of elections.
        instances: Members of process groups.
        nodes: The facts of nodes about themselves.
        needed: How many lock servers must grant a lock.
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
        for each in node.statistics.leaders:
            terms[each.name, node.node] = each.term if each.leads else None
    return [found[name].fact(name, terms, needed) for name in sorted(found)]


class _Parts:
    """The collected facts of one election."""

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
        """The election."""
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
