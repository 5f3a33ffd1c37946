"""The tree in which the lock table keeps its entries: slots, entries, and their requesters.

This is plain data, with a few queries that need nothing else. `locks.core.server.table` changes it;
`locks.core.server.notifier` decides which agents are notified of it.

A slot has a queue for each mode, at the index of the mode's *rank*; the strongest mode has rank 0.
An entry has the ranks of the modes that conflict with its own (`rivals`), so a query for conflicts
goes through these queues only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from fractions import Fraction
from typing import Any, Final

from locks.model import (
    COVERING,
    MODES,
    RIVALS,
    AgentId,
    Contender,
    LockId,
    Mode,
    Place,
    RequestRecord,
    State,
)

__all__ = [
    "COVERED_RIVALS",
    "WHOLE",
    "Entry",
    "Requester",
    "Slot",
    "counts_against",
    "covering",
    "first_granted",
    "first_waiting_for",
    "last_ahead",
    "order_of",
    "place_of",
    "rivals_of",
    "version_of",
]

Ranks = tuple[int, ...]

WHOLE: Final = Fraction(1)

_RANK: Final[dict[Mode, int]] = {mode: rank for rank, mode in enumerate(MODES)}
_ALL: Final[Ranks] = tuple(_RANK.values())
_RIVALS: Final[dict[Mode, Ranks]] = {
    mode: tuple([_RANK[rival] for rival in RIVALS[mode]]) for mode in MODES
}
_RANKED: Final = {mode: (_RANK[mode], _RIVALS[mode]) for mode in MODES}
# The rivals of a mode that exclude no mode that it does not exclude itself.
COVERED_RIVALS: Final[dict[Mode, Ranks]] = {
    mode: tuple([_RANK[rival] for rival in RIVALS[mode] if mode in COVERING[rival]])
    for mode in MODES
}
_NO_LIST: Final[list[Any]] = []  # shared empty containers; replaced before anything is put in
_NO_ENTRIES: Final[dict[Any, None]] = {}
_NO_CHILDREN: Final[dict[Any, Any]] = {}
_NO_LISTS: Final = [_NO_LIST] * len(MODES)
_ZEROS: Final = [0] * len(MODES)


class Slot:
    """One lock id in the tree, with the entries on it.

    Attributes:
        lock_id: The id.
        parent: The slot of the id that is one element shorter.
        children: The slots of the ids that are one element longer, by that element.
        queues: For each rank, the entries in the order of their places; empty if there is no entry.
        granted: For each rank, how many of them are granted.
        below: For each rank, how many entries there are below.
        counting: The entries here that wait for entries below.
        units: For a counted id, how many entries may be granted at once
            (`locks.core.server.units`); 0 otherwise.
    """

    __slots__ = (
        "below",
        "children",
        "counting",
        "granted",
        "lock_id",
        "parent",
        "queues",
        "units",
    )

    def __init__(self, lock_id: LockId, parent: Slot | None) -> None:
        self.lock_id = lock_id
        self.parent = parent
        self.children: dict[Hashable, Slot] = _NO_CHILDREN
        self.queues: list[list[Entry]] = _NO_LIST
        self.granted: list[int] = _NO_LIST
        self.below = _ZEROS
        self.counting: dict[Entry, None] = _NO_ENTRIES
        self.units = 0
        if parent is not None:
            if parent.children is _NO_CHILDREN:
                parent.children = {}
                parent.below = _ZEROS.copy()
            parent.children[lock_id[-1]] = self

    def open(self) -> None:
        """Make the queues, for the first entry."""
        self.queues = _NO_LISTS.copy()
        self.granted = _ZEROS.copy()

    def close(self) -> None:
        """Drop the queues, after the last entry."""
        self.queues = self.granted = _NO_LIST

    def waiting(self, ranks: Ranks = _ALL) -> int:
        """How many entries of these ranks wait on exactly this id."""
        count = 0
        if self.queues:
            for rank in ranks:
                count += len(self.queues[rank]) - self.granted[rank]
        return count

    def entries(self) -> Iterator[Entry]:
        """The entries on exactly this id, in no particular order."""
        for queue in self.queues:
            yield from queue

    def path(self) -> Iterator[Slot]:
        """This slot and those above it, upwards."""
        slot: Slot | None = self
        while slot is not None:
            yield slot
            slot = slot.parent

    def subtree(self, ranks: Ranks = _ALL) -> Iterator[Slot]:
        """The slots below this one with entries of these ranks on them or below them."""
        if not self._has_below(ranks):
            return
        levels = [iter(self.children.values())]
        while levels:
            for child in levels[-1]:
                yield child
                if child._has_below(ranks):
                    levels.append(iter(child.children.values()))
                    break
            else:
                levels.pop()

    def _has_below(self, ranks: Ranks) -> bool:
        return any(map(self.below.__getitem__, ranks))


class Requester:
    """An agent as the requester of its requests.

    Attributes:
        id: The agent.
        client: Name of its client.
        entries: Its entries by slot; at most one of each mode on each slot.
        total: The number of its entries.
        waiting: How many of them wait; spare entries do not.
        requests_elsewhere: Whether it reported requests at other nodes.
        waits_elsewhere: Whether it reported that it waits at other nodes.
        changed_at: The version at which it last began or stopped waiting.
        waited: Whether it waited when the notifier last looked.
    """

    __slots__ = (
        "changed_at",
        "client",
        "entries",
        "id",
        "requests_elsewhere",
        "total",
        "waited",
        "waiting",
        "waits_elsewhere",
    )

    def __init__(self, agent: AgentId, client: str) -> None:
        self.id = agent
        self.client = client
        self.entries: dict[Slot, list[Entry]] = {}
        self.total = 0
        self.waiting = 0
        self.requests_elsewhere = False
        self.waits_elsewhere = False
        self.changed_at = -1
        self.waited = False

    @property
    def waits(self) -> bool:
        """Whether it waits at any node, as far as known here."""
        return self.waiting > 0 or self.waits_elsewhere

    def all(self) -> Iterator[Entry]:
        """All its entries."""
        for entries in self.entries.values():
            yield from entries

    def waiters(self) -> list[Entry]:
        """The entries with which it waits, in the order of their numbers."""
        found: list[Entry] = []
        for entries in reversed(self.entries.values()):  # the newest are usually the ones that wait
            if len(found) == self.waiting:
                break
            found += [entry for entry in entries if entry.waits]
        if len(found) > 1:
            found.sort(key=_number_of)
        return found

    def around(self, slot: Slot) -> Iterator[Entry]:
        """Its entries on ids related to that of `slot`; goes through the smaller set."""
        for above in slot.path():
            yield from self.entries.get(above, ())
        if sum(slot.below) <= self.total:
            for below in slot.subtree():
                yield from self.entries.get(below, ())
        else:
            depth = len(slot.lock_id)
            for other, entries in self.entries.items():
                if len(other.lock_id) > depth and other.lock_id[:depth] == slot.lock_id:
                    yield from entries


class Entry:
    """One request in the table.

    Attributes:
        number: Its number on this node.
        requester: Its requester.
        slot: The slot of its lock id.
        mode: Its mode.
        rank: The rank of its mode.
        rivals: The ranks of the modes that conflict with it.
        place: Its place in the order.
        room: The distance ahead of its place that contains only entries that were put directly
            ahead of it.
        since: The version at which it got its present state and place.
        version: The version of its last change.
        granted: Whether it is granted.
        spare: Whether it is not granted, and its agent does not wait for it.
        gone: Whether it was taken out.
        blocker: The one entry that it waits for, if that is its reason to wait.
        blocking: The entries of which this one is the `blocker`.
        pending: How many entries below it waits for, if that is its reason to wait; otherwise -1.
        notified: The requesters that were notified of it, each with its `changed_at` at that time; this
            belongs to `locks.core.server.notifier`.
    """

    __slots__ = (
        "blocker",
        "blocking",
        "gone",
        "granted",
        "mode",
        "notified",
        "number",
        "pending",
        "place",
        "rank",
        "requester",
        "rivals",
        "room",
        "since",
        "slot",
        "spare",
        "version",
    )

    def __init__(self, number: int, requester: Requester, slot: Slot, mode: Mode) -> None:
        self.number = number
        self.requester = requester
        self.slot = slot
        self.mode: Mode = mode
        self.rank, self.rivals = _RANKED[mode]
        self.place: Place = 0
        self.room = WHOLE
        self.since = number
        self.version = number
        self.granted = False
        self.spare = False
        self.gone = False
        self.blocker: Entry | None = None
        self.blocking: dict[Entry, None] | None = None
        self.pending = -1
        self.notified: dict[Requester, int] | None = None

    @property
    def waits(self) -> bool:
        """Whether its agent waits for it."""
        return not (self.granted or self.spare or self.gone)

    def record(self, node: str) -> RequestRecord:
        """Its present state as a record."""
        requester = self.requester
        waiting = not (self.granted or self.spare or self.gone)
        state: State = "waiting"
        if not waiting:
            state = "gone" if self.gone else "granted" if self.granted else "spare"
        return RequestRecord(
            node,
            self.number,
            requester.id,
            requester.client,
            self.slot.lock_id,
            self.mode,
            state,
            self.place,
            self.since,
            waiting or requester.waiting > 0 or requester.waits_elsewhere,
            self.version if self.version > requester.changed_at else requester.changed_at,
        )

    def contender(self) -> Contender:
        """The entry as users see it."""
        requester = self.requester
        return Contender(
            requester.id,
            requester.client,
            self.slot.lock_id,
            self.mode,
            self.granted,
            self.since,
            self.number,
            self.place,
        )


def _number_of(entry: Entry) -> int:
    return entry.number


def rivals_of(mode: Mode) -> Ranks:
    """The ranks of the modes that conflict with a mode."""
    return _RIVALS[mode]


def place_of(entry: Entry) -> Place:
    """Sort key: the place."""
    return entry.place


def order_of(entry: Entry) -> tuple[Place, int]:
    """Sort key: the place; at the same place, a covering entry comes before the covered one."""
    return (entry.place, entry.number)


def version_of(entry: Entry) -> int:
    """Sort key: the version of the last change."""
    return entry.version


def last_ahead(queue: list[Entry], place: Place, requester: Requester | None) -> Entry | None:
    """The last entry of `queue` that is ahead of `place` and not by `requester`."""
    i = len(queue)
    if i and queue[-1].place >= place:
        i = bisect_left(queue, place, key=place_of) if queue[0].place < place else 0
    while i:
        i -= 1
        if queue[i].requester is not requester:
            return queue[i]
    return None


def first_granted(queue: list[Entry], count: int, requester: Requester) -> Entry | None:
    """The first of the `count` granted entries of `queue` that is not by `requester`."""
    for entry in queue:
        if entry.granted:
            if entry.requester is not requester:
                return entry
            count -= 1
            if not count:  # stop: thousands may wait behind it
                return None
    return None


def covering(requester: Requester, slot: Slot, mode: Mode) -> list[Entry]:
    """The requester's entries that cover a request on `slot`; entries on the slot itself come first."""
    modes = COVERING[mode]
    found: list[Entry] = []
    above: Slot | None = slot
    while above is not None:
        for own in requester.entries.get(above, ()):
            if own.mode in modes:
                found.append(own)
        above = above.parent
    return found


def first_waiting_for(requester: Requester, slot: Slot, mode: Mode) -> Entry | None:
    """The first entry that waits for `requester` and conflicts with a new entry of it on `slot`."""
    rivals = _RIVALS[mode]
    first: Entry | None = None
    for other in (*slot.path(), *slot.subtree(rivals)):
        if other.waiting(rivals) and next(requester.around(other), None) is not None:
            for rank in rivals:
                for waiter in other.queues[rank]:
                    if first is not None and waiter.place >= first.place:
                        break
                    if not waiter.granted and _waits_for(waiter, requester):
                        first = waiter
    return first


def _waits_for(waiter: Entry, requester: Requester) -> bool:
    """Whether a waiting entry waits for an entry of `requester`."""
    if waiter.requester is requester:
        return False
    # A generator, not a list: the first entry usually decides, and there may be thousands.
    return any(counts_against(waiter, own) for own in requester.around(waiter.slot))


def counts_against(waiter: Entry, entry: Entry) -> bool:
    """Whether `waiter`, which waits on a related id, waits for `entry`."""
    return (
        entry.rank in waiter.rivals
        and entry.requester is not waiter.requester
        and (entry.granted or entry.place < waiter.place)
    )
