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
them are the *tied* ones (`locks.core.server.waits`). After a step only the edges of agents that the step has changed
or tied are looked at: all others between tied agents were made known before. Of several cycles within the
node only the shortest one is made known; the agent that closed them is looked at again after each
step until it lies on none, so the next one is made known when this one is resolved. If it is long, its
largest agent alone is notified, of all its edges: it is the one that has to yield, and the agents would pass on more
and more records up to it, half of their square in all. Where many wait, a cycle of three is long: cycles overlap there, and
what agents pass on of one of them reaches those who are on others. But where anybody uses a counted lock, one of its units may be in one cycle and one in another, and a deadlock has both
(`locks.core.agent.knots`): then all cycles through the agent are made known.

An agent that was notified of a request is notified of its changes, for as long as it waits.

What a step costs. Nothing goes through those who wait alone, who are nearly all in a crowd: requests that matter are
marked (`locks.core.server.marks`). No search begins unless somebody here waits elsewhere *and* somebody who waits here has
requests elsewhere, or an agent may have closed a cycle; and a search looks at each marked request once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import ClassVar, Final

from locks.core.server.marks import AHEAD, PLAIN, follow, follow_all
from locks.core.server.table import LockTable
from locks.core.server.tree import Entry, EntryOwner, Marks
from locks.core.server.waits import (
    Looked,
    WaitEdge,
    edges_from,
    edges_of,
    edges_to,
    tied_elsewhere,
)
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
        asking: Those of them that have requests elsewhere.
        away: Those that wait elsewhere.
        long: Of a cycle of so many agents only the largest one is notified.
        few: Where more agents wait than that, the same is done with any cycle of more than two.
    """

    long: ClassVar[int] = 9
    few: ClassVar[int] = 16

    def __init__(self, table: LockTable, node: str) -> None:
        self._table = table
        self._node = node
        self.closers: dict[EntryOwner, None] = {}
        self.waiting: dict[EntryOwner, None] = {}
        self.asking: dict[EntryOwner, None] = {}
        self.away: dict[EntryOwner, None] = {}
        # Those whose edges may have changed since these were looked at; and those all of whose edges
        # between each other are known at both ends.
        self._touched: set[EntryOwner] = set()
        self._tied: dict[EntryOwner, None] = {}

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
        spares = self._table.spares
        if len(changed) == 1 and owner is None and not (self.closers or spares):
            (entry,) = changed
            own = entry.owner
            waits = own.waiting > 0 or own.waits_elsewhere
            if not (waits or own.waited or entry.notified):  # the most frequent case
                return {} if entry.gone else {own.id: {entry: entry.record(self._node)}}
        news: News = {}
        if owner is not None:
            self._touched.add(owner)
            self._see(owner, news)
        for entry in changed:
            own = entry.owner
            # Edges are between owners that wait. What the others do changes nothing of what was found.
            if own.waited or own.waits:
                self._touched.add(own)
                self._see(own, news)
            if entry.mark >= 0 or own.waits:
                self._uncovered(follow(entry))
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
            self._tied = {}
        elif self._touched:
            self._look_for_cycles(news)
        if spares:
            self._notify_of_spares(changed, news)
        return news

    def _notify_of_spares(self, changed: list[Entry], news: News) -> None:
        """Notify agents of spare requests that their grants keep waiting: those who do not hold the lock give way.

        An agent is notified when it is granted something, and when a request becomes spare.
        """
        table = self._table
        for entry in changed:
            if entry.granted:
                for spare in table.spares_behind(entry)[:1]:
                    self._notify_of_spare(entry.owner, spare, news)
            elif entry.precedes:
                for grant in table.grants_against(entry):
                    self._notify_of_spare(grant.owner, entry, news)

    def _notify_of_spare(self, owner: EntryOwner, spare: Entry, news: News) -> None:
        """Notify an owner of a spare entry, also if it was before."""
        if spare.notified is None:
            spare.notified = {}
        spare.notified[owner] = owner.turned
        self._notify(owner, spare, news)

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

    def load(self, owners: Iterable[EntryOwner]) -> None:
        """Put down what follows from the state of owners that are put into the table anew."""
        for owner in owners:
            self._mark(owner)

    def _may_close_a_cycle(self, entry: Entry) -> bool:
        """Whether a new entry may bring a path to its owner together with one away from it."""
        owner = entry.owner
        if (owner.total == 1 and not owner.requests_elsewhere) or not owner.waits:
            return False
        if entry.waits and next(edges_of(entry), None) is not None:
            return True
        # One that does not stand last may be in the way of one that came before.
        return entry.place != self._table.last_place and _is_waited_for(entry)

    def _look_for_cycles(self, news: News) -> None:
        """Notify of what lies on a cycle through an owner that may have closed one, now or before."""
        self._notify_tied(news)
        seen = set(self._tied)  # of all cycles through these was notified
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
        known = self._tied
        others = len(self.waiting) > len(self.asking)
        tied = self._tied = tied_elsewhere(self.asking, self.away, others)
        looked_at = [owner for owner in tied if owner not in known or owner in self._touched]
        for owner in sorted(looked_at, key=_id_of):
            for edge in edges_from(owner):
                if edge.to in tied:
                    self._notify_edge(edge, news)
            for edge in edges_to(owner, tied):
                self._notify_edge(edge, news)

    def _on_no_cycle(self) -> set[EntryOwner]:
        """Owners that may have closed a cycle, and all ways from them end.

        To look from each of them takes as long, for each, as this does for all: after a long cycle was
        resolved, all that were on it are looked at.
        """
        ends: dict[EntryOwner, bool] = {}  # whether all ways from it end, as far as is known
        looked: Looked = {}  # from there all ways end
        for start in self.closers:
            if start in ends or start in self._tied:
                continue
            if not _may_be_waited_for(start):
                ends[start] = True  # or not: it is on no cycle
                continue
            ends[start] = False
            path = [start]
            edges: list[Iterator[WaitEdge]] = [edges_from(start, looked)]
            while path:
                edge = next(edges[-1], None)
                if edge is None:
                    edges.pop()
                    ends[path.pop()] = True
                elif edge.to in self._tied or ends.get(edge.to, False):
                    pass  # from those that are tied no way leads back
                elif edge.to in ends:  # a cycle: it is on the path, or its ways do not all end
                    break
                else:
                    ends[edge.to] = False
                    path.append(edge.to)
                    edges.append(edges_from(edge.to, looked))
        return {owner for owner, its in ends.items() if its}

    def _see(self, owner: EntryOwner, news: News) -> None:
        """Take note of whether, and where, an owner waits."""
        if owner.waits != owner.waited:
            self._turn(owner, news)
            self._mark(owner)
        elif owner.single != _is_single(owner):
            self._mark(owner)
        else:
            self._put_down(owner)

    def _mark(self, owner: EntryOwner) -> None:
        """An owner waits otherwise than before."""
        owner.single = _is_single(owner)
        self._uncovered(follow_all(owner))
        self._put_down(owner)

    def _put_down(self, owner: EntryOwner) -> None:
        """Put down whether an owner waits, and what it does elsewhere."""
        if owner.total and owner.waits:
            self.waiting[owner] = None
        elif owner in self.waiting:
            del self.waiting[owner]
        if owner.total and owner.requests_elsewhere and owner.waits:
            self.asking[owner] = None
        elif owner in self.asking:
            del self.asking[owner]
        if owner.total and owner.waits_elsewhere:
            self.away[owner] = None
        elif owner in self.away:
            del self.away[owner]

    def _uncovered(self, entries: list[Entry]) -> None:
        """Edges to these may be looked at that were not before."""
        for entry in entries:
            self._touched.add(entry.owner)

    def _turn(self, owner: EntryOwner, news: News) -> None:
        """An owner begins or ceases to wait: that is part of what is known of its requests."""
        owner.waited = owner.waits
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
        if self._table.counted:
            return self._look_for_all(start, news, seen)
        reached: dict[EntryOwner, WaitEdge] = {}
        looked: Looked = {}
        todo = [start]
        for owner in todo:
            for edge in edges_from(owner, looked):
                to = edge.to
                if to in self._tied:  # from there, no way leads back
                    continue
                if to is start:
                    self._notify_path(edge, reached, news)
                    return True
                if to not in reached:
                    reached[to] = edge
                    todo.append(to)
                    if owner is start:  # most cycles are short, and many may be ahead
                        back = next(edges_to(start, (to,)), None)
                        if back is not None:
                            self._notify_path(back, reached, news)
                            return True
        return False

    def _look_for_all(self, start: EntryOwner, news: News, seen: set[EntryOwner]) -> bool:
        """Notify of the edges of all cycles through `start`; whether there are any."""
        edges: list[WaitEdge] = []
        reached = {start: False}
        todo = [start]
        for owner in todo:
            for edge in edges_from(owner):
                if edge.to in self._tied:  # from there, no way leads back
                    continue
                edges.append(edge)
                if edge.to is start:
                    reached[start] = True
                elif edge.to not in reached:
                    reached[edge.to] = True
                    todo.append(edge.to)
        if reached[start]:
            seen |= self._notify_all_cycles(start, edges, news)
        return reached[start]

    def _notify_path(self, last: WaitEdge, reached: dict[EntryOwner, WaitEdge], news: News) -> None:
        """Notify of the edges of the path by which `last` was reached: with `last`, they are a cycle."""
        edges: list[WaitEdge] = []
        edge: WaitEdge | None = last
        while edge is not None:
            edges.append(edge)
            edge = reached.get(edge.by)
        if len(edges) < (self.long if len(self.waiting) <= self.few else min(3, self.long)):
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


def _is_single(owner: EntryOwner) -> bool:
    """Whether an owner waits with one request only."""
    return owner.waiting == 1 and not owner.waits_elsewhere


def _may_be_waited_for(owner: EntryOwner) -> bool:
    """Whether another owner may wait for this one; says so at the slightest sign."""
    return owner.requests_elsewhere or any(map(_is_waited_for, owner.all()))


def _is_waited_for(entry: Entry) -> bool:
    """Whether another entry may wait for this one; says so at the slightest sign."""
    for slot in entry.slot.path():
        if slot.marks is not None and _stands_behind(slot.marks, entry):
            return True
    marks = entry.slot.marks
    return marks is not None and bool(marks.strong_below or marks.plain_below)


def _stands_behind(marks: Marks, entry: Entry) -> bool:
    """Whether any of these waits and stands behind an entry that conflicts with it, or that one is granted."""
    for rank in entry.rivals:
        for kind in (PLAIN, AHEAD):
            queue = marks.lists[kind + rank]
            if queue and (entry.granted or queue[-1].place > entry.place):
                return True
    return False


def _drop_forgotten(notified: dict[EntryOwner, int]) -> None:
    """Take out those that are gone, or do not wait any more, or do so anew: they have forgotten it."""
    for owner, turned in list(notified.items()):
        if not owner.total or not owner.waits or owner.turned != turned:
            del notified[owner]
