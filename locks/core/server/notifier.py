"""Whom a lock server tells what: as little as the algorithm can do with.

An agent is always told the state of its own requests. What else it is told serves one end, to find
deadlocks, and follows from one rule:

    An edge of the wait-for graph is told to the agents at its two ends when it lies on a cycle,
    where all that goes on at other nodes counts as one more agent: an agent that waits elsewhere
    waits for it, and it waits for each agent that has requests elsewhere.

What lies on no such cycle can't be part of a deadlock: with a single node, nothing at all is told
until there is a deadlock, and then each of its agents gets to know its own part of it; with several
nodes, the parts of the graph are told that may go on elsewhere. So handing on a lock that many want
costs one message, however many wait. The server does not resolve anything: it doesn't know what
goes on elsewhere, or what clients were told, and agents decide who yields.

A cycle is closed by an agent that gets a request, surrenders, or begins to wait elsewhere. So after
each step it is enough to look for cycles through the agents of that step, and only through those
that wait and have other requests: nobody can wait for an agent that has nothing, and what stands
behind its only, waiting request came later and is looked at itself. Of several cycles within the
node only the shortest one is told; the agent that closed them is looked at again after each step
until it lies on none, so the next one is told when this one is resolved.

Edges that are not looked at: those from a write request to a waiting request ahead of it on the
same id, if the latter is all that its agent waits for, and the former's agent has nothing else there
that could block it. Then whatever blocks the latter blocks the former directly, so each cycle over
such an edge has a shorter one beside it.

Whoever was told of a request is told its changes, for as long as it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from locks.core.server.table import LockTable
from locks.core.server.tree import COVERED_RIVALS, Entry, EntryOwner, rivals_around
from locks.model import AgentId, RequestRecord

__all__ = ["Notifier"]

News = dict[AgentId, dict[Entry, RequestRecord]]


class _Edge(NamedTuple):
    """`by` waits for `to`, with one entry for another; elsewhere nothing is known of entries."""

    by: EntryOwner
    to: EntryOwner
    waiter: Entry | None = None
    holder: Entry | None = None


class Notifier:
    """Decides after each step of a lock table who is told what.

    Args:
        table: The lock table.
        node: Name of its node, for the records.
    """

    def __init__(self, table: LockTable, node: str) -> None:
        self._table = table
        self._node = node
        self._closers: dict[EntryOwner, None] = {}  # they may lie on a cycle

    def after(
        self, changed: list[Entry], new: Sequence[Entry] = (), owner: EntryOwner | None = None
    ) -> News:
        """Work out what to tell after one step.

        Args:
            changed: The entries that the step changed.
            new: Those of them that came in, or were put last: they may close a cycle.
            owner: An owner whose standing elsewhere changed.

        Returns:
            For each agent the entries to tell it of, with their records. The state of its own
            changed entries is always among them, unless they are gone.
        """
        if len(changed) == 1 and owner is None and not self._closers:
            (entry,) = changed
            own = entry.owner
            if not (own.waited or own.waits or entry.notified):  # the most frequent case
                return {} if entry.gone else {own.id: {entry: entry.record(self._node)}}
        news: News = {}
        owners: dict[EntryOwner, None] = {} if owner is None else {owner: None}
        for entry in changed:
            owners[entry.owner] = None
        for each in owners:
            if each.waits != each.waited:
                self._turn(each, news)
        for entry in changed:
            if not entry.gone:
                self._tell(entry.owner, entry, news)
            if entry.notified:
                self._tell_change(entry, news)
        if owner is not None:
            self._closers[owner] = None
        for entry in new:
            if self._may_close_a_cycle(entry):
                self._closers[entry.owner] = None
        if self._closers:
            self._look_for_cycles(news)
        return news

    def again(self, owner: EntryOwner) -> News:
        """An owner has forgotten what it was told of others; tell it what still matters."""
        news: News = {}
        self.forgotten((owner.id,))
        self._look_for_cycles(news)
        return news

    def forgotten(self, agents: Iterable[AgentId]) -> None:
        """Agents forget what they were told of others; `after` is to tell what still matters."""
        for agent in agents:
            owner = self._table.owners.get(agent)
            if owner is not None and owner.waits:
                self._table.version += 1
                owner.turned = self._table.version
                self._closers[owner] = None

    def _may_close_a_cycle(self, entry: Entry) -> bool:
        """Whether a new entry may bring a path to its owner together with one away from it."""
        owner = entry.owner
        if not owner.waits or (owner.total == 1 and not owner.requests_elsewhere):
            return False
        if not entry.granted and next(self._edges_of(entry), None) is not None:
            return True
        # One that does not stand last may be in the way of somebody who came before.
        return entry.place != self._table.last_place and any(
            not other.granted
            and other.place > entry.place
            and other.owner is not owner
            and other.rank in entry.rivals
            for other in self._table.related(entry.slot.lock_id)
        )

    def _look_for_cycles(self, news: News) -> None:
        """Tell what lies on a cycle through an owner that may have closed one, now or before."""
        for owner in list(self._closers):
            if not self._look_for_cycle(owner, news):
                del self._closers[owner]

    def _turn(self, owner: EntryOwner, news: News) -> None:
        """An owner begins or ceases to wait: that is part of what is known of its requests."""
        owner.waited = owner.waits
        self._table.version += 1
        owner.turned = self._table.version
        for entry in owner.all():
            if entry.notified:
                self._tell_change(entry, news)

    def _tell(self, owner: EntryOwner, entry: Entry, news: News) -> None:
        news.setdefault(owner.id, {})[entry] = entry.record(self._node)

    def _tell_change(self, entry: Entry, news: News) -> None:
        """Tell those who know of an entry, and still wait, how it is now."""
        notified = entry.notified
        assert notified is not None
        _drop_forgotten(notified)
        for owner in notified:
            self._tell(owner, entry, news)

    def _look_for_cycle(self, start: EntryOwner, news: News) -> bool:
        """Tell the edges of a cycle through `start`; whether there is one."""
        if not (start.waits and _may_be_waited_for(start)):
            return False
        edges: list[_Edge] = []
        reached: dict[EntryOwner, _Edge] = {}
        todo = [start]
        for owner in todo:
            for edge in self._edges_from(owner):
                if edge.to is start and _ELSEWHERE not in reached:
                    self._tell_path(edge, reached, news)
                    return True
                edges.append(edge)
                if edge.to not in reached:
                    reached[edge.to] = edge
                    todo.append(edge.to)
        if start not in reached:
            return False
        self._tell_all_cycles(start, edges, news)
        return True

    def _tell_path(self, last: _Edge, reached: dict[EntryOwner, _Edge], news: News) -> None:
        """Tell the edges of the path by which `last` was reached."""
        edge: _Edge | None = last
        while edge is not None:
            self._tell_edge(edge, news)
            edge = reached.get(edge.by)

    def _tell_all_cycles(self, start: EntryOwner, edges: list[_Edge], news: News) -> None:
        """Tell all edges on cycles through `start`: some go on at other nodes, nobody knows how."""
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
                self._tell_edge(edge, news)

    def _tell_edge(self, edge: _Edge, news: News) -> None:
        if edge.waiter is not None and edge.holder is not None:
            for owner in (edge.by, edge.to):
                self._introduce(owner, edge.waiter, news)
                self._introduce(owner, edge.holder, news)

    def _edges_from(self, owner: EntryOwner) -> Iterator[_Edge]:
        if owner is _ELSEWHERE:
            for other in self._table.owners.values():
                if other.requests_elsewhere:
                    yield _Edge(owner, other)
            return
        if owner.waits_elsewhere:
            yield _Edge(owner, _ELSEWHERE)
        if not owner.waiting:
            return
        for entry in owner.all():
            if not entry.granted:
                yield from self._edges_of(entry)

    def _edges_of(self, waiter: Entry) -> Iterator[_Edge]:
        """The edges that go out from one waiting entry to owners that wait, too."""
        owner, here = waiter.owner, waiter.slot
        # Those ahead of it on the same id that are blocked by nothing but what blocks it, too.
        skipped = COVERED_RIVALS[waiter.mode]
        if skipped and any(own is not waiter for own in owner.around(here)):
            skipped = ()
        for holder in rivals_around(waiter):
            by = holder.owner
            if by is owner or not by.waits:
                continue
            if not holder.granted:
                if holder.place > waiter.place:
                    continue
                if (
                    holder.rank in skipped
                    and holder.slot is here
                    and by.waiting == 1
                    and not by.waits_elsewhere
                ):
                    continue
            yield _Edge(owner, by, waiter, holder)

    def _introduce(self, owner: EntryOwner, entry: Entry, news: News) -> None:
        """Tell an owner of an entry that it may not know."""
        if entry.notified is None:
            entry.notified = {}
        if entry.notified.get(owner) != owner.turned:
            size = len(entry.notified)
            if size >= FEW and not size & (size - 1):  # now and then, or a lock held for long grows
                _drop_forgotten(entry.notified)
            entry.notified[owner] = owner.turned
            self._tell(owner, entry, news)


FEW = 16
# Stands for all that goes on at other nodes.
_ELSEWHERE = EntryOwner(AgentId(0, "elsewhere", 0), "elsewhere")


def _may_be_waited_for(owner: EntryOwner) -> bool:
    """Whether anybody may wait for an owner; says so at the slightest sign."""
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
    """Take out those who are gone, or do not wait any more, or do so anew: they have forgotten it."""
    for owner, turned in list(notified.items()):
        if not owner.total or not owner.waits or owner.turned != turned:
            del notified[owner]
