"""The queue of a counted id: so many entries may be granted at once as it has units.

Those who have a unit stand at the front, in the order of their units; then come those who wait, in the order of
their places. So an entry's index says how many are granted or stand ahead of it.
"""

from __future__ import annotations

from bisect import bisect_left

from locks.core.server.tree import WHOLE, Entry, Slot, place_of
from locks.model import place_of_unit

__all__ = ["give_unit", "is_full_for", "next_in_line"]


def is_full_for(entry: Entry) -> bool:
    """Whether all units are taken, or will be by those ahead of a waiting entry."""
    slot = entry.slot
    return bisect_left(slot.queues[entry.rank], entry.place, key=place_of) >= slot.units


def next_in_line(slot: Slot, rank: int) -> Entry | None:
    """After an entry has left: the one that waited for that alone, if there is one."""
    queue = slot.queues[rank]
    if len(queue) >= slot.units:
        entry = queue[slot.units - 1]
        if not entry.granted and entry.blocker is None and entry.pending < 0:
            return entry
    return None


def give_unit(entry: Entry) -> None:
    """Let an entry that was just granted stand where the holder of the first free unit does."""
    slot = entry.slot
    queue, units = slot.queues[entry.rank], slot.units
    del queue[bisect_left(queue, entry.place, key=place_of)]
    first, last = 0, slot.granted[entry.rank] - 1
    while first < last:  # the others stand without a gap up to the first free unit
        middle = (first + last) // 2
        if queue[middle].place > place_of_unit(middle, units):
            last = middle
        else:
            first = middle + 1
    entry.place, entry.room = place_of_unit(first, units), WHOLE
    queue.insert(first, entry)
