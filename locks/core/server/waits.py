"""The wait-for graph as a lock server sees it.

An edge leads from a waiting requester, with one of its requests, to another waiting requester whose request
blocks it. All other nodes together count as one more requester: a requester that waits elsewhere waits for
it, and it waits for each requester that has requests elsewhere. Owners on a cycle through it are
*tied*.

Searches skip two kinds of edges. Both lead to a waiting request x whose agent waits for nothing
else. So no search goes through the agents that wait alone, however many there are.

- (covered) The edge comes from a request on the same id or above it, whose mode excludes all that
  x's mode excludes (a write request covers all), and whose agent has no other request there that
  could block x. Every request that blocks x blocks this one directly.
- (overtaken) Between the edge's waiting request and x, there is another request on the same id and
  in the same mode as x, whose agent has no other request there either. Every request that blocks x
  blocks that one, too.

In both cases, each cycle over the skipped edge implies another cycle. It is shorter, or goes
through a request further back in the queue. So at least one cycle has no skipped edge.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from locks.core.server.search_index import (
    AHEAD,
    HELD,
    PLAIN,
    indexed_below,
    is_alone,
    waits_for_it_alone,
)
from locks.core.server.tree import (
    COVERED_RIVALS,
    Entry,
    Requester,
    Slot,
    counts_against,
    place_of,
)
from locks.model import Place

__all__ = ["Looked", "WaitEdge", "edges_from", "edges_of", "edges_to", "tied_elsewhere"]

FEW: Final = 8

# How far a search has looked at the `HELD` and `AHEAD` requests of a slot and a rank, by place;
# separately with and without covered ones.
Looked = dict[tuple[Slot, int, bool], Place]


class WaitEdge(NamedTuple):
    """`by` waits for `to`, with one entry for another."""

    by: Requester
    to: Requester
    waiter: Entry
    holder: Entry


def edges_from(requester: Requester, looked: Looked | None = None) -> Iterator[WaitEdge]:
    """The edges from a requester; `looked` is as in `edges_of`."""
    for waiter in _in_order(requester):
        yield from edges_of(waiter, looked)


def edges_of(waiter: Entry, looked: Looked | None = None) -> Iterator[WaitEdge]:
    """The edges from one waiting entry.

    Args:
        waiter: The entry.
        looked: How far a search has looked. Requests up to there are left out. When the caller asks
            for the next edge, the last one is added.
    """
    covers = _covers(waiter)
    own_slot = waiter.slot
    for slot in own_slot.path():
        if slot.index is not None and (slot.index.strong or slot.index.plain):
            yield from _edges_at(waiter, slot, covers if slot is own_slot else (), looked)
    if own_slot.index is not None:
        for slot in indexed_below(own_slot, len(covers) < len(waiter.rivals)):
            yield from _edges_at(waiter, slot, covers, looked)


def _edges_at(
    waiter: Entry, slot: Slot, covers: tuple[int, ...], looked: Looked | None
) -> Iterator[WaitEdge]:
    """The edges from a waiting entry to those on one slot."""
    index = slot.index
    assert index is not None
    requester, place = waiter.requester, waiter.place
    for rank in waiter.rivals:
        covered = rank in covers
        key = (slot, rank, covered)
        last: Place | None = None
        notes = False
        if looked is not None:
            last = looked.get(key)
            notes = True  # until an entry of this requester comes: others have edges to it
        if not covered:
            queue = index.lists[PLAIN + rank]
            i = bisect_left(queue, place, key=place_of) if queue else 0
            if i:
                yield WaitEdge(requester, queue[i - 1].requester, waiter, queue[i - 1])
        if last is None:
            for holder in index.lists[HELD + rank]:
                if holder.requester is requester:
                    notes = False
                else:
                    yield WaitEdge(requester, holder.requester, waiter, holder)
            if notes and looked is not None:
                looked[key] = 0  # all waiting entries have larger places
        queue = index.lists[AHEAD + rank]
        i = 0 if last is None else bisect_right(queue, last, key=place_of)
        while i < len(queue) and queue[i].place < place:
            holder = queue[i]
            if holder.requester is requester:
                notes = False
            elif not (covered and waits_for_it_alone(holder)):
                yield WaitEdge(requester, holder.requester, waiter, holder)
            if notes and looked is not None:
                looked[key] = holder.place
            i += 1


def edges_to(requester: Requester, others: Collection[Requester]) -> Iterator[WaitEdge]:
    """The edges to a requester from some others; goes through the smaller set."""
    if not requester.waits:
        return
    queues = _queues_around(requester, FEW * len(others)) if len(others) > FEW else None
    if queues is None:
        for by in others:
            if by is not requester:
                for waiter in _in_order(by):
                    for holder in requester.around(waiter.slot):
                        if counts_against(waiter, holder) and not _is_left_out(waiter, holder):
                            yield WaitEdge(by, requester, waiter, holder)
        return
    for holder, queue in queues:
        single = waits_for_it_alone(holder)
        i = 0 if holder.granted else bisect_right(queue, holder.place, key=place_of)
        while i < len(queue):
            waiter = queue[i]
            by = waiter.requester
            i += 1
            if by is requester or by not in others or not waiter.waits:
                continue
            if not (single and _is_left_out(waiter, holder)):
                yield WaitEdge(by, requester, waiter, holder)


def _queues_around(requester: Requester, most: int) -> list[tuple[Entry, list[Entry]]] | None:
    """The queues of indexed waiting requests that may wait for a requester's; `None` if these are too many."""
    found: list[tuple[Entry, list[Entry]]] = []
    for holder in requester.all():
        for slot in (*holder.slot.path(), *indexed_below(holder.slot, True)):
            most -= 1
            if slot.index is not None:
                for rank in holder.rivals:
                    for kind in (AHEAD, PLAIN):
                        queue = slot.index.lists[kind + rank]
                        if queue:
                            most -= len(queue)
                            found.append((holder, queue))
            if most < 0:
                return None
    return found


def _is_left_out(waiter: Entry, holder: Entry) -> bool:
    """Whether the edge from a waiting entry to one that blocks it is skipped."""
    if not waits_for_it_alone(holder):
        return False
    if len(holder.slot.lock_id) >= len(waiter.slot.lock_id) and holder.rank in _covers(waiter):
        return True
    if holder.kind != PLAIN or holder.slot.index is None:
        return False
    queue = holder.slot.index.lists[PLAIN + holder.rank]
    i = bisect_right(queue, holder.place, key=place_of)
    return i < len(queue) and queue[i].place < waiter.place


def _covers(waiter: Entry) -> tuple[int, ...]:
    """The ranks of requests to which edges are skipped as covered, if their agents wait for nothing else."""
    if waiter.kind == PLAIN or is_alone(waiter):
        return COVERED_RIVALS[waiter.mode]
    return ()


def tied_elsewhere(
    asking: Collection[Requester], away: Collection[Requester], others: bool = True
) -> dict[Requester, None]:
    """The tied requesters.

    Args:
        asking: The requesters that wait and have requests elsewhere.
        away: The requesters that wait elsewhere.
        others: Whether there are waiting requesters without requests elsewhere.
    """
    if not (asking and away):
        return {}
    reached = dict.fromkeys(asking)
    todo = list(reached)
    if others:
        looked: Looked = {}
        for waiter in _last_ones(todo):
            for edge in edges_of(waiter, looked):
                if edge.to not in reached:
                    reached[edge.to] = None
                    todo.append(edge.to)
        i = len(asking)
        while i < len(todo):
            for edge in edges_from(todo[i], looked):
                if edge.to not in reached:
                    reached[edge.to] = None
                    todo.append(edge.to)
            i += 1
    tied = {requester: None for requester in todo if requester in away}
    if tied and len(tied) < len(todo):
        _add_those_behind(tied, [requester for requester in todo if requester not in tied])
    return tied


def _last_ones(requesters: list[Requester]) -> list[Entry]:
    """Some waiting entries of these requesters, from which all requesters are reached that these have edges to.

    If an entry has no edges to `PLAIN` entries, only the last such entry of each slot is needed: it
    waits for all entries that the others wait for.
    """
    found: list[Entry] = []
    lasts: dict[Slot, Entry] = {}
    for requester in requesters:
        for waiter in _in_order(requester):
            slot = waiter.slot
            last = lasts.get(slot)
            if last is not None and last.place > waiter.place and _passes_over(waiter):
                continue
            if last is None and slot.parent is not None and _has_plain(slot.parent):
                found.append(waiter)
            elif _passes_over(waiter):
                lasts[slot] = waiter
            else:
                found.append(waiter)
    found += lasts.values()
    return found


def _passes_over(waiter: Entry) -> bool:
    """Whether no edge leads from a waiting entry to a `PLAIN` one on the same id or below."""
    return len(_covers(waiter)) == len(waiter.rivals)


def _has_plain(slot: Slot | None) -> bool:
    """Whether there are `PLAIN` entries on an id or above."""
    while slot is not None:
        if slot.index is not None and slot.index.plain:
            return True
        slot = slot.parent
    return False


def _add_those_behind(tied: dict[Requester, None], others: list[Requester]) -> None:
    """Add the requesters among the others from which a path leads to a tied one."""
    others.sort(key=_first_place)
    more = True
    while more:
        more = False
        looked: Looked = {}  # no path leads from these to a tied one
        left = []
        for requester in others:
            if any(edge.to in tied for edge in edges_from(requester, looked)):
                tied[requester] = None
                more = True
                looked = {}
            else:
                left.append(requester)
        others = left


def _in_order(requester: Requester) -> Collection[Entry]:
    """The entries with which a requester waits, in an order that does not depend on later events."""
    waiters = requester.waiters
    return sorted(waiters, key=_number_of) if len(waiters) > 1 else waiters


def _number_of(entry: Entry) -> int:
    return entry.number


def _first_place(requester: Requester) -> Place:
    return min([waiter.place for waiter in requester.waiters])
