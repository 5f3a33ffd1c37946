"""The tree in which the lock table keeps its entries: slots, entries, and their owners.

Plain data with the few questions that need nothing but the data. What may happen to it is said in
`locks.core.server.table`; who is told of it, in `locks.core.server.notifier`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from fractions import Fraction

from locks.model import AgentId, LockId, Mode, Place, RequestRecord

__all__ = [
    "WHOLE",
    "Entry",
    "EntryOwner",
    "Slot",
    "counts_against",
    "first_waiting_for",
    "last_ahead",
    "order_of",
    "place_of",
    "version_of",
]

WHOLE = Fraction(1)


class Slot:
    """One lock id in the tree, with the entries on it."""

    __slots__ = (
        "below",
        "children",
        "counting",
        "granted_reads",
        "granted_write",
        "lock_id",
        "parent",
        "reads",
        "writes",
        "writes_below",
    )

    def __init__(self, lock_id: LockId, parent: Slot | None) -> None:
        self.lock_id = lock_id
        self.parent = parent
        self.children: dict[Hashable, Slot] = {}
        self.writes: list[Entry] = []
        self.reads: list[Entry] = []
        self.granted_write: Entry | None = None
        self.granted_reads: dict[Entry, None] = {}
        self.below = 0
        self.writes_below = 0
        self.counting: dict[Entry, None] = {}

    def waiting(self, writes_only: bool = False) -> int:
        """How many entries on this very id wait."""
        writes = len(self.writes) - (self.granted_write is not None)
        return writes if writes_only else writes + len(self.reads) - len(self.granted_reads)

    def entries(self) -> Iterator[Entry]:
        """The entries on this very id, in no particular order."""
        yield from self.writes
        yield from self.reads

    def path(self) -> Iterator[Slot]:
        """This slot and those above it, upwards."""
        slot: Slot | None = self
        while slot is not None:
            yield slot
            slot = slot.parent

    def subtree(self, writes_only: bool = False) -> Iterator[Slot]:
        """The slots below this one that have entries there or further below."""
        if self.writes_below if writes_only else self.below:
            for child in self.children.values():
                yield child
                yield from child.subtree(writes_only)


class EntryOwner:
    """An agent as its requests' owner.

    Attributes:
        id: The agent.
        client: Name of its client.
        entries: Its entries by slot; at most a read and a write on each.
        total: How many entries that are.
        waiting: How many of them wait.
        requests_elsewhere: Whether it said that it has requests at other nodes.
        waits_elsewhere: Whether it said that it waits there.
        turned: Version at which it last began or ceased to wait.
        waited: Whether it waited when the notifier last looked.
    """

    __slots__ = (
        "client",
        "entries",
        "id",
        "requests_elsewhere",
        "total",
        "turned",
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
        self.turned = -1
        self.waited = False

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
        if slot.below <= self.total:
            for below in slot.subtree():
                yield from self.entries.get(below, ())
        else:
            depth = len(slot.lock_id)
            for other, entries in self.entries.items():
                if len(other.lock_id) > depth and other.lock_id[:depth] == slot.lock_id:
                    yield from entries


class Entry:
    """One request in the table.

    `candidate`, `exit`, `synced` and `told` belong to `locks.core.server.notifier`. `room` is the distance
    ahead of its place in which nobody stands but those who were put directly ahead of it.
    """

    __slots__ = (
        "blocker",
        "blocking",
        "gone",
        "granted",
        "notified",
        "number",
        "owner",
        "pending",
        "place",
        "room",
        "since",
        "slot",
        "version",
        "write",
    )

    def __init__(self, number: int, owner: EntryOwner, slot: Slot, write: bool) -> None:
        self.number = number
        self.owner = owner
        self.slot = slot
        self.write = write
        self.place: Place = 0
        self.room = WHOLE
        self.since = number
        self.version = number
        self.granted = False
        self.gone = False
        self.blocker: Entry | None = None
        self.blocking: dict[Entry, None] | None = None
        self.pending = -1
        self.notified: dict[EntryOwner, int] | None = None

    @property
    def mode(self) -> Mode:
        """The mode as users write it."""
        return "write" if self.write else "read"

    def record(self, node: str) -> RequestRecord:
        """What is to be told of it at this moment."""
        owner = self.owner
        waiting = not (self.granted or self.gone)
        return RequestRecord(
            node,
            self.number,
            owner.id,
            owner.client,
            self.slot.lock_id,
            "write" if self.write else "read",
            "gone" if self.gone else "granted" if self.granted else "waiting",
            self.place,
            self.since,
            waiting or owner.waits,
            self.version if self.version > owner.turned else owner.turned,
        )


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


def first_waiting_for(owner: EntryOwner, slot: Slot, write: bool) -> Entry | None:
    """The first entry that waits for `owner` and conflicts with a new one of it on `slot`."""
    first: Entry | None = None
    slots = list(slot.path())
    if slot.below if write else slot.writes_below:
        slots += slot.subtree(writes_only=not write)
    for other in slots:
        if not other.waiting(writes_only=not write):
            continue
        if next(owner.around(other), None) is None:
            continue
        for w in other.entries() if write else other.writes:
            if w.granted or w.owner is owner or (first and first.place <= w.place):
                continue
            # Not as a list: the first own entry mostly decides, and there may be thousands.
            if any(
                (w.write or own.write) and (own.granted or own.place < w.place)
                for own in owner.around(other)
            ):
                first = w
    return first


def counts_against(waiter: Entry, entry: Entry) -> bool:
    """Whether an entry below the waiting `waiter`'s slot stands against it."""
    return (
        (waiter.write or entry.write)
        and entry.owner is not waiter.owner
        and (entry.granted or entry.place < waiter.place)
    )
