"""The queue of a counted id, where as many entries may be granted at once as there are units.

The holders of units are at the front, in the order of their units. The waiting entries follow, in
the order of their places. So an entry's index is the number of entries that are granted or ahead of
it.
"""

from __future__ import annotations

from bisect import bisect_left

from locks.core.server.tree import WHOLE, Entry, Slot, place_of
from locks.model import place_of_unit

__all__ = ["give_unit", "is_full_for", "next_in_line"]


def is_full_for(entry: Entry) -> bool:
    """Whether all units are taken, or will be taken by entries ahead of a waiting one."""
    slot = entry.slot
    return bisect_left(slot.queues[entry.rank], entry.place, key=place_of) >= slot.units


def next_in_line(slot: Slot, rank: int) -> Entry | None:
    """The entry that waited only for a unit, after another entry has left; `None` if there is none."""
    queue = slot.queues[rank]
    if len(queue) >= slot.units:
        entry = queue[slot.units - 1]
        if not entry.granted and entry.blocker is None and entry.pending < 0:
            return entry
    return None


def give_unit(entry: Entry) -> None:
    """Move an entry that was just granted to the place of the first free unit."""
    slot = entry.slot
    queue, units = slot.queues[entry.rank], slot.units
    del queue[bisect_left(queue, entry.place, key=place_of)]
    first, last = 0, slot.granted[entry.rank] - 1
    while first < last:  # units before the first free one are taken without a gap
        middle = (first + last) // 2
        if queue[middle].place > place_of_unit(middle, units):
            last = middle
        else:
            first = middle + 1
    entry.place, entry.room = place_of_unit(first, units), WHOLE
    queue.insert(first, entry)
