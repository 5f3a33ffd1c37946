"""Which agents a lock server notifies of what: no more than the algorithm needs.

An agent is always notified of the state of its own requests. All other notifications serve to find
deadlocks, and follow one rule:

    The agents at the two ends of an edge of the wait-for graph are notified of it when it lies on a
    cycle. Here, all other nodes together count as one more agent: an agent that waits elsewhere
    waits for it, and it waits for each agent that has requests elsewhere.

An edge that lies on no such cycle can't be part of a deadlock. So with a single node, agents are
notified of other agents' requests only when there is a deadlock, and each of its agents only of its
own edges. With several nodes, they are also notified of edges that may belong to a cycle that
continues elsewhere. So when a lock is handed on, one message is sent, however many agents wait. The
server resolves no deadlock itself: it knows neither the state of other nodes nor which locks are
acknowledged. The agents decide which of them yields.

Only an agent that makes a request, surrenders, or begins to wait elsewhere closes a cycle. So after
each step it is enough to search for cycles through the agents of that step. Of these, only agents
that wait and have other requests can be on a new cycle. No agent waits for an agent without
requests, and requests queued behind an agent's only, waiting request came later and are searched
themselves.

Cycles that continue at other nodes are all reported, because their other part is unknown here. The
agents on them are called *tied* (`locks.core.server.waits`). After a step, the server looks only at
the edges of agents that the step has changed or tied. All other edges between tied agents were
reported before.

Of several cycles within the node, only the shortest is reported. The agent that closed them is
searched again after each step until it lies on no cycle, so the next cycle is reported when this
one is resolved. If the cycle is long, only its largest agent is notified, but of all edges. That
agent has to yield. Otherwise the agents would pass more and more records on to it, in all about
half the square of their number. Where many agents wait, a cycle of three counts as long: cycles
overlap there, and records of one cycle would reach agents on others.

If counted locks are in use, all cycles through the agent are reported instead: a deadlock may
contain one unit in one cycle and another unit in another (`locks.core.agent.knots`).

An agent that was notified of a request is notified of its changes, as long as the agent waits.

What does a step cost? Searches skip agents that wait alone, and in a crowd these are nearly all:
only requests that matter are indexed (`locks.core.server.search_index`). A search begins only if an agent
may have closed a cycle, or if some agent waits elsewhere and some waiting agent has requests
elsewhere. It looks at each indexed request once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import ClassVar, Final

from locks.core.server.search_index import AHEAD, PLAIN, follow, follow_all
from locks.core.server.table import LockTable
from locks.core.server.tree import Entry, Requester, SearchIndex
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
        closers: The requesters that may lie on an unreported cycle.
        waiting: The requesters that wait.
        asking: The waiting requesters that have requests elsewhere.
        away: The requesters that wait elsewhere.
        long: The number of agents from which a cycle is long: only its largest agent is notified.
        few: If more requesters than this wait, each cycle of more than two agents is long.
    """

    long: ClassVar[int] = 9
    few: ClassVar[int] = 16

    def __init__(self, table: LockTable, node: str) -> None:
        self._table = table
        self._node = node
        self.closers: dict[Requester, None] = {}
        self.waiting: dict[Requester, None] = {}
        self.asking: dict[Requester, None] = {}
        self.away: dict[Requester, None] = {}
        # `_touched`: requesters whose edges may have changed since the last search. `_tied`: requesters
        # that were notified of all edges between each other.
        self._touched: set[Requester] = set()
        self._tied: dict[Requester, None] = {}

    def after(
        self, changed: list[Entry], new: Sequence[Entry] = (), requester: Requester | None = None
    ) -> News:
        """Work out which agents to notify of what after one step.

        Args:
            changed: The entries that the step changed.
            new: Those of them that are new, or were moved to the end: they may close a cycle.
            requester: a requester whose standing elsewhere changed.

        Returns:
            The entries to notify each agent of, with their records. Its own changed entries are
            always included, unless they are gone.
        """
        spares = self._table.spares
        if len(changed) == 1 and requester is None and not (self.closers or spares):
            (entry,) = changed
            own = entry.requester
            waits = own.waiting > 0 or own.waits_elsewhere
            if not (waits or own.waited or entry.notified):  # the most frequent case
                return {} if entry.gone else {own.id: {entry: entry.record(self._node)}}
        news: News = {}
        if requester is not None:
            self._touched.add(requester)
            self._see(requester, news)
        for entry in changed:
            own = entry.requester
            # Edges are between requesters that wait, so changes of other requesters change no edge.
            if own.waited or own.waits:
                self._touched.add(own)
                self._see(own, news)
            if entry.kind >= 0 or own.waits:
                self._uncovered(follow(entry))
        for entry in changed:
            if not entry.gone:
                self._notify(entry.requester, entry, news)
            if entry.notified:
                self._notify_change(entry, news)
        if requester is not None:
            self.closers[requester] = None
        for entry in new:
            if self._may_close_a_cycle(entry):
                self.closers[entry.requester] = None
        if not self.closers:
            self._touched.clear()
            self._tied = {}
        elif self._touched:
            self._look_for_cycles(news)
        if spares:
            self._notify_of_spares(changed, news)
        return news

    def _notify_of_spares(self, changed: list[Entry], news: News) -> None:
        """Notify agents of spare requests that their grants block; an agent without the lock gives way.

        This is done when an agent gets a grant, and when a request becomes spare.
        """
        table = self._table
        for entry in changed:
            if entry.granted:
                for spare in table.spares_behind(entry)[:1]:
                    self._notify_of_spare(entry.requester, spare, news)
            elif entry.spare:
                for grant in table.grants_against(entry):
                    self._notify_of_spare(grant.requester, entry, news)

    def _notify_of_spare(self, requester: Requester, spare: Entry, news: News) -> None:
        """Notify a requester of a spare entry, even if it was notified before."""
        if spare.notified is None:
            spare.notified = {}
        spare.notified[requester] = requester.changed_at
        self._notify(requester, spare, news)

    def again(self, requester: Requester) -> News:
        """Notify a requester that has forgotten its records of those that still matter."""
        news: News = {}
        self.forgotten((requester.id,))
        self._look_for_cycles(news)
        return news

    def forgotten(self, agents: Iterable[AgentId]) -> None:
        """Note that agents forget their records; the next `after` sends those that still matter."""
        for agent in agents:
            requester = self._table.requesters.get(agent)
            if requester is not None and requester.waits:
                self._table.version += 1
                requester.changed_at = self._table.version
                self.closers[requester] = None
                self._touched.add(requester)

    def load(self, requesters: Iterable[Requester]) -> None:
        """Derive the index and sets from the state of requesters that were loaded into the table."""
        for requester in requesters:
            self._mark(requester)

    def _may_close_a_cycle(self, entry: Entry) -> bool:
        """Whether a new entry may connect a path to its requester with a path from it."""
        requester = entry.requester
        if (requester.total == 1 and not requester.requests_elsewhere) or not requester.waits:
            return False
        if entry.waits and next(edges_of(entry), None) is not None:
            return True
        # An entry that is not last in the queue may block an older one.
        return entry.place != self._table.last_place and _is_waited_for(entry)

    def _look_for_cycles(self, news: News) -> None:
        """Notify of edges on cycles through requesters that may have closed one, in this step or before."""
        self._notify_tied(news)
        seen = set(self._tied)  # all cycles through these were reported
        clear: set[Requester] | None = None
        for requester in list(self.closers):
            if requester in seen:
                continue
            if clear is None or requester not in clear:
                if self._look_for_cycle(requester, news, seen):
                    continue
                if clear is None:
                    clear = self._on_no_cycle()
            del self.closers[requester]
        self._touched.clear()

    def _notify_tied(self, news: News) -> None:
        """Notify of the edges between tied requesters that may not be reported yet."""
        known = self._tied
        others = len(self.waiting) > len(self.asking)
        tied = self._tied = tied_elsewhere(self.asking, self.away, others)
        looked_at = [
            requester for requester in tied if requester not in known or requester in self._touched
        ]
        for requester in sorted(looked_at, key=_id_of):
            for edge in edges_from(requester):
                if edge.to in tied:
                    self._notify_edge(edge, news)
            for edge in edges_to(requester, tied):
                self._notify_edge(edge, news)

    def _on_no_cycle(self) -> set[Requester]:
        """The closers that lie on no cycle, because all paths from them end.

        One search from all closers costs as much as a search from one of them. After a long cycle
        was resolved, all its requesters are closers.
        """
        ends: dict[Requester, bool] = {}  # whether all paths from it end, as far as known
        looked: Looked = {}  # all paths from these end
        for start in self.closers:
            if start in ends or start in self._tied:
                continue
            if not _may_be_waited_for(start):
                ends[start] = True  # perhaps they do not, but it is on no cycle
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
                    pass  # no path leads back from tied requesters
                elif edge.to in ends:  # a cycle: it is on the path, or not all its paths end
                    break
                else:
                    ends[edge.to] = False
                    path.append(edge.to)
                    edges.append(edges_from(edge.to, looked))
        return {requester for requester, its in ends.items() if its}

    def _see(self, requester: Requester, news: News) -> None:
        """Update the notes on whether and where a requester waits."""
        if requester.waits != requester.waited:
            self._waiting_changed(requester, news)
            self._mark(requester)
        elif requester.single != _is_single(requester):
            self._mark(requester)
        else:
            self._put_down(requester)

    def _mark(self, requester: Requester) -> None:
        """Mark the entries of a requester whose waiting has changed."""
        requester.single = _is_single(requester)
        self._uncovered(follow_all(requester))
        self._put_down(requester)

    def _put_down(self, requester: Requester) -> None:
        """Update the sets of requesters that wait, request elsewhere and wait elsewhere."""
        if requester.total and requester.waits:
            self.waiting[requester] = None
        elif requester in self.waiting:
            del self.waiting[requester]
        if requester.total and requester.requests_elsewhere and requester.waits:
            self.asking[requester] = None
        elif requester in self.asking:
            del self.asking[requester]
        if requester.total and requester.waits_elsewhere:
            self.away[requester] = None
        elif requester in self.away:
            del self.away[requester]

    def _uncovered(self, entries: list[Entry]) -> None:
        """Note that searches no longer skip all edges to these entries."""
        for entry in entries:
            self._touched.add(entry.requester)

    def _waiting_changed(self, requester: Requester, news: News) -> None:
        """Report that a requester begins or stops waiting: this is part of its requests' records."""
        requester.waited = requester.waits
        self._table.version += 1
        requester.changed_at = self._table.version
        for entries in requester.entries.values():
            for entry in entries:
                if entry.notified:
                    self._notify_change(entry, news)

    def _notify(self, requester: Requester, entry: Entry, news: News) -> None:
        """Notify a requester of the present state of an entry."""
        news.setdefault(requester.id, {})[entry] = entry.record(self._node)

    def _notify_change(self, entry: Entry, news: News) -> None:
        """Notify the requesters that were notified of an entry, and still wait, of its present state."""
        notified = entry.notified
        assert notified is not None
        _drop_forgotten(notified)
        for requester in notified:
            self._notify(requester, entry, news)

    def _look_for_cycle(self, start: Requester, news: News, seen: set[Requester]) -> bool:
        """Notify of the edges of a cycle through `start`; return whether there is one.

        Owners whose cycles are all reported by this are added to `seen`.
        """
        if not (start.waits and _may_be_waited_for(start)):
            return False
        if self._table.counted:
            return self._look_for_all(start, news, seen)
        reached: dict[Requester, WaitEdge] = {}
        looked: Looked = {}
        todo = [start]
        for requester in todo:
            for edge in edges_from(requester, looked):
                to = edge.to
                if to in self._tied:  # no path leads back from there
                    continue
                if to is start:
                    self._notify_path(edge, reached, news)
                    return True
                if to not in reached:
                    reached[to] = edge
                    todo.append(to)
                    if (
                        requester is start
                    ):  # most cycles are short, and many requesters may be ahead
                        back = next(edges_to(start, (to,)), None)
                        if back is not None:
                            self._notify_path(back, reached, news)
                            return True
        return False

    def _look_for_all(self, start: Requester, news: News, seen: set[Requester]) -> bool:
        """Notify of the edges of all cycles through `start`; return whether there are any."""
        edges: list[WaitEdge] = []
        reached = {start: False}
        todo = [start]
        for requester in todo:
            for edge in edges_from(requester):
                if edge.to in self._tied:  # no path leads back from there
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

    def _notify_path(self, last: WaitEdge, reached: dict[Requester, WaitEdge], news: News) -> None:
        """Notify of the edges of a cycle: `last`, and the path by which it was reached."""
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
        self, start: Requester, edges: list[WaitEdge], news: News
    ) -> set[Requester]:
        """Notify of all edges on cycles through `start`.

        Returns:
            All requesters on such cycles. Each of them lies on a cycle with each other one.
        """
        before: dict[Requester, list[Requester]] = {}
        for edge in edges:
            before.setdefault(edge.to, []).append(edge.by)
        todo = [start]
        on_cycle = {start}
        for requester in todo:
            for other in before.get(requester, ()):
                if other not in on_cycle:
                    on_cycle.add(other)
                    todo.append(other)
        for edge in edges:
            if edge.by in on_cycle and edge.to in on_cycle:
                self._notify_edge(edge, news)
        return on_cycle

    def _notify_edge(self, edge: WaitEdge, news: News) -> None:
        """Notify the requesters at both ends of an edge of both entries."""
        for requester in (edge.by, edge.to):
            self._notify_of(requester, edge, news)

    def _notify_of(self, requester: Requester, edge: WaitEdge, news: News) -> None:
        """Notify a requester of both entries of an edge."""
        self._notify_once(requester, edge.waiter, news)
        self._notify_once(requester, edge.holder, news)

    def _notify_once(self, requester: Requester, entry: Entry, news: News) -> None:
        """Notify a requester of an entry, unless it was notified before and still remembers it."""
        if entry.notified is None:
            entry.notified = {}
        if entry.notified.get(requester) != requester.changed_at:
            size = len(entry.notified)
            if size >= FEW and not size & (size - 1):  # now and then, as it would grow
                _drop_forgotten(entry.notified)
            entry.notified[requester] = requester.changed_at
            self._notify(requester, entry, news)


FEW: Final = 16
_id_of: Final = attrgetter("id")


def _is_single(requester: Requester) -> bool:
    """Whether a requester waits with just one request."""
    return requester.waiting == 1 and not requester.waits_elsewhere


def _may_be_waited_for(requester: Requester) -> bool:
    """Whether another requester may wait for this one; true in case of doubt."""
    return requester.requests_elsewhere or any(map(_is_waited_for, requester.all()))


def _is_waited_for(entry: Entry) -> bool:
    """Whether another entry may wait for this one; true in case of doubt."""
    for slot in entry.slot.path():
        if slot.index is not None and _stands_behind(slot.index, entry):
            return True
    index = entry.slot.index
    return index is not None and bool(index.strong_below or index.plain_below)


def _stands_behind(index: SearchIndex, entry: Entry) -> bool:
    """Whether a indexed entry that conflicts with `entry` waits behind it, or `entry` is granted."""
    for rank in entry.rivals:
        for kind in (PLAIN, AHEAD):
            queue = index.lists[kind + rank]
            if queue and (entry.granted or queue[-1].place > entry.place):
                return True
    return False


def _drop_forgotten(notified: dict[Requester, int]) -> None:
    """Take out requesters that forgot the entry: they are gone, or have stopped waiting since."""
    for requester, changed_at in list(notified.items()):
        if not requester.total or not requester.waits or requester.changed_at != changed_at:
            del notified[requester]
