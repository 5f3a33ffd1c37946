"""Marks: the requests that matter to the search for cycles, in order at each lock id.

In a queue of thousands, nearly all agents *wait alone*: such an agent waits for one request only,
and has no other request on related ids. A search skips all of these at once
(`locks.core.server.waits`). So each slot has three lists for each mode, in the order of places:

- `HELD`: granted requests of agents that wait for something else;
- `AHEAD`: waiting requests of agents that also wait for something else, or have other requests on
  related ids;
- `PLAIN`: waiting requests of agents that wait alone.

Requests of agents that do not wait have no mark, because no cycle goes through them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

from locks.core.server.tree import Entry, EntryOwner, Marks, Slot
from locks.model import MODES, Place

__all__ = [
    "AHEAD",
    "HELD",
    "PLAIN",
    "follow",
    "follow_all",
    "is_alone",
    "marked_below",
    "waits_for_it_alone",
]

_UNMARKED: Final = -1
HELD: Final = 0
AHEAD: Final = len(MODES)
PLAIN: Final = 2 * len(MODES)


def waits_for_it_alone(entry: Entry) -> bool:
    """Whether an entry waits and its owner waits for nothing else."""
    owner = entry.owner
    return owner.waiting == 1 and not owner.waits_elsewhere and entry.waits


def is_alone(waiter: Entry) -> bool:
    """Whether an entry's owner has no other entry on related ids."""
    owner = waiter.owner
    if owner.total == 1:
        return True
    return not any(own is not waiter for own in owner.around(waiter.slot))


def marked_below(slot: Slot, plain: bool) -> Iterator[Slot]:
    """The slots below with marks on them or below them; `PLAIN` marks count only with `plain`."""
    todo = [slot]
    for each in todo:
        marks = each.marks
        if marks is not None:
            for child in marks.strong_below:
                todo.append(child)
                yield child
            if plain:
                for child in marks.plain_below:
                    if child not in marks.strong_below:
                        todo.append(child)
                        yield child


def follow_all(owner: EntryOwner) -> list[Entry]:
    """Mark all entries of an owner whose waiting has changed; returns the same as `follow`."""
    left: list[Entry] = []
    for entries in owner.entries.values():
        for entry in entries:
            _mark(entry, left)
    return left


def follow(entry: Entry) -> list[Entry]:
    """Mark a changed entry, and related ones of its owner, which may be alone now or no longer.

    Returns:
        The `PLAIN` entries directly ahead of an entry that is no longer `PLAIN`.
    """
    left: list[Entry] = []
    _mark(entry, left)
    if entry.owner.waiters and entry.owner.total > (not entry.gone):
        own = entry.slot.lock_id
        for waiter in list(entry.owner.waiters):
            other = waiter.slot.lock_id
            if waiter is not entry and own[: len(other)] == other[: len(own)]:
                _mark(waiter, left)
    return left


def _mark(entry: Entry, left: list[Entry]) -> None:
    """Give an entry the mark that it should have."""
    kind = _kind_of(entry)
    waiters = entry.owner.waiters
    if kind > HELD and entry.waits:
        if not waiters:
            entry.owner.waiters = {entry: None}
        else:
            waiters[entry] = None
    elif entry in waiters:
        del waiters[entry]
    if entry.mark == kind and entry.marked_at == entry.place:
        return
    if entry.mark >= 0:
        _take_out(entry, left)
    if kind < 0:
        return
    entry.mark = kind
    entry.marked_at = entry.place
    slot = entry.slot
    marks = slot.marks
    if marks is None:
        marks = slot.marks = Marks()
    queue = marks.lists[kind + entry.rank]
    if queue and queue[-1].marked_at > entry.marked_at:
        insort(queue, entry, key=_marked_at)
    else:
        queue.append(entry)
    if kind == PLAIN:
        marks.plain += 1
        if marks.plain == 1 and not marks.plain_below:
            _rise(slot, True)
    else:
        marks.strong += 1
        if marks.strong == 1 and not marks.strong_below:
            _rise(slot, False)


def _kind_of(entry: Entry) -> int:
    owner = entry.owner
    if entry.gone or not owner.waits:
        return _UNMARKED
    if entry.granted:
        return HELD
    if waits_for_it_alone(entry) and is_alone(entry):
        return PLAIN
    return AHEAD


def _take_out(entry: Entry, left: list[Entry]) -> None:
    """Take an entry out of its list."""
    slot = entry.slot
    marks = slot.marks
    assert marks is not None
    queue = marks.lists[entry.mark + entry.rank]
    i = 0 if queue[0] is entry else bisect_left(queue, entry.marked_at, key=_marked_at)
    assert queue[i] is entry
    del queue[i]
    if entry.mark == PLAIN:
        if i:
            left.append(queue[i - 1])
        marks.plain -= 1
        if not (marks.plain or marks.plain_below):
            _sink(slot, True)
    else:
        marks.strong -= 1
        if not (marks.strong or marks.strong_below):
            _sink(slot, False)
    entry.mark = _UNMARKED


def _rise(slot: Slot, plain: bool) -> None:
    """Note in the slots above that a slot has marks on it or below, and had none before."""
    while slot.parent is not None:
        parent = slot.parent
        marks = parent.marks
        if marks is None:
            marks = parent.marks = Marks()
        below = marks.plain_below if plain else marks.strong_below
        known = bool(below) or (marks.plain if plain else marks.strong) > 0
        below[slot] = None
        if known:
            return
        slot = parent


def _sink(slot: Slot, plain: bool) -> None:
    """Note in the slots above that a slot has no more marks on it or below."""
    while True:
        marks = slot.marks
        assert marks is not None
        if not (marks.plain or marks.strong or marks.plain_below or marks.strong_below):
            slot.marks = None
        parent = slot.parent
        if parent is None:
            return
        above = parent.marks
        assert above is not None
        below = above.plain_below if plain else above.strong_below
        del below[slot]
        if below or (above.plain if plain else above.strong):
            return
        slot = parent


def _marked_at(entry: Entry) -> Place:
    return entry.marked_at
