"""The search index: the requests that matter to the search for cycles, in order at each lock id.

In a queue of thousands, nearly all agents *wait alone*: such an agent waits for one request only,
and has no other request on related ids. A search skips all of these at once
(`locks.core.server.waits`). So each slot has three lists for each mode, in the order of places:

- `HELD`: granted requests of agents that wait for something else;
- `AHEAD`: waiting requests of agents that also wait for something else, or have other requests on
  related ids;
- `PLAIN`: waiting requests of agents that wait alone.

Requests of agents that do not wait are not in it, because no cycle goes through them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

from locks.core.server.tree import Entry, Requester, SearchIndex, Slot
from locks.model import MODES, Place

__all__ = [
    "AHEAD",
    "HELD",
    "PLAIN",
    "follow",
    "follow_all",
    "indexed_below",
    "is_alone",
    "waits_for_it_alone",
]

_NOT_INDEXED: Final = -1
HELD: Final = 0
AHEAD: Final = len(MODES)
PLAIN: Final = 2 * len(MODES)


def waits_for_it_alone(entry: Entry) -> bool:
    """Whether an entry waits and its requester waits for nothing else."""
    requester = entry.requester
    return requester.waiting == 1 and not requester.waits_elsewhere and entry.waits


def is_alone(waiter: Entry) -> bool:
    """Whether an entry's requester has no other entry on related ids."""
    requester = waiter.requester
    if requester.total == 1:
        return True
    return not any(own is not waiter for own in requester.around(waiter.slot))


def indexed_below(slot: Slot, plain: bool) -> Iterator[Slot]:
    """The slots below with index on them or below them; `PLAIN` index count only with `plain`."""
    todo = [slot]
    for each in todo:
        index = each.index
        if index is not None:
            for child in index.strong_below:
                todo.append(child)
                yield child
            if plain:
                for child in index.plain_below:
                    if child not in index.strong_below:
                        todo.append(child)
                        yield child


def follow_all(requester: Requester) -> list[Entry]:
    """Index all entries of a requester whose waiting has changed; returns the same as `follow`."""
    left: list[Entry] = []
    for entries in requester.entries.values():
        for entry in entries:
            _index(entry, left)
    return left


def follow(entry: Entry) -> list[Entry]:
    """Index a changed entry, and related ones of its requester, which may be alone now or no longer.

    Returns:
        The `PLAIN` entries directly ahead of an entry that is no longer `PLAIN`.
    """
    left: list[Entry] = []
    _index(entry, left)
    if entry.requester.waiters and entry.requester.total > (not entry.gone):
        own = entry.slot.lock_id
        for waiter in list(entry.requester.waiters):
            other = waiter.slot.lock_id
            if waiter is not entry and own[: len(other)] == other[: len(own)]:
                _index(waiter, left)
    return left


def _index(entry: Entry, left: list[Entry]) -> None:
    """Put an entry where it belongs in the index."""
    kind = _kind_of(entry)
    waiters = entry.requester.waiters
    if kind > HELD and entry.waits:
        if not waiters:
            entry.requester.waiters = {entry: None}
        else:
            waiters[entry] = None
    elif entry in waiters:
        del waiters[entry]
    if entry.kind == kind and entry.indexed_at == entry.place:
        return
    if entry.kind >= 0:
        _take_out(entry, left)
    if kind < 0:
        return
    entry.kind = kind
    entry.indexed_at = entry.place
    slot = entry.slot
    index = slot.index
    if index is None:
        index = slot.index = SearchIndex()
    queue = index.lists[kind + entry.rank]
    if queue and queue[-1].indexed_at > entry.indexed_at:
        insort(queue, entry, key=_indexed_at)
    else:
        queue.append(entry)
    if kind == PLAIN:
        index.plain += 1
        if index.plain == 1 and not index.plain_below:
            _rise(slot, True)
    else:
        index.strong += 1
        if index.strong == 1 and not index.strong_below:
            _rise(slot, False)


def _kind_of(entry: Entry) -> int:
    requester = entry.requester
    if entry.gone or not requester.waits:
        return _NOT_INDEXED
    if entry.granted:
        return HELD
    if waits_for_it_alone(entry) and is_alone(entry):
        return PLAIN
    return AHEAD


def _take_out(entry: Entry, left: list[Entry]) -> None:
    """Take an entry out of its list."""
    slot = entry.slot
    index = slot.index
    assert index is not None
    queue = index.lists[entry.kind + entry.rank]
    i = 0 if queue[0] is entry else bisect_left(queue, entry.indexed_at, key=_indexed_at)
    assert queue[i] is entry
    del queue[i]
    if entry.kind == PLAIN:
        if i:
            left.append(queue[i - 1])
        index.plain -= 1
        if not (index.plain or index.plain_below):
            _sink(slot, True)
    else:
        index.strong -= 1
        if not (index.strong or index.strong_below):
            _sink(slot, False)
    entry.kind = _NOT_INDEXED


def _rise(slot: Slot, plain: bool) -> None:
    """Note in the slots above that a slot has index on it or below, and had none before."""
    while slot.parent is not None:
        parent = slot.parent
        index = parent.index
        if index is None:
            index = parent.index = SearchIndex()
        below = index.plain_below if plain else index.strong_below
        known = bool(below) or (index.plain if plain else index.strong) > 0
        below[slot] = None
        if known:
            return
        slot = parent


def _sink(slot: Slot, plain: bool) -> None:
    """Note in the slots above that a slot has no more index on it or below."""
    while True:
        index = slot.index
        assert index is not None
        if not (index.plain or index.strong or index.plain_below or index.strong_below):
            slot.index = None
        parent = slot.parent
        if parent is None:
            return
        above = parent.index
        assert above is not None
        below = above.plain_below if plain else above.strong_below
        del below[slot]
        if below or (above.plain if plain else above.strong):
            return
        slot = parent


def _indexed_at(entry: Entry) -> Place:
    return entry.indexed_at
