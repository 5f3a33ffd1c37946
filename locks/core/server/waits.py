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

from locks.core.server.tree import COVERED_RIVALS, Entry, EntryOwner, rivals_around

__all__ = ["WaitEdge", "edges_from", "edges_of", "edges_to", "tied_elsewhere"]


class WaitEdge(NamedTuple):
    """`by` waits for `to`, with one entry for another."""

    by: EntryOwner
    to: EntryOwner
    waiter: Entry
    holder: Entry


def edges_from(owner: EntryOwner) -> Iterator[WaitEdge]:
    """The edges that go out from an owner."""
    if owner.waiting:
        for entry in owner.all():
            if not entry.granted:
                yield from edges_of(entry)


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

    Most that wait for others elsewhere have requests there, and are tied by that. So edges are looked at for
    the others alone, until one is found that decides.
    """
    reaching: set[EntryOwner] = set()  # from these a way leads elsewhere
    others: list[EntryOwner] = []
    for owner in waiting:
        if owner.waits_elsewhere:
            reaching.add(owner)
        else:
            others.append(owner)
    if not reaching:
        return reaching
    before: dict[EntryOwner, list[EntryOwner]] = {}
    for owner in others:
        if owner in reaching:
            continue
        for edge in edges_from(owner):
            if edge.to in reaching:
                _add(owner, reaching, before)
                break
            before.setdefault(edge.to, []).append(owner)
    tied: set[EntryOwner] = set()  # and to these one leads back
    others = []
    for owner in reaching:
        if owner.requests_elsewhere:
            tied.add(owner)
        else:
            others.append(owner)
    if not tied:
        return tied
    after: dict[EntryOwner, list[EntryOwner]] = {}
    for owner in others:
        if owner in tied:
            continue
        for edge in edges_to(owner):
            if edge.by in tied:
                _add(owner, tied, after)
                break
            if edge.by in reaching:
                after.setdefault(edge.by, []).append(owner)
    return tied


def _add(
    owner: EntryOwner, found: set[EntryOwner], following: dict[EntryOwner, list[EntryOwner]]
) -> None:
    """Put an owner into `found`, and all that follow from it."""
    todo = [owner]
    for each in todo:
        if each not in found:
            found.add(each)
            todo += following.pop(each, ())


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
