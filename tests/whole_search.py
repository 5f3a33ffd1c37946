"""The search for cycles as it was before requests were marked: through whole queues, and all who wait.

It shares no code with `locks.core.server.waits`. `WholeServer` is a lock server with it, for comparison: what it
notifies agents of is right, and takes time in the length of the queues.
"""

from __future__ import annotations

from collections.abc import Iterator

from locks.core.server.machine import ServerMachine
from locks.core.server.notifier import News, Notifier
from locks.core.server.tree import COVERED_RIVALS, Entry, Requester
from locks.core.server.waits import WaitEdge

__all__ = ["WholeServer", "edges_from", "tied_ones"]


def rivals_around(entry: Entry) -> Iterator[Entry]:
    """The entries on related ids whose modes conflict with that of `entry`."""
    for slot in (*entry.slot.path(), *entry.slot.subtree(entry.rivals)):
        if slot.queues:
            for rank in entry.rivals:
                yield from slot.queues[rank]


def edges_from(owner: Requester) -> Iterator[WaitEdge]:
    """The edges that go out from an owner; only covered ones are left out."""
    for waiter in owner.all():
        if waiter.waits:
            alone = not any(own is not waiter for own in owner.around(waiter.slot))
            for holder in rivals_around(waiter):
                to = holder.requester
                if to is owner or not to.waits:
                    continue
                if not holder.granted and holder.place > waiter.place:
                    continue
                covered = (
                    holder.waits
                    and holder.slot is waiter.slot
                    and holder.rank in COVERED_RIVALS[waiter.mode]
                )
                if not (alone and covered and to.waiting == 1 and not to.waits_elsewhere):
                    yield WaitEdge(owner, to, waiter, holder)


def tied_ones(owners: list[Requester], edges: list[WaitEdge]) -> set[Requester]:
    """Those who wait, to whom a way leads from elsewhere, and from whom one leads there."""
    waiting = [owner for owner in owners if owner.waits]
    there = {owner for owner in waiting if owner.requests_elsewhere}
    back = {owner for owner in waiting if owner.waits_elsewhere}
    return _spread(there, [(edge.by, edge.to) for edge in edges]) & _spread(
        back, [(edge.to, edge.by) for edge in edges]
    )


def _spread(found: set[Requester], steps: list[tuple[Requester, Requester]]) -> set[Requester]:
    ways: dict[Requester, list[Requester]] = {}
    for by, to in steps:
        ways.setdefault(by, []).append(to)
    todo = list(found)
    for each in todo:
        new = [to for to in ways.get(each, ()) if to not in found]
        found = found | set(new)
        todo += dict.fromkeys(new)
    return found


class WholeNotifier(Notifier):
    """Looks at everything after each step."""

    def _notify_tied(self, news: News) -> None:
        owners = list(self._table.requesters.values())
        edges = [edge for owner in owners for edge in edges_from(owner)]
        tied = tied_ones(owners, edges)
        self._tied = {owner: None for owner in owners if owner in tied}
        for edge in edges:
            if edge.by in tied and edge.to in tied:
                self._notify_edge(edge, news)

    def _on_no_cycle(self) -> set[Requester]:
        return set()

    def _look_for_cycle(self, start: Requester, news: News, seen: set[Requester]) -> bool:
        if not start.waits:
            return False
        edges: list[WaitEdge] = []
        reached: dict[Requester, WaitEdge] = {}
        todo = [start]
        for owner in todo:
            for edge in edges_from(owner):
                if edge.to in self._tied:
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


class WholeServer(ServerMachine):
    """A lock server that looks at everything after each step."""

    def _begin(self, version: int) -> None:
        super()._begin(version)
        self._notifier = WholeNotifier(self.table, self.node)
