"""The wait-for graph of a whole cluster, from the answers of its lock servers.

The edges follow from the requests by the rule of the lock table (`locks.model.blocks`), as in the agents. Each lock
server reports its table at one moment (a large one in pages, at several moments), and these moments differ between
servers. So a cycle in this graph is either a deadlock that is being resolved, or was never real.

For each waiter the graph keeps only some of the requests ahead of it; otherwise a queue of a thousand would have half
a million edges. It keeps the holders, and the nearest requests ahead in the queue, back to the first one that conflicts
with all requests ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from locks.core.facts import RequestFact
from locks.model import AgentId, LockId, blocks, is_held_up_id

__all__ = ["WaitEdge", "WaitReport", "grouped", "waits_of"]

MOST_AHEAD = 10  # requests ahead in the queue that are kept for one waiter


class WaitEdge(NamedTuple):
    """One request waits for another request.

    Attributes:
        waiter: The request that waits.
        holder: The request that holds the lock, or is ahead in the queue.
    """

    waiter: RequestFact
    holder: RequestFact


class WaitReport(NamedTuple):
    """Who holds locks and who is waiting, on all lock servers that were asked; see `locks.facts.waits`.

    Attributes:
        requests: All requests.
        edges: Which request waits for which.
        silent: The lock servers that did not answer, each with the reason.
    """

    requests: tuple[RequestFact, ...]
    edges: tuple[WaitEdge, ...]
    silent: tuple[tuple[str, str], ...] = ()

    @property
    def agents(self) -> tuple[AgentId, ...]:
        """All agents that hold locks or are waiting."""
        return tuple(dict.fromkeys(each.request.agent for each in self.requests))

    @property
    def roots(self) -> tuple[AgentId, ...]:
        """The agents that others wait for and that are not waiting themselves; those with the most waiters first."""
        waiters = {each.request.agent for each in self.requests if not each.granted}
        found = dict.fromkeys(edge.holder.request.agent for edge in self.edges)
        roots = [agent for agent in found if agent not in waiters]
        direct = self._directly_behind()
        behind = {agent: len(_reached(direct, agent)) for agent in roots}
        return tuple(sorted(roots, key=lambda agent: (-behind[agent], agent)))

    def of(self, agent: AgentId) -> tuple[RequestFact, ...]:
        """The requests of an agent."""
        return tuple(each for each in self.requests if each.request.agent == agent)

    def blockers(self, agent: AgentId) -> tuple[WaitEdge, ...]:
        """The edges by which an agent waits for others."""
        return tuple(edge for edge in self.edges if edge.waiter.request.agent == agent)

    def behind(self, agent: AgentId) -> tuple[AgentId, ...]:
        """All agents that wait for an agent, directly or indirectly."""
        return tuple(_reached(self._directly_behind(), agent))

    def _directly_behind(self) -> dict[AgentId, dict[AgentId, None]]:
        direct: dict[AgentId, dict[AgentId, None]] = {}
        for edge in self.edges:
            waiters = direct.setdefault(edge.holder.request.agent, {})
            waiters[edge.waiter.request.agent] = None
        return direct


def _reached(direct: Mapping[AgentId, Iterable[AgentId]], agent: AgentId) -> list[AgentId]:
    """All agents that wait for an agent, from the direct waits."""
    found = {agent: None}
    agents = [agent]
    for each in agents:
        for waiter in direct.get(each, ()):
            if waiter not in found:
                found[waiter] = None
                agents.append(waiter)
    return agents[1:]


def waits_of(requests: Iterable[RequestFact], silent: Sequence[tuple[str, str]] = ()) -> WaitReport:
    """The wait-for graph of these requests."""
    known = tuple(requests)
    tables: dict[str, _Table] = {}
    for fact in known:
        tables.setdefault(fact.request.node, _Table()).add(fact)
    for table in tables.values():
        table.sort()
    edges = [
        WaitEdge(fact, holder)
        for fact in known
        if not fact.granted
        for holder in tables[fact.request.node].ahead_of(fact)
    ]
    return WaitReport(known, tuple(edges), tuple(silent))


def grouped(waits: WaitReport) -> list[list[RequestFact]]:
    """Requests grouped by agent, id, mode and state, over all servers; the longest first."""
    groups: dict[tuple[Any, ...], list[RequestFact]] = {}
    for fact in waits.requests:
        request = fact.request
        if not is_held_up_id(request.lock_id):
            key = (request.agent, request.lock_id, request.mode, request.state)
            groups.setdefault(key, []).append(fact)
    return sorted(groups.values(), key=lambda facts: -max(fact.seconds for fact in facts))


class _Table:
    """The requests of one lock server, by lock id."""

    def __init__(self) -> None:
        self._granted: dict[LockId, list[RequestFact]] = {}
        self._waiting: dict[LockId, list[RequestFact]] = {}
        self._below: dict[LockId, dict[LockId, None]] = {}

    def add(self, fact: RequestFact) -> None:
        lock_id = fact.request.lock_id
        where = self._granted if fact.granted else self._waiting
        where.setdefault(lock_id, []).append(fact)
        for depth in range(1, len(lock_id)):
            self._below.setdefault(lock_id[:depth], {})[lock_id] = None

    def sort(self) -> None:
        """Sort the waiting requests by queue order, the last first; call it after all requests were added."""
        for line in self._waiting.values():
            line.sort(key=lambda fact: fact.request.place, reverse=True)

    def _ids(self, lock_id: LockId) -> Iterator[LockId]:
        for depth in range(len(lock_id), 0, -1):
            yield lock_id[:depth]
        yield from self._below.get(lock_id, ())

    def ahead_of(self, waiter: RequestFact) -> list[RequestFact]:
        """The requests that a request waits for."""
        found: list[RequestFact] = []
        wanted = waiter.request.lock_id
        for lock_id in self._ids(wanted):
            for holder in self._granted.get(lock_id, ()):
                if blocks(holder.request, waiter.request):
                    found.append(holder)
            ahead = 0
            for holder in self._waiting.get(lock_id, ()):
                if ahead >= MOST_AHEAD:
                    break
                if blocks(holder.request, waiter.request):
                    found.append(holder)
                    ahead += 1
                    if holder.request.mode == "write" and not is_held_up_id(wanted):
                        break  # this request itself waits for all that are ahead of it on this id
        return found
