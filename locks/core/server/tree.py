"""The tree in which the lock table keeps its entries: slots, entries, and their owners.

Plain data with the few questions that need nothing but the data. What may happen to it is said in
`locks.core.server.table`; which agents are notified of it, in `locks.core.server.notifier`.

A slot has a queue for each mode, found by the mode's *rank*: the strongest has rank 0. An entry knows
the ranks of the modes that conflict with its own (`rivals`), so a question about conflicts goes
through these queues alone.
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
    "EntryOwner",
    "Marks",
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
# The rivals of a mode that exclude nothing that it does not exclude itself.
COVERED_RIVALS: Final[dict[Mode, Ranks]] = {
    mode: tuple([_RANK[rival] for rival in RIVALS[mode] if mode in COVERING[rival]])
    for mode in MODES
}
_NO_LIST: Final[list[Any]] = []  # stand for what nothing was put in yet; nothing is put into them
_NO_ENTRIES: Final[dict[Any, None]] = {}
_NO_CHILDREN: Final[dict[Any, Any]] = {}
_NO_LISTS: Final = [_NO_LIST] * len(MODES)
_ZEROS: Final = [0] * len(MODES)


class Slot:
    """One lock id in the tree, with the entries on it.

    Attributes:
        lock_id: The id.
        parent: The slot of the id that is one element shorter.
        children: Those of the ids that are one element longer.
        queues: By rank the entries in the order of their places; empty if there is no entry.
        granted: By rank how many of them are granted.
        below: By rank how many entries there are below.
        counting: The entries here that wait for what is below.
        marks: The entries here and below that matter to searches for cycles; this belongs to
            `locks.core.server.marks`.
        units: How many entries may be granted at once if the id is a counted one (`locks.core.server.units`);
            0 otherwise.
    """

    __slots__ = (
        "below",
        "children",
        "counting",
        "granted",
        "lock_id",
        "marks",
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
        self.marks: Marks | None = None
        self.units = 0
        if parent is not None:
            if parent.children is _NO_CHILDREN:
                parent.children = {}
                parent.below = _ZEROS.copy()
            parent.children[lock_id[-1]] = self

    def open(self) -> None:
        """Make room for entries."""
        self.queues = _NO_LISTS.copy()
        self.granted = _ZEROS.copy()

    def close(self) -> None:
        """There is no entry any more."""
        self.queues = self.granted = _NO_LIST

    def waiting(self, ranks: Ranks = _ALL) -> int:
        """How many entries of these ranks on this very id wait."""
        count = 0
        if self.queues:
            for rank in ranks:
                count += len(self.queues[rank]) - self.granted[rank]
        return count

    def entries(self) -> Iterator[Entry]:
        """The entries on this very id, in no particular order."""
        for queue in self.queues:
            yield from queue

    def path(self) -> Iterator[Slot]:
        """This slot and those above it, upwards."""
        slot: Slot | None = self
        while slot is not None:
            yield slot
            slot = slot.parent

    def subtree(self, ranks: Ranks = _ALL) -> Iterator[Slot]:
        """The slots below this one that have entries of these ranks there or further below."""
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


class Marks:
    """The requests of one slot that matter to searches for cycles, and where there are some below it.

    Which these are, and of which kinds, is said in `locks.core.server.marks`.

    Attributes:
        lists: Those of a kind and a rank are `lists[kind + rank]`.
        strong: How many are here that are `HELD` or `AHEAD`.
        plain: How many are `PLAIN`.
        strong_below: The slots directly below, where or below which some are `HELD` or `AHEAD`.
        plain_below: Likewise for `PLAIN`.
    """

    __slots__ = ("lists", "plain", "plain_below", "strong", "strong_below")

    def __init__(self) -> None:
        self.lists: list[list[Entry]] = [[] for _ in range(3 * len(MODES))]
        self.strong = 0
        self.plain = 0
        self.strong_below: dict[Slot, None] = {}
        self.plain_below: dict[Slot, None] = {}


class EntryOwner:
    """An agent as its requests' owner.

    Attributes:
        id: The agent.
        client: Name of its client.
        entries: Its entries by slot; at most one of each mode on each.
        total: How many entries that are.
        waiting: How many of them wait; spare ones do not.
        requests_elsewhere: Whether it said that it has requests at other nodes.
        waits_elsewhere: Whether it said that it waits there.
        yielded: How many of its entries are.
        turned: Version at which it last began or ceased to wait.
        waited: Whether it waited when the notifier last looked.
        single: Whether it waited with one request only when the notifier last looked.
        waiters: The entries with which it waited then.
    """

    __slots__ = (
        "client",
        "entries",
        "id",
        "requests_elsewhere",
        "single",
        "total",
        "turned",
        "waited",
        "waiters",
        "waiting",
        "waits_elsewhere",
        "yielded",
    )

    def __init__(self, agent: AgentId, client: str) -> None:
        self.id = agent
        self.client = client
        self.entries: dict[Slot, list[Entry]] = {}
        self.total = 0
        self.waiting = 0
        self.requests_elsewhere = False
        self.waits_elsewhere = False
        self.yielded = 0
        self.turned = -1
        self.waited = False
        self.single = False
        self.waiters: dict[Entry, None] = _NO_ENTRIES

    @property
    def waits(self) -> bool:
        """Whether it waits for anything anywhere, as far as is known here."""
        return self.waiting > 0 or self.waits_elsewhere

    def all(self) -> Iterator[Entry]:
        """All its entries."""
        for entries in self.entries.values():
            yield from entries

    def around(self, slot: Slot) -> Iterator[Entry]:
        """Its entries on ids related to that of `slot`, found from the side where there is less."""
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
        owner: Whose it is.
        slot: The slot of its lock id.
        mode: Its mode.
        rank: The rank of its mode.
        rivals: The ranks of the modes that conflict with it.
        place: Its place in the order.
        room: The distance ahead of its place in which nothing stands but what was put directly ahead of
            it.
        since: Version at which it got its present state and place.
        version: Version of its last change.
        granted: Whether it is granted.
        spare: Whether it is not granted, and its agent does not wait for it.
        yielded: Whether it was surrendered, and not granted since.
        gone: Whether it was taken out.
        blocker: The one entry that it waits for, if that is its reason for waiting.
        blocking: The entries whose reason it is.
        pending: For how many entries below it waits, if that is its reason; otherwise -1.
        notified: Which owners were notified of it, each with its `turned` at that time; this belongs to
            `locks.core.server.notifier`.
        mark: How it matters to searches for cycles (`locks.core.server.marks`).
        marked_at: At which place it got its mark.
    """

    __slots__ = (
        "blocker",
        "blocking",
        "gone",
        "granted",
        "mark",
        "marked_at",
        "mode",
        "notified",
        "number",
        "owner",
        "pending",
        "place",
        "rank",
        "rivals",
        "room",
        "since",
        "slot",
        "spare",
        "version",
        "yielded",
    )

    def __init__(self, number: int, owner: EntryOwner, slot: Slot, mode: Mode) -> None:
        self.number = number
        self.owner = owner
        self.slot = slot
        self.mode: Mode = mode
        self.rank, self.rivals = _RANKED[mode]
        self.place: Place = 0
        self.room = WHOLE
        self.since = number
        self.version = number
        self.granted = False
        self.spare = False
        self.yielded = False
        self.gone = False
        self.blocker: Entry | None = None
        self.blocking: dict[Entry, None] | None = None
        self.pending = -1
        self.notified: dict[EntryOwner, int] | None = None
        self.mark = -1
        self.marked_at: Place = 0

    @property
    def waits(self) -> bool:
        """Whether its agent waits for it."""
        return not (self.granted or self.spare or self.gone)

    @property
    def precedes(self) -> bool:
        """Whether it is spare, and is to be granted before all that wait.

        Not if it was surrendered in a deadlock that may go on: then it would undo that.
        """
        return self.spare and not (self.yielded and self.owner.waits)

    def record(self, node: str) -> RequestRecord:
        """How it is at this moment."""
        owner = self.owner
        waiting = not (self.granted or self.spare or self.gone)
        state: State = "waiting"
        if not waiting:
            state = "gone" if self.gone else "granted" if self.granted else "spare"
        return RequestRecord(
            node,
            self.number,
            owner.id,
            owner.client,
            self.slot.lock_id,
            self.mode,
            state,
            self.place,
            self.since,
            waiting or owner.waiting > 0 or owner.waits_elsewhere,
            self.version if self.version > owner.turned else owner.turned,
        )

    def contender(self) -> Contender:
        """What users see of it."""
        owner = self.owner
        return Contender(
            owner.id,
            owner.client,
            self.slot.lock_id,
            self.mode,
            self.granted,
            self.since,
            self.number,
            self.place,
        )


def rivals_of(mode: Mode) -> Ranks:
    """The ranks of the modes that conflict with a mode."""
    return _RIVALS[mode]


def place_of(entry: Entry) -> Place:
    """Sort key: the place."""
    return entry.place


def order_of(entry: Entry) -> tuple[Place, int]:
    """Sort key: the place; of those that stand together, the one that covers the other first."""
    return (entry.place, entry.number)


def version_of(entry: Entry) -> int:
    """Sort key: the version of the last change."""
    return entry.version


def last_ahead(queue: list[Entry], place: Place, owner: EntryOwner | None) -> Entry | None:
    """The last entry of `queue` that stands ahead of `place` and is not by `owner`."""
    i = len(queue)
    if i and queue[-1].place >= place:
        i = bisect_left(queue, place, key=place_of) if queue[0].place < place else 0
    while i:
        i -= 1
        if queue[i].owner is not owner:
            return queue[i]
    return None


def first_granted(queue: list[Entry], count: int, owner: EntryOwner) -> Entry | None:
    """The first of the `count` granted entries of `queue` that is not by `owner`."""
    for entry in queue:
        if entry.granted:
            if entry.owner is not owner:
                return entry
            count -= 1
            if not count:  # it stands mostly at the front, and thousands may wait behind it
                return None
    return None


def covering(owner: EntryOwner, slot: Slot, mode: Mode) -> list[Entry]:
    """The owner's entries that cover a request on `slot`; those on the slot itself come first."""
    modes = COVERING[mode]
    found: list[Entry] = []
    above: Slot | None = slot
    while above is not None:
        for own in owner.entries.get(above, ()):
            if own.mode in modes:
                found.append(own)
        above = above.parent
    return found


def first_waiting_for(owner: EntryOwner, slot: Slot, mode: Mode) -> Entry | None:
    """The first entry that waits for `owner` and conflicts with a new one of it on `slot`."""
    rivals = _RIVALS[mode]
    first: Entry | None = None
    for other in (*slot.path(), *slot.subtree(rivals)):
        if other.waiting(rivals) and next(owner.around(other), None) is not None:
            for rank in rivals:
                for waiter in other.queues[rank]:
                    if first is not None and waiter.place >= first.place:
                        break
                    if not waiter.granted and _waits_for(waiter, owner):
                        first = waiter
    return first


def _waits_for(waiter: Entry, owner: EntryOwner) -> bool:
    """Whether a waiting entry waits for an entry of `owner`."""
    if waiter.owner is owner:
        return False
    # Not as a list: the first own entry mostly decides, and there may be thousands.
    return any(counts_against(waiter, own) for own in owner.around(waiter.slot))


def counts_against(waiter: Entry, entry: Entry) -> bool:
    """Whether an entry on an id related to that of the waiting `waiter` stands against it."""
    return (
        entry.rank in waiter.rivals
        and entry.owner is not waiter.owner
        and (entry.granted or entry.place < waiter.place)
    )
