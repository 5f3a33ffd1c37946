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
only requests that matter are marked (`locks.core.server.marks`). A search begins only if an agent
may have closed a cycle, or if some agent waits elsewhere and some waiting agent has requests
elsewhere. It looks at each marked request once.
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
        closers: The owners that may lie on an unreported cycle.
        waiting: The owners that wait.
        asking: The waiting owners that have requests elsewhere.
        away: The owners that wait elsewhere.
        long: The number of agents from which a cycle is long: only its largest agent is notified.
        few: If more owners than this wait, each cycle of more than two agents is long.
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
        # `_touched`: owners whose edges may have changed since the last search. `_tied`: owners
        # that were notified of all edges between each other.
        self._touched: set[EntryOwner] = set()
        self._tied: dict[EntryOwner, None] = {}

    def after(
        self, changed: list[Entry], new: Sequence[Entry] = (), owner: EntryOwner | None = None
    ) -> News:
        """Work out which agents to notify of what after one step.

        Args:
            changed: The entries that the step changed.
            new: Those of them that are new, or were moved to the end: they may close a cycle.
            owner: An owner whose standing elsewhere changed.

        Returns:
            The entries to notify each agent of, with their records. Its own changed entries are
            always included, unless they are gone.
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
            # Edges are between owners that wait, so changes of other owners change no edge.
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
        """Notify agents of spare requests that their grants block; an agent without the lock gives way.

        This is done when an agent gets a grant, and when a request becomes spare.
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
        """Notify an owner of a spare entry, even if it was notified before."""
        if spare.notified is None:
            spare.notified = {}
        spare.notified[owner] = owner.turned
        self._notify(owner, spare, news)

    def again(self, owner: EntryOwner) -> News:
        """Notify an owner that has forgotten its records of those that still matter."""
        news: News = {}
        self.forgotten((owner.id,))
        self._look_for_cycles(news)
        return news

    def forgotten(self, agents: Iterable[AgentId]) -> None:
        """Note that agents forget their records; the next `after` sends those that still matter."""
        for agent in agents:
            owner = self._table.owners.get(agent)
            if owner is not None and owner.waits:
                self._table.version += 1
                owner.turned = self._table.version
                self.closers[owner] = None
                self._touched.add(owner)

    def load(self, owners: Iterable[EntryOwner]) -> None:
        """Derive the marks and sets from the state of owners that were loaded into the table."""
        for owner in owners:
            self._mark(owner)

    def _may_close_a_cycle(self, entry: Entry) -> bool:
        """Whether a new entry may connect a path to its owner with a path from it."""
        owner = entry.owner
        if (owner.total == 1 and not owner.requests_elsewhere) or not owner.waits:
            return False
        if entry.waits and next(edges_of(entry), None) is not None:
            return True
        # An entry that is not last in the queue may block an older one.
        return entry.place != self._table.last_place and _is_waited_for(entry)

    def _look_for_cycles(self, news: News) -> None:
        """Notify of edges on cycles through owners that may have closed one, in this step or before."""
        self._notify_tied(news)
        seen = set(self._tied)  # all cycles through these were reported
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
        """Notify of the edges between tied owners that may not be reported yet."""
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
        """The closers that lie on no cycle, because all paths from them end.

        One search from all closers costs as much as a search from one of them. After a long cycle
        was resolved, all its owners are closers.
        """
        ends: dict[EntryOwner, bool] = {}  # whether all paths from it end, as far as known
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
                    pass  # no path leads back from tied owners
                elif edge.to in ends:  # a cycle: it is on the path, or not all its paths end
                    break
                else:
                    ends[edge.to] = False
                    path.append(edge.to)
                    edges.append(edges_from(edge.to, looked))
        return {owner for owner, its in ends.items() if its}

    def _see(self, owner: EntryOwner, news: News) -> None:
        """Update the notes on whether and where an owner waits."""
        if owner.waits != owner.waited:
            self._turn(owner, news)
            self._mark(owner)
        elif owner.single != _is_single(owner):
            self._mark(owner)
        else:
            self._put_down(owner)

    def _mark(self, owner: EntryOwner) -> None:
        """Mark the entries of an owner whose waiting has changed."""
        owner.single = _is_single(owner)
        self._uncovered(follow_all(owner))
        self._put_down(owner)

    def _put_down(self, owner: EntryOwner) -> None:
        """Update the sets of owners that wait, request elsewhere and wait elsewhere."""
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
        """Note that searches no longer skip all edges to these entries."""
        for entry in entries:
            self._touched.add(entry.owner)

    def _turn(self, owner: EntryOwner, news: News) -> None:
        """Report that an owner begins or stops waiting: this is part of its requests' records."""
        owner.waited = owner.waits
        self._table.version += 1
        owner.turned = self._table.version
        for entries in owner.entries.values():
            for entry in entries:
                if entry.notified:
                    self._notify_change(entry, news)

    def _notify(self, owner: EntryOwner, entry: Entry, news: News) -> None:
        """Notify an owner of the present state of an entry."""
        news.setdefault(owner.id, {})[entry] = entry.record(self._node)

    def _notify_change(self, entry: Entry, news: News) -> None:
        """Notify the owners that were notified of an entry, and still wait, of its present state."""
        notified = entry.notified
        assert notified is not None
        _drop_forgotten(notified)
        for owner in notified:
            self._notify(owner, entry, news)

    def _look_for_cycle(self, start: EntryOwner, news: News, seen: set[EntryOwner]) -> bool:
        """Notify of the edges of a cycle through `start`; return whether there is one.

        Owners whose cycles are all reported by this are added to `seen`.
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
                if to in self._tied:  # no path leads back from there
                    continue
                if to is start:
                    self._notify_path(edge, reached, news)
                    return True
                if to not in reached:
                    reached[to] = edge
                    todo.append(to)
                    if owner is start:  # most cycles are short, and many owners may be ahead
                        back = next(edges_to(start, (to,)), None)
                        if back is not None:
                            self._notify_path(back, reached, news)
                            return True
        return False

    def _look_for_all(self, start: EntryOwner, news: News, seen: set[EntryOwner]) -> bool:
        """Notify of the edges of all cycles through `start`; return whether there are any."""
        edges: list[WaitEdge] = []
        reached = {start: False}
        todo = [start]
        for owner in todo:
            for edge in edges_from(owner):
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

    def _notify_path(self, last: WaitEdge, reached: dict[EntryOwner, WaitEdge], news: News) -> None:
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
        self, start: EntryOwner, edges: list[WaitEdge], news: News
    ) -> set[EntryOwner]:
        """Notify of all edges on cycles through `start`.

        Returns:
            All owners on such cycles. Each of them lies on a cycle with each other one.
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
        """Notify an owner of an entry, unless it was notified before and still remembers it."""
        if entry.notified is None:
            entry.notified = {}
        if entry.notified.get(owner) != owner.turned:
            size = len(entry.notified)
            if size >= FEW and not size & (size - 1):  # now and then, as it would grow
                _drop_forgotten(entry.notified)
            entry.notified[owner] = owner.turned
            self._notify(owner, entry, news)


FEW: Final = 16
_id_of: Final = attrgetter("id")


def _is_single(owner: EntryOwner) -> bool:
    """Whether an owner waits with just one request."""
    return owner.waiting == 1 and not owner.waits_elsewhere


def _may_be_waited_for(owner: EntryOwner) -> bool:
    """Whether another owner may wait for this one; true in case of doubt."""
    return owner.requests_elsewhere or any(map(_is_waited_for, owner.all()))


def _is_waited_for(entry: Entry) -> bool:
    """Whether another entry may wait for this one; true in case of doubt."""
    for slot in entry.slot.path():
        if slot.marks is not None and _stands_behind(slot.marks, entry):
            return True
    marks = entry.slot.marks
    return marks is not None and bool(marks.strong_below or marks.plain_below)


def _stands_behind(marks: Marks, entry: Entry) -> bool:
    """Whether a marked entry that conflicts with `entry` waits behind it, or `entry` is granted."""
    for rank in entry.rivals:
        for kind in (PLAIN, AHEAD):
            queue = marks.lists[kind + rank]
            if queue and (entry.granted or queue[-1].place > entry.place):
                return True
    return False


def _drop_forgotten(notified: dict[EntryOwner, int]) -> None:
    """Take out owners that forgot the entry: they are gone, or have stopped waiting since."""
    for owner, turned in list(notified.items()):
        if not owner.total or not owner.waits or owner.turned != turned:
            del notified[owner]
