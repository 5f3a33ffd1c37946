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

A search follows few edges (`locks.core.server.waits`). It begins at each agent that may have closed
a cycle in this step: one of its requests is new, moved, granted while it waits for another one, or
has another reason to wait; or it began to wait elsewhere. Such an agent is a *closer* until a search
finds no cycle through it. Only an agent that waits and has other requests can close one.

Paths from agents with requests elsewhere to agents that wait elsewhere are all reported, because the
other part of their cycles is unknown here. Of several cycles within the node, only the shortest is
reported; the next one is when this one is resolved. If the cycle is long, only its largest agent is notified, but of all edges. That agent has
to yield. Otherwise the agents would pass more and more records on to it, in all about half the
square of their number. Where many agents wait, a cycle of three counts as long: cycles overlap
there, and records of one cycle would reach agents on others.

If counted locks are in use, all cycles through the agent are reported instead: a deadlock may
contain one unit in one cycle and another unit in another (`locks.core.agent.knots`).

An agent that was notified of a request is notified of its changes, as long as the agent waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import ClassVar, Final

from locks.core.server.table import LockTable
from locks.core.server.tree import Entry, Requester
from locks.core.server.waits import WaitEdge, edges_between, shortest_cycle
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

    def after(self, changed: list[Entry], requester: Requester | None = None) -> News:
        """Work out which agents to notify of what after one step.

        Args:
            changed: The entries that the step changed.
            requester: A requester whose standing elsewhere changed.

        Returns:
            The entries to notify each agent of, with their records. Its own changed entries are
            always included, unless they are gone.
        """
        table = self._table
        spares, looked = table.spares, table.looked
        if len(changed) == 1 and requester is None and not (self.closers or spares or looked):
            (entry,) = changed
            own = entry.requester
            if not (own.waits or own.waited or entry.notified):  # the most frequent case
                return {} if entry.gone else {own.id: {entry: entry.record(self._node)}}
        news: News = {}
        moved = dict.fromkeys([entry.requester for entry in looked])
        table.looked = []
        if requester is not None:
            moved[requester] = None
            self._see(requester, news)
        for entry in changed:
            own = entry.requester
            # Edges are between requesters that wait, so changes of other requesters change no edge.
            if own.waited or own.waits:
                moved[own] = None
                self._see(own, news)
        for entry in changed:
            if not entry.gone:
                self._notify(entry.requester, entry, news)
            if entry.notified:
                self._notify_change(entry, news)
        for own in moved:
            if own.waits and (own.total > 1 or own.requests_elsewhere):
                self.closers[own] = None
        if self.closers and moved:
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

    def load(self, requesters: Iterable[Requester]) -> None:
        """Derive the sets from the state of requesters that were loaded into the table."""
        for requester in requesters:
            self._put_down(requester)

    def _look_for_cycles(self, news: News) -> None:
        """Notify of edges on cycles through requesters that may have closed one, in this step or before."""
        seen: set[Requester] = set()  # those on cycles that are reported
        clear: set[Requester] = set()
        if self.asking and self.away:
            seen = self._notify_between(self.asking, self.away, news)
            clear |= seen  # no path leads back from these
        for requester in list(self.closers):
            if requester not in seen:
                members = set() if requester in clear else self._cycle_of(requester, clear, news)
                if not members:
                    del self.closers[requester]
                seen |= members

    def _cycle_of(self, requester: Requester, clear: set[Requester], news: News) -> set[Requester]:
        """Notify of the shortest cycle through a requester, or of all; return who is on it."""
        if self._table.counted:
            members = self._notify_between((requester,), (requester,), news)
            return members if len(members) > 1 else set()
        cycle = shortest_cycle(requester, clear)
        members = {each.by for each in cycle}
        if len(cycle) < (self.long if len(self.waiting) <= self.few else min(3, self.long)):
            for each in cycle:
                self._notify_edge(each, news)
        elif cycle:
            largest = max(members, key=_id_of)
            for each in cycle:
                self._notify_of(largest, each, news)
        return members

    def _notify_between(
        self, starts: Collection[Requester], ends: Collection[Requester], news: News
    ) -> set[Requester]:
        """Notify of the edges on paths from some requesters to others; return who is on them."""
        edges, members = edges_between(starts, ends)
        for edge in edges:
            self._notify_edge(edge, news)
        return members

    def _see(self, requester: Requester, news: News) -> None:
        """Update the notes on whether and where a requester waits."""
        if requester.waits != requester.waited:
            self._waiting_changed(requester, news)
        self._put_down(requester)

    def _put_down(self, requester: Requester) -> None:
        """Update the sets of requesters that wait, request elsewhere and wait elsewhere."""
        waits = requester.total > 0 and requester.waits
        for among, belongs in (
            (self.waiting, waits),
            (self.asking, waits and requester.requests_elsewhere),
            (self.away, waits and requester.waits_elsewhere),
        ):
            if belongs:
                among[requester] = None
            elif requester in among:
                del among[requester]

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

    def _notify_edge(self, edge: WaitEdge, news: News) -> None:
        """Notify the requesters at both ends of an edge of both entries."""
        by, to, *entries = edge
        for entry in entries:
            notified = entry.notified or {}
            if notified.get(by) != by.changed_at or notified.get(to) != to.changed_at:
                self._notify_once(by, entry, news)
                self._notify_once(to, entry, news)

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


def _drop_forgotten(notified: dict[Requester, int]) -> None:
    """Take out requesters that forgot the entry: they are gone, or have stopped waiting since."""
    for requester, changed_at in list(notified.items()):
        if not requester.total or not requester.waits or requester.changed_at != changed_at:
            del notified[requester]
