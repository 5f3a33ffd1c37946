"""The wait-for graph of a whole cluster, as its lock servers tell it.

Who waits for whom follows from the requests by the rule of the lock table (`locks.model.blocks`), as agents derive it. Each
lock server tells what its table is at one moment (a large one by pages, at several), and the moments of several are not the
same: a circle in this graph is a deadlock that is just being resolved, or one that never was.

Of a waiter not everything ahead of it is kept, or a line of a thousand would have half a million edges: those who have what
it waits for, and of those ahead in line the nearest, back to the first one that keeps out all that are ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from locks.core.facts import RequestFact
from locks.model import AgentId, LockId, blocks, is_held_up_id

__all__ = ["Wait", "Waits", "grouped", "waits_of"]

MOST_AHEAD = 10  # in line, of those that are kept for one waiter


class Wait(NamedTuple):
    """One request waits for another one.

    Attributes:
        waiter: The request that waits.
        holder: The one that has what it waits for, or stands ahead of it.
    """

    waiter: RequestFact
    holder: RequestFact


class Waits(NamedTuple):
    """Who holds and who waits, on all lock servers that were asked; see `locks.waits`.

    Attributes:
        requests: All requests.
        edges: Who waits for whom.
        silent: The lock servers that have not answered, each with why.
    """

    requests: tuple[RequestFact, ...]
    edges: tuple[Wait, ...]
    silent: tuple[tuple[str, str], ...] = ()

    @property
    def agents(self) -> tuple[AgentId, ...]:
        """All agents that hold or wait."""
        return tuple(dict.fromkeys(each.request.agent for each in self.requests))

    @property
    def roots(self) -> tuple[AgentId, ...]:
        """The agents for which others wait, and that wait for nothing: the most waited for first."""
        waiters = {each.request.agent for each in self.requests if not each.granted}
        found = dict.fromkeys(edge.holder.request.agent for edge in self.edges)
        roots = [agent for agent in found if agent not in waiters]
        direct = self._directly_behind()
        behind = {agent: len(_reached(direct, agent)) for agent in roots}
        return tuple(sorted(roots, key=lambda agent: (-behind[agent], agent)))

    def of(self, agent: AgentId) -> tuple[RequestFact, ...]:
        """The requests of an agent."""
        return tuple(each for each in self.requests if each.request.agent == agent)

    def blockers(self, agent: AgentId) -> tuple[Wait, ...]:
        """The edges by which an agent waits for others."""
        return tuple(edge for edge in self.edges if edge.waiter.request.agent == agent)

    def behind(self, agent: AgentId) -> tuple[AgentId, ...]:
        """All agents that wait for an agent, directly or behind others."""
        return tuple(_reached(self._directly_behind(), agent))

    def _directly_behind(self) -> dict[AgentId, dict[AgentId, None]]:
        direct: dict[AgentId, dict[AgentId, None]] = {}
        for edge in self.edges:
            waiters = direct.setdefault(edge.holder.request.agent, {})
            waiters[edge.waiter.request.agent] = None
        return direct


def _reached(direct: Mapping[AgentId, Iterable[AgentId]], agent: AgentId) -> list[AgentId]:
    """All that wait for an agent, by who waits for whom directly."""
    found = {agent: None}
    agents = [agent]
    for each in agents:
        for waiter in direct.get(each, ()):
            if waiter not in found:
                found[waiter] = None
                agents.append(waiter)
    return agents[1:]


def waits_of(requests: Iterable[RequestFact], silent: Sequence[tuple[str, str]] = ()) -> Waits:
    """The wait-for graph of these requests."""
    known = tuple(requests)
    tables: dict[str, _Table] = {}
    for fact in known:
        tables.setdefault(fact.request.node, _Table()).add(fact)
    for table in tables.values():
        table.sort()
    edges = [
        Wait(fact, holder)
        for fact in known
        if not fact.granted
        for holder in tables[fact.request.node].ahead_of(fact)
    ]
    return Waits(known, tuple(edges), tuple(silent))


def grouped(waits: Waits) -> list[list[RequestFact]]:
    """Requests of one agent for one id, in one mode and state, at all servers; what takes longest comes first."""
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
        """All is known: put those who wait into their order, the last first."""
        for line in self._waiting.values():
            line.sort(key=lambda fact: fact.request.place, reverse=True)

    def _ids(self, lock_id: LockId) -> Iterator[LockId]:
        for depth in range(len(lock_id), 0, -1):
            yield lock_id[:depth]
        yield from self._below.get(lock_id, ())

    def ahead_of(self, waiter: RequestFact) -> list[RequestFact]:
        """Those that a request waits for."""
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
                        break  # those ahead of it on this id, it waits for itself
        return found
