"""The edges of the wait-for graph that a lock server follows when it searches for cycles.

An edge leads from a waiting requester to another waiting requester whose request blocks it. Not all
edges are needed. A waiting request is followed only

- to requests on its own id and above. If none of them blocks it, it is followed to those below.
- there, to each grant that blocks it, and to the first waiting request of each queue that does. The
  requests behind that one wait for the same grants, and become the first in their turn.
- not to a waiting request that is *covered*: its requester waits for nothing else, all that blocks
  it blocks the follower too, and none of that belongs to the follower's requester. So a search does
  not go through the agents that only wait in the same queue.

Is that enough? Each request of a deadlock keeps an edge to an agent of the deadlock until it is
resolved: those that are not part of it end sooner or later. Then a cycle of followed edges is left.
So a deadlock is found at the latest when all others that block its agents have ended. Until then,
these agents could not have continued anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from locks.core.server.tree import COVERED_RIVALS, Entry, Requester, counts_against

__all__ = ["WaitEdge", "edges_from", "first_waiting", "tied_edges"]


class WaitEdge(NamedTuple):
    """`by` waits for `to`, with one entry for another."""

    by: Requester
    to: Requester
    waiter: Entry
    holder: Entry


def edges_from(requester: Requester) -> Iterator[WaitEdge]:
    """The followed edges from a requester to requesters that wait."""
    for waiter in requester.waiters():
        for holder in _followed(waiter):
            to = holder.requester
            if to is not requester and to.waits and not _is_covered(holder, waiter):
                yield WaitEdge(requester, to, waiter, holder)


def _followed(waiter: Entry) -> Iterator[Entry]:
    """The grants that block a waiting entry, and the first waiting one of each queue that does."""
    slot, place = waiter.slot, waiter.place
    for each in slot.path() if waiter.pending < 0 else slot.subtree(waiter.rivals):
        for rank in waiter.rivals if each.queues else ():
            grants = each.granted[rank]
            waits = False
            for entry in each.queues[rank]:
                if entry.granted:
                    grants -= 1
                    yield entry
                elif not waits and entry.requester is not waiter.requester:
                    waits = True
                    if entry.place < place:
                        yield entry
                if waits and not grants:  # they are usually at the front
                    break


def first_waiting(entry: Entry) -> Entry | None:
    """The first waiting entry of the queue in which an entry is, or was."""
    slot = entry.slot
    queue = slot.queues[entry.rank] if slot.queues else ()
    if len(queue) > slot.granted[entry.rank] if queue else False:
        for other in queue:
            if not other.granted:
                return other
    return None


def _is_covered(holder: Entry, waiter: Entry) -> bool:
    """Whether an entry that blocks `waiter` is left out."""
    requester = holder.requester
    if holder.granted or holder.spare or requester.waiting > 1 or requester.waits_elsewhere:
        return False
    if waiter.pending < 0 <= holder.pending:  # what blocks it is below
        return False
    above = waiter.slot.lock_id
    return (
        holder.rank in COVERED_RIVALS[waiter.mode]
        and holder.slot.lock_id[: len(above)] == above
        and not any(counts_against(holder, own) for own in waiter.requester.around(holder.slot))
    )


def tied_edges(asking: Collection[Requester], away: Collection[Requester]) -> list[WaitEdge]:
    """The edges on paths from requesters with requests elsewhere to those that wait elsewhere."""
    found: list[WaitEdge] = []
    reached = dict.fromkeys(asking)
    todo = list(reached)
    for requester in todo:
        for edge in edges_from(requester):
            found.append(edge)
            if edge.to not in reached:
                reached[edge.to] = None
                todo.append(edge.to)
    before: dict[Requester, list[Requester]] = {}
    for edge in found:
        before.setdefault(edge.to, []).append(edge.by)
    tied = {requester: None for requester in reached if requester in away}
    todo = list(tied)
    for requester in todo:
        for by in before.get(requester, ()):
            if by not in tied:
                tied[by] = None
                todo.append(by)
    return [edge for edge in found if edge.to in tied]
