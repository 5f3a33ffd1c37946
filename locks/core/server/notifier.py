"""Which agents a lock server notifies of what: as little as the algorithm can do with.

An agent is always notified of the state of its own requests. All else serves one end, to find
deadlocks, and follows from one rule:

    The agents at the two ends of an edge of the wait-for graph are notified of it when it lies on a
    cycle, where all that goes on at other nodes counts as one more agent: an agent that waits
    elsewhere waits for it, and it waits for each agent that has requests elsewhere.

What lies on no such cycle can't be part of a deadlock: with a single node, agents are notified of
nothing else until there is a deadlock, and then each of its agents gets to know its own part of it;
with several nodes, they are notified of the parts of the graph that may go on elsewhere. So handing on
a lock that many want costs one message, however many wait. The server does not resolve anything: it
doesn't know what goes on elsewhere, or which locks are acknowledged, and agents decide which of them
yields.

A cycle is closed by an agent that gets a request, surrenders, or begins to wait elsewhere. So after
each step it is enough to look for cycles through the agents of that step, and only through those
that wait and have other requests: no agent can wait for one that has nothing, and what stands
behind its only, waiting request came later and is looked at itself.

Cycles by way of other nodes are all made known: it is not known here how they go on. The agents on
them are the *tied* ones (`locks.core.server.waits`). Where hundreds want a lock of several nodes all of them are, and
each waits for all ahead of it. So after a step only the edges of agents that the step has changed or tied are
looked at: all others between tied agents were made known before. Of several cycles within the
node only the shortest one is made known; the agent that closed them is looked at again after each
step until it lies on none, so the next one is made known when this one is resolved. If it is long, its
largest agent alone is notified, of all its edges: it is the one that has to yield, and the agents would pass on more
and more records up to it, half of their square in all. But where anybody uses a counted lock, one of its units may be in one cycle and one in another, and a deadlock has both
(`locks.core.agent.knots`): then all cycles through the agent are made known.

An agent that was notified of a request is notified of its changes, for as long as it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import ClassVar, Final

from locks.core.server.table import LockTable
from locks.core.server.tree import Entry, EntryOwner
from locks.core.server.waits import WaitEdge, edges_from, edges_of, edges_to, tied_elsewhere
from locks.model import AgentId, RequestRecord

__all__ = ["Notifier"]

News = dict[AgentId, dict[Entry, RequestRecord]]


class Notifier:
    """Decides after each step of a lock table which agents to notify of what.

    Args:
        table: The lock table.
        node: Name of its node, for the records.

    Attributes:
        closers: The owners that may lie on a cycle.
        waiting: The owners that wait.
        long: Of a cycle of so many agents only the largest one is notified.
    """

    long: ClassVar[int] = 9

    def __init__(self, table: LockTable, node: str) -> None:
        self._table = table
        self._node = node
        self.closers: dict[EntryOwner, None] = {}
        self.waiting: dict[EntryOwner, None] = {}
        # Those whose edges may have changed since these were looked at; and those all of whose edges
        # between each other are known at both ends.
        self._touched: set[EntryOwner] = set()
        self._tied: set[EntryOwner] = set()

    def after(
        self, changed: list[Entry], new: Sequence[Entry] = (), owner: EntryOwner | None = None
    ) -> News:
        """Work out whom to notify of what after one step.

        Args:
            changed: The entries that the step changed.
            new: Those of them that came in, or were put last: they may close a cycle.
            owner: An owner whose standing elsewhere changed.

        Returns:
            For each agent the entries to notify it of, with their records. Its own changed entries are
            always among them, unless they are gone.
        """
        if len(changed) == 1 and owner is None and not self.closers:
            (entry,) = changed
            own = entry.owner
            waits = own.waiting > 0 or own.waits_elsewhere
            if not (waits or own.waited or entry.notified):  # the most frequent case
                return {} if entry.gone else {own.id: {entry: entry.record(self._node)}}
        news: News = {}
        if owner is not None:
            self._touched.add(owner)
            if owner.waits != owner.waited:
                self._turn(owner, news)
        for entry in changed:
            own = entry.owner
            waits = own.waiting > 0 or own.waits_elsewhere
            # Edges are between owners that wait. What the others do changes nothing of what was found.
            if waits or own.waited:
                self._touched.add(own)
            if waits != own.waited:
                self._turn(own, news)
            if not own.total:
                self.waiting.pop(own, None)
        for entry in changed:
            if not entry.gone:
                self._notify(entry.owner, entry, news)
            if entry.notified:
                self._notify_change(entry, news)
        if owner is not None:
            self.closers[owner] = None
        for entry in new:
            if self._may_close_a_cycle(entry):
                self.closers[entry.owner] = None
        if not self.closers:
            self._touched.clear()
            self._tied = set()
        elif self._touched:
            self._look_for_cycles(news)
        return news

    def again(self, owner: EntryOwner) -> News:
        """An owner has forgotten what it was notified of; notify it of what still matters."""
        news: News = {}
        self.forgotten((owner.id,))
        self._look_for_cycles(news)
        return news

    def forgotten(self, agents: Iterable[AgentId]) -> None:
        """Agents forget what they were notified of; `after` sees to what still matters."""
        for agent in agents:
            owner = self._table.owners.get(agent)
            if owner is not None and owner.waits:
                self._table.version += 1
                owner.turned = self._table.version
                self.closers[owner] = None
                self._touched.add(owner)

    @property
    def subjects(self) -> set[AgentId]:
        """For study: the agents of which it may tell others, whatever happens to them next."""
        found = {owner.id for owner in self.closers}
        for owner in self._table.owners.values():
            if owner.waits or owner.waited:
                found.add(owner.id)
            for entry in owner.all():
                if entry.notified:
                    found.add(owner.id)
                    found |= {other.id for other in entry.notified}
        return found

    def _may_close_a_cycle(self, entry: Entry) -> bool:
        """Whether a new entry may bring a path to its owner together with one away from it."""
        owner = entry.owner
        if (owner.total == 1 and not owner.requests_elsewhere) or not owner.waits:
            return False
        if not entry.granted and next(edges_of(entry), None) is not None:
            return True
        # One that does not stand last may be in the way of one that came before.
        return entry.place != self._table.last_place and any(
            not other.granted
            and other.place > entry.place
            and other.owner is not owner
            and other.rank in entry.rivals
            for other in self._table.related(entry.slot.lock_id)
        )

    def _look_for_cycles(self, news: News) -> None:
        """Notify of what lies on a cycle through an owner that may have closed one, now or before."""
        self._notify_tied(news)
        seen = self._tied.copy()  # of all cycles through these was notified
        clear: set[EntryOwner] | None = None
        for owner in list(self.closers):
            if owner in seen:
                continue
            if clear is None or owner not in clear:
                if self._look_for_cycle(owner, news, seen):
                    continue
                if clear is None:
                    clear = self._on_no_cycle()
            del self.closers[owner]
        self._touched.clear()

    def _notify_tied(self, news: News) -> None:
        """Notify of the edges between tied owners that may not be known yet."""
        known, tied = self._tied, tied_elsewhere(self.waiting)
        self._tied = tied
        for owner in sorted((tied - known) | (tied & self._touched), key=_id_of):
            for edge in (*edges_from(owner), *edges_to(owner)):
                if edge.by in tied and edge.to in tied:
                    self._notify_edge(edge, news)

    def _on_no_cycle(self) -> set[EntryOwner]:
        """Owners that may have closed a cycle, and lie on none: all ways from them end.

        To look from each of them takes as long, for each, as this does for all: after a long cycle was
        resolved, all that were on it are looked at.
        """
        owners = [
            owner
            for owner in self.closers
            if owner not in self._tied and owner.waits and _may_be_waited_for(owner)
        ]
        ways: dict[EntryOwner, int] = {}
        before: dict[EntryOwner, list[EntryOwner]] = {}
        for owner in owners:
            ways[owner] = 0
        for owner in owners:
            for edge in edges_from(owner):
                if edge.to in self._tied:  # from there, no way leads back
                    continue
                ways[owner] += 1
                before.setdefault(edge.to, []).append(owner)
                if edge.to not in ways:
                    ways[edge.to] = 0
                    owners.append(edge.to)
        ends = [owner for owner in owners if not ways[owner]]
        for owner in ends:
            for other in before.get(owner, ()):
                ways[other] -= 1
                if not ways[other]:
                    ends.append(other)
        return set(ends)

    def _turn(self, owner: EntryOwner, news: News) -> None:
        """An owner begins or ceases to wait: that is part of what is known of its requests."""
        owner.waited = owner.waits
        if owner.waited:
            self.waiting[owner] = None
        else:
            self.waiting.pop(owner, None)
        self._table.version += 1
        owner.turned = self._table.version
        for entries in owner.entries.values():
            for entry in entries:
                if entry.notified:
                    self._notify_change(entry, news)

    def _notify(self, owner: EntryOwner, entry: Entry, news: News) -> None:
        """Notify an owner of how an entry is now."""
        news.setdefault(owner.id, {})[entry] = entry.record(self._node)

    def _notify_change(self, entry: Entry, news: News) -> None:
        """Notify those that know of an entry, and still wait, of how it is now."""
        notified = entry.notified
        assert notified is not None
        _drop_forgotten(notified)
        for owner in notified:
            self._notify(owner, entry, news)

    def _look_for_cycle(self, start: EntryOwner, news: News, seen: set[EntryOwner]) -> bool:
        """Notify of the edges of a cycle through `start`; whether there is one.

        If that is done for all cycles through some owners, they are put into `seen`.
        """
        if not (start.waits and _may_be_waited_for(start)):
            return False
        edges: list[WaitEdge] = []
        reached: dict[EntryOwner, WaitEdge] = {}
        todo = [start]
        for owner in todo:
            for edge in edges_from(owner):
                if edge.to in self._tied:  # from there, no way leads back
                    continue
                if edge.to is start and not self._table.counted:
                    self._notify_path(edge, reached, news)
                    return True
                edges.append(edge)
                if edge.to not in reached:
                    reached[edge.to] = edge
                    todo.append(edge.to)
        if start not in reached:
            return False
        seen |= self._notify_all_cycles(start, edges, news)
        return True

    def _notify_path(self, last: WaitEdge, reached: dict[EntryOwner, WaitEdge], news: News) -> None:
        """Notify of the edges of the path by which `last` was reached: with `last`, they are a cycle."""
        edges: list[WaitEdge] = []
        edge: WaitEdge | None = last
        while edge is not None:
            edges.append(edge)
            edge = reached.get(edge.by)
        if len(edges) < self.long:
            for each in edges:
                self._notify_edge(each, news)
        else:
            largest = max([each.by for each in edges], key=_id_of)
            for each in edges:
                self._notify_of(largest, each, news)

    def _notify_all_cycles(
        self, start: EntryOwner, edges: list[WaitEdge], news: News
    ) -> set[EntryOwner]:
        """Notify of all edges on cycles through `start`.

        Returns:
            All owners on such cycles: each lies on a cycle with each other one.
        """
        before: dict[EntryOwner, list[EntryOwner]] = {}
        for edge in edges:
            before.setdefault(edge.to, []).append(edge.by)
        todo = [start]
        on_cycle = {start}
        for owner in todo:
            for other in before.get(owner, ()):
                if other not in on_cycle:
                    on_cycle.add(other)
                    todo.append(other)
        for edge in edges:
            if edge.by in on_cycle and edge.to in on_cycle:
                self._notify_edge(edge, news)
        return on_cycle

    def _notify_edge(self, edge: WaitEdge, news: News) -> None:
        """Notify the owners at both ends of an edge of both entries."""
        for owner in (edge.by, edge.to):
            self._notify_of(owner, edge, news)

    def _notify_of(self, owner: EntryOwner, edge: WaitEdge, news: News) -> None:
        """Notify an owner of both entries of an edge."""
        self._notify_once(owner, edge.waiter, news)
        self._notify_once(owner, edge.holder, news)

    def _notify_once(self, owner: EntryOwner, entry: Entry, news: News) -> None:
        """Notify an owner of an entry unless it was before, and has not forgotten it."""
        if entry.notified is None:
            entry.notified = {}
        if entry.notified.get(owner) != owner.turned:
            size = len(entry.notified)
            if size >= FEW and not size & (size - 1):  # now and then, or a lock held for long grows
                _drop_forgotten(entry.notified)
            entry.notified[owner] = owner.turned
            self._notify(owner, entry, news)


FEW: Final = 16
_id_of: Final = attrgetter("id")


def _may_be_waited_for(owner: EntryOwner) -> bool:
    """Whether another owner may wait for this one; says so at the slightest sign."""
    if owner.requests_elsewhere:
        return True
    for entry in owner.all():
        slot = entry.slot
        if slot.children or slot.waiting() > (not entry.granted):
            return True
        if any(above.waiting() for above in slot.path() if above is not slot):
            return True
    return False


def _drop_forgotten(notified: dict[EntryOwner, int]) -> None:
    """Take out those that are gone, or do not wait any more, or do so anew: they have forgotten it."""
    for owner, turned in list(notified.items()):
        if not owner.total or not owner.waits or owner.turned != turned:
            del notified[owner]
