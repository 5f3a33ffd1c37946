"""The edges of the wait-for graph that a lock server follows when it searches for cycles.

An edge leads from a waiting requester to another waiting requester whose request blocks it. Not all
edges are needed. A waiting request is followed

- on its own id and above, and on the first ids below. All ids below are looked at only if nothing
  else blocks it: there may be many, and each search would look at all.
- there, to each grant that blocks it, and to the first waiting request of each queue that does. The
  requests behind that one become the first in their turn.
- not to a waiting request that is *covered*: its requester waits for nothing else, and all that
  blocks it blocks the follower, and belongs to others. So a search passes over the agents that only
  wait in the same queue.

Is that enough? Nearly always a deadlock is found with the change that closes it. One whose agents also wait
for others may be found later. Whoever is not part of a deadlock ends sooner or later. When all of these have ended, each waiting request still has a followed edge, so the
edges lead round in a cycle. The last edge of that cycle has come with a change from which the
notifier searches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from locks.core.server.tree import COVERED_RIVALS, Entry, Requester, counts_against

__all__ = ["WaitEdge", "edges_between", "edges_from", "shortest_cycle"]


FEW: Final = 4  # ids below that are looked at if something else blocks as well


class WaitEdge(NamedTuple):
    """`by` waits for `to`, with one entry for another."""

    by: Requester
    to: Requester
    waiter: Entry
    holder: Entry


def edges_from(requester: Requester) -> Iterator[WaitEdge]:
    """The followed edges from a requester to requesters that wait."""
    for waiter in requester.waiters():
        slot, place, rivals = waiter.slot, waiter.place, waiter.rivals
        below = slot.subtree(rivals)
        for each in chain(slot.path(), islice(below, FEW) if waiter.pending < 0 else below):
            for rank in rivals if each.queues else ():
                grants = each.granted[rank]
                is_first = True
                for entry in each.queues[rank]:
                    to = entry.requester
                    if entry.granted:
                        grants -= 1
                        follows = True
                    else:
                        follows = is_first and entry.place < place
                        is_first = is_first and to is requester
                        follows = follows and not _is_covered(entry, waiter)
                    if follows and to is not requester and (to.waiting or to.waits_elsewhere):
                        yield WaitEdge(requester, to, waiter, entry)
                    if not (grants or is_first):  # they are usually at the front
                        break


def _is_covered(holder: Entry, waiter: Entry) -> bool:
    """Whether a waiting entry that blocks `waiter` is left out."""
    requester = holder.requester
    if holder.spare or requester.waiting > 1 or requester.waits_elsewhere:
        return False
    if waiter.pending < 0 <= holder.pending:  # what blocks it is below
        return False
    above = waiter.slot.lock_id
    return (
        holder.rank in COVERED_RIVALS[waiter.mode]
        and holder.slot.lock_id[: len(above)] == above
        and not any(counts_against(holder, own) for own in waiter.requester.around(holder.slot))
    )


def shortest_cycle(start: Requester, clear: set[Requester]) -> list[WaitEdge]:
    """The followed edges of a shortest cycle through a requester; none if there is no cycle.

    Args:
        start: The requester.
        clear: Requesters that no cycle goes through; those found on the way are added.
    """
    reached: dict[Requester, WaitEdge] = {}
    todo = [start]
    met_again = False
    for requester in todo:
        for edge in edges_from(requester):
            if edge.to is start:
                cycle = [edge]
                while cycle[-1].by is not start:
                    cycle.append(reached[cycle[-1].by])
                return cycle
            if edge.to in reached:
                met_again = True
            elif edge.to not in clear:
                reached[edge.to] = edge
                todo.append(edge.to)
    clear.update((start,) if met_again else todo)
    return []


def edges_between(
    starts: Collection[Requester], ends: Collection[Requester]
) -> tuple[list[WaitEdge], set[Requester]]:
    """The followed edges on paths from some requesters to others, and the requesters on these paths."""
    found: list[WaitEdge] = []
    reached = dict.fromkeys(starts)
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
    todo = [requester for requester in reached if requester in ends]
    leads = set(todo)
    for requester in todo:
        for by in before.get(requester, ()):
            if by not in leads:
                leads.add(by)
                todo.append(by)
    return [edge for edge in found if edge.to in leads], leads
