"""Who waits for whom: the wait-for graph as a lock server sees it.

An edge leads from an owner that waits, with one of its requests, to another one that waits, too, and has a request in the
way. What goes on at other nodes counts as one more owner: an owner that waits elsewhere waits for it, and it waits for
each owner that has requests elsewhere. Owners on a cycle through it are *tied*.

Edges that are not looked at: those from a request to a waiting request ahead of it on the same id, in
a mode that it covers (a write request covers all), if the latter is all that its agent waits for, and
the former's agent has nothing else there that could block it. Then whatever blocks the latter blocks
the former directly, so each cycle over such an edge has a shorter one beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from locks.core.server.tree import (
    COVERED_RIVALS,
    Entry,
    EntryOwner,
    Slot,
    place_of,
    rivals_around,
)
from locks.model import Mode, Place

__all__ = ["WaitEdge", "edges_from", "edges_of", "edges_to", "tied_elsewhere"]


class WaitEdge(NamedTuple):
    """`by` waits for `to`, with one entry for another."""

    by: EntryOwner
    to: EntryOwner
    waiter: Entry
    holder: Entry


def edges_from(owner: EntryOwner) -> Iterator[WaitEdge]:
    """The edges that go out from an owner."""
    for waiter in _waiters(owner):
        yield from edges_of(waiter)


def edges_of(waiter: Entry) -> Iterator[WaitEdge]:
    """The edges that go out from one waiting entry."""
    owner = waiter.owner
    alone = _is_alone(waiter)
    for holder in rivals_around(waiter):
        by = holder.owner
        if by is owner or not by.waits or not _is_in_the_way(holder, waiter):
            continue
        if not (alone and _waits_for_that_alone(by) and _is_covered(holder, waiter)):
            yield WaitEdge(owner, by, waiter, holder)


def edges_to(owner: EntryOwner) -> Iterator[WaitEdge]:
    """The edges that come in to an owner."""
    if not owner.waits:
        return
    single = _waits_for_that_alone(owner)
    for holder in owner.all():
        for waiter in rivals_around(holder):
            by = waiter.owner
            if by is owner or waiter.granted or not _is_in_the_way(holder, waiter):
                continue
            if not (single and _is_covered(holder, waiter) and _is_alone(waiter)):
                yield WaitEdge(by, owner, waiter, holder)


def tied_elsewhere(waiting: Iterable[EntryOwner]) -> set[EntryOwner]:
    """The tied ones of all owners that wait.

    No edge is looked at: of all requests for one id in one mode, the last one that waits and is reached reaches all
    ahead of it, and all behind the first one from which a way leads elsewhere wait for that.
    """
    reached: set[EntryOwner] = set()
    others = anybody = False
    for owner in waiting:
        if owner.requests_elsewhere:
            reached.add(owner)
        else:
            others = True
        anybody = anybody or owner.waits_elsewhere
    if not (anybody and reached):
        return set()
    if others:
        _add_those_in_the_way(reached)
    tied = {owner for owner in reached if owner.waits_elsewhere}
    if tied and len(tied) < len(reached):
        _add_those_behind(tied, reached - tied)
    return tied


def _add_those_in_the_way(reached: set[EntryOwner]) -> None:
    """Add all owners to whom edges lead from those who are there."""
    lasts: dict[tuple[Slot, Mode, bool], Place] = {}
    looked_at: dict[tuple[Slot, int, bool], int] = {}
    new = list(reached)
    while new:
        ends: dict[tuple[Slot, Mode, bool], Entry] = {}
        for owner in new:
            for waiter in _waiters(owner):
                kind = (waiter.slot, waiter.mode, _is_alone(waiter))
                if waiter.place > lasts.get(kind, -1):
                    lasts[kind] = waiter.place
                    ends[kind] = waiter
        new = []
        for (own_slot, mode, alone), waiter in ends.items():
            for slot in (*own_slot.path(), *own_slot.subtree(waiter.rivals)):
                if not slot.queues:
                    continue
                for rank in waiter.rivals:
                    queue = slot.queues[rank]
                    covered = alone and slot is own_slot and rank in COVERED_RIVALS[mode]
                    start = looked_at.get((slot, rank, covered), -1)
                    if start < 0:
                        start = 0
                        for holder in _granted(queue, slot.granted[rank]):
                            _add(holder.owner, reached, new)
                    while start < len(queue) and queue[start].place < waiter.place:
                        holder = queue[start]
                        if not (covered and _waits_for_that_alone(holder.owner)):
                            _add(holder.owner, reached, new)
                        start += 1
                    looked_at[slot, rank, covered] = start


def _add(owner: EntryOwner, reached: set[EntryOwner], new: list[EntryOwner]) -> None:
    """Add an owner, if it waits."""
    if owner.waits and owner not in reached:
        reached.add(owner)
        new.append(owner)


def _add_those_behind(tied: set[EntryOwner], others: set[EntryOwner]) -> None:
    """Add those of the others from whom edges lead to those who are there.

    The edges that are left out elsewhere count here: they change nothing of where a way leads.
    """
    # By slot, whether it is about those below that, and the rank of what is in the way.
    behind: dict[tuple[Slot, bool, int], list[Entry]] = {}
    for owner in others:
        for waiter in _waiters(owner):
            for rank in waiter.rivals:
                for slot in waiter.slot.path():
                    if slot.queues and slot.queues[rank]:
                        behind.setdefault((slot, False, rank), []).append(waiter)
                if waiter.slot.below[rank]:
                    behind.setdefault((waiter.slot, True, rank), []).append(waiter)
    new: list[EntryOwner] = []
    for (slot, below, rank), waiters in behind.items():
        waiters.sort(key=place_of)
        for each in slot.subtree((rank,)) if below else (slot,):
            if each.queues:
                first = _first_of(tied, each, rank)
                if first is not None:
                    _add_behind(waiters, first, tied, new)
    for owner in new:
        for holder in owner.all():
            first = -1 if holder.granted else holder.place
            for slot in holder.slot.path():
                found = behind.get((slot, slot is not holder.slot, holder.rank))
                if found:
                    _add_behind(found, first, tied, new)


def _first_of(tied: set[EntryOwner], slot: Slot, rank: int) -> Place | None:
    """From which place on a waiting request of somebody else waits for one of theirs."""
    queue = slot.queues[rank]
    for entry in _granted(queue, slot.granted[rank]):
        if entry.owner in tied:
            return -1
    for entry in queue:
        if entry.owner in tied:
            return entry.place
    return None


def _add_behind(
    waiters: list[Entry], first: Place, tied: set[EntryOwner], new: list[EntryOwner]
) -> None:
    """Add the owners of those that stand behind a place, and take these out of the list."""
    while waiters and waiters[-1].place > first:
        owner = waiters.pop().owner
        if owner not in tied:
            tied.add(owner)
            new.append(owner)


def _waiters(owner: EntryOwner) -> Iterator[Entry]:
    """The requests with which an owner waits here."""
    if owner.waiting:
        for entry in owner.all():
            if not entry.granted:
                yield entry


def _granted(queue: list[Entry], count: int) -> Iterator[Entry]:
    """The granted ones of a queue that has so many of them; they stand mostly at the front."""
    for entry in queue:
        if not count:
            return
        if entry.granted:
            count -= 1
            yield entry


def _is_in_the_way(holder: Entry, waiter: Entry) -> bool:
    """Of rivals on related ids: whether one is granted, or stands ahead of the other."""
    return holder.granted or holder.place < waiter.place


def _waits_for_that_alone(owner: EntryOwner) -> bool:
    """Whether an owner waits with one request only."""
    return owner.waiting == 1 and not owner.waits_elsewhere


def _is_alone(waiter: Entry) -> bool:
    """Whether its owner has nothing else on ids related to that of a waiting entry."""
    return not any(own is not waiter for own in waiter.owner.around(waiter.slot))


def _is_covered(holder: Entry, waiter: Entry) -> bool:
    """Whether the one ahead waits, too, and all that is in its way is in that of the other."""
    return (
        not holder.granted
        and holder.slot is waiter.slot
        and holder.rank in COVERED_RIVALS[waiter.mode]
    )
