"""The lock table: one rule, and everything derived from it.

    Two requests *conflict* when they are by different agents, their ids are related (one is a
    prefix of the other), and their modes conflict: not both are reads. A request is *granted* when
    no conflicting request is granted or ahead of it. A new request is put at the end, except:
    (cover) If an earlier request of the same agent covers it (same id or above, same or stronger
    mode), it shares the place of that request.
    (conversion) If other agents already wait for its agent, it is put directly ahead of the first
    conflicting request that waits for the agent. So an upgrade never waits for an agent that waits
    for its own.

A granted request stays granted until it is released or surrendered, or its agent is removed.

A *counted* id (`locks.lock_ids.counted`) allows a fixed number of grants at once. There, a request
is granted when fewer requests than that number are granted or ahead of it on the same id, and
nothing else conflicts.

How is it fast? The ids form a tree of `Slot`s, each with the requests on exactly that id. A waiting
entry keeps just one reason for waiting. This is one conflicting entry on its own slot or above
(`blocker`), if possible the one directly ahead in the queue. So handing a lock on looks at one
waiting entry, not at all of them. If there is no such entry, the reason is the number of
conflicting entries below its slot (`pending`), which counts down as these leave. When its reason is
gone, an entry looks for another one, and is granted if there is none. So a request, release or
grant costs time in the depth of the id and in the number of requests that really conflict. On a
counted id, the holders of units are at the front, so a request's index in the queue says whether it
must wait. When one leaves, only the request that moves to the last index with a unit is considered.

Places are integers in rising order. A conversion gets a fraction directly ahead of the entry that
it must precede, so it overtakes no other. A *spare* request is by an agent that holds the lock by
the grants of other nodes. No other agent gets the lock before that agent releases it. So a spare
request is put ahead of all waiting requests that conflict with it. A request that is covered by a
granted one is granted with it, even if a conversion was put ahead of both meanwhile. Versions come
from one counter. Its start is an argument, so that versions keep rising across restarts.

Rejected: the original's queue for each id with copies of the parents' entries ("indirect entries"),
because copies can disagree; a count of all blockers for each waiting entry, because each hand-over
would cost time in the length of the queue.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain

from locks.core.server.tree import (
    WHOLE,
    Entry,
    Requester,
    Slot,
    counts_against,
    covering,
    first_granted,
    first_waiting_for,
    last_ahead,
    order_of,
    place_of,
    rivals_of,
    version_of,
)
from locks.core.server.units import give_unit, is_full_for, next_in_line
from locks.model import COVERING, HELD_UP, RIVALS, AgentId, LockId, Mode, units_of
from locks.ranges import PLACE_BITS, Number, Value

__all__ = ["COUNTERS", "LockTable", "TableStatistics"]

ROOM_BITS = PLACE_BITS - 160  # leaves room for two more numbers of 64 bits


class TableStatistics(Value, frozen=True):
    """Counters of a lock table since it was made, and its size now.

    Entries that stand for hold-ups (`locks.core.agent.hold_ups`) are not in the size.

    Attributes:
        requests: Requests taken in.
        grants: Grants, those after a surrender included.
        waits: Requests that were not granted at once.
        surrenders: Surrenders carried out.
        refused_surrenders: Surrenders whose edge no longer existed.
        entries: Requests in the table now.
        waiting: Of these, how many wait.
        agents: Agents with requests in the table now.
        version: The last version assigned.
    """

    requests: Number
    grants: Number
    waits: Number
    surrenders: Number
    refused_surrenders: Number
    entries: Number
    waiting: Number
    agents: Number
    version: Number


SIZES = ("entries", "waiting", "agents", "version")
COUNTERS = tuple(f"_{name}" for name in TableStatistics.__struct_fields__ if name not in SIZES)
"""The attributes of a `LockTable` that count, one for each field of its statistics that is no size."""


class LockTable:
    """The lock table of one node.

    Every method that changes something returns the changed entries, each once, in the order of
    their changes. Ids and modes are not checked here (`locks.model` does that).

    Args:
        first_version: Where versions start. Must be larger than all versions that an earlier table
            of the same node assigned.

    Attributes:
        counted: The slots of counted ids, by the id that each was made from; there is one at a
            time.
        spares: The spare requests, by lock id.
        root: The slot above all others.
        looked: The entries that have a new reason to wait; the notifier takes them out.
    """

    def __init__(self, first_version: int = 0) -> None:
        self.version = first_version
        self.requesters: dict[AgentId, Requester] = {}
        self.counted: dict[LockId, Slot] = {}
        self.spares: dict[LockId, dict[Entry, None]] = {}
        self.root = Slot((), None)
        self.looked: list[Entry] = []
        self._entries: dict[int, Entry] = {}  # in the order of their numbers
        self.last_place = 0
        self._requests = self._grants = self._waits = self._surrenders = (
            self._refused_surrenders
        ) = 0

    # --- Changes --------------------------------------------------------------------------------

    def raise_to(self, version: int) -> None:
        """Assign only larger versions than this one from now on."""
        self.version = max(self.version, version)

    def pass_over(self, locks: int, version: int) -> None:
        """Count locks that were granted and released elsewhere; the last version that was given there."""
        self.version = version
        self.last_place += locks
        self._requests += locks
        self._grants += locks

    def request(
        self,
        agent: AgentId,
        client: str,
        lock_id: LockId,
        mode: Mode,
        spare: bool = False,
    ) -> list[Entry]:
        """Request a lock. The first returned entry is the request itself.

        If the agent already has an entry on this id in the same or a stronger mode, that entry is
        returned.
        """
        requester = self.requesters.get(agent)
        if requester is None:
            requester = self.requesters[agent] = Requester(agent, client)
        slot = self._grow(lock_id)
        covers: list[Entry] = []
        ahead_of: Entry | None = None
        if requester.entries:
            covers = covering(requester, slot, mode)
            if not covers:
                ahead_of = first_waiting_for(requester, slot, mode)
            elif covers[0].slot is slot:
                return [covers[0]]
        if spare and not covers:
            ahead_of = self._first_waiting(requester, slot, mode)
        entry = self._enter(requester, slot, mode)
        if spare:
            self._set_spare(entry, spare)
        if covers:
            first = min(covers, key=place_of)
            entry.place, entry.room = first.place, first.room
        else:
            self._place(entry, ahead_of)
        first_here = not slot.queues
        counted = self._stand(entry)
        if covers and any(each.granted for each in covers):
            self._grant(entry)
        else:
            self._look(entry, first_here)
        if counted:
            self._count_in(entry)
        if not (entry.granted or spare):
            self._waits += 1
        return [entry]

    def release(self, agent: AgentId, lock_id: LockId, mode: Mode | None = None) -> list[Entry]:
        """Take out the agent's entries on exactly this id (in one mode, if one is given)."""
        own = [e for e in self.own(agent, lock_id) if mode is None or e.mode == mode]
        return self._take_out(own[0].requester, own) if own else []

    def remove(self, agent: AgentId) -> list[Entry]:
        """Take out all entries of the agent."""
        requester = self.requesters.get(agent)
        if requester is None:
            return []
        if not requester.entries:
            del self.requesters[agent]
            return []
        return self._take_out(requester, list(chain.from_iterable(requester.entries.values())))

    def surrender(
        self,
        agent: AgentId,
        lock_id: LockId,
        waiter: tuple[int, int] | None = None,
        holder: tuple[int, int] | None = None,
    ) -> list[Entry]:
        """Give up all entries of the agent related to `lock_id`: they move to the end.

        Args:
            agent: The agent that surrenders.
            lock_id: The id that it gives up.
            waiter: Number and `since` of the waiting request of the edge, or `None`.
            holder: Number and `since` of the agent's request that it waits for, or `None`.

        Returns:
            The changed entries. If the edge from `waiter` to `holder` no longer exists, nothing is
            changed, and the list is empty.
        """
        requester = self.requesters.get(agent)
        if requester is None or not self.edge_stands(requester, waiter, holder):
            self._refused_surrenders += 1
            return []
        given_up = sorted(self.own_related(requester, lock_id), key=order_of)
        if not given_up:
            self._refused_surrenders += 1
            return []
        self._surrenders += 1
        candidates: dict[Entry, None] = {}
        for entry in given_up:
            self._leave(entry, candidates)
        for entry in given_up:
            self.version += 1
            entry.since = entry.version = self.version
            self._place(entry)
            self._stand(entry)
            candidates.pop(entry, None)
        changed: list[Entry] = []
        self._consider(candidates, changed)
        for entry in given_up:
            self._look(entry)
        return sorted(changed + given_up, key=version_of)

    def _set_spare(self, entry: Entry, spare: bool) -> None:
        """Make a waiting entry spare, or undo it: an agent does not wait for its spare entries."""
        entry.spare = spare
        lock_id = entry.slot.lock_id
        if spare:
            entry.requester.waiting -= 1
            self.spares.setdefault(lock_id, {})[entry] = None
        else:
            entry.requester.waiting += 1
            spares = self.spares[lock_id]
            del spares[entry]
            if not spares:
                del self.spares[lock_id]

    # --- Questions ------------------------------------------------------------------------------

    def find(self, lock_id: LockId) -> Slot | None:
        """The slot of an id, or `None` if there are no entries on it or below."""
        slot: Slot | None = self.root
        for element in lock_id:
            slot = slot.children.get(element) if slot is not None else None
        return slot

    def related(self, lock_id: LockId) -> Iterator[Entry]:
        """All entries on the id, above it and below it, in no particular order."""
        slot = self.root
        for element in lock_id:
            child = slot.children.get(element)
            if child is None:
                return
            slot = child
            if slot.lock_id != lock_id:
                yield from slot.entries()
        yield from slot.entries()
        for below in slot.subtree():
            yield from below.entries()

    def own(self, agent: AgentId, lock_id: LockId) -> list[Entry]:
        """The agent's entries on exactly this id."""
        requester = self.requesters.get(agent)
        slot = self.find(lock_id)
        return (
            list(requester.entries.get(slot, ()))
            if requester is not None and slot is not None
            else []
        )

    def own_related(self, requester: Requester, lock_id: LockId) -> list[Entry]:
        """The requester's entries on ids related to `lock_id`."""
        depth = len(lock_id)
        found = []
        for slot, entries in requester.entries.items():
            other = slot.lock_id
            if other[:depth] == lock_id[: len(other)]:
                found += entries
        return found

    def entry(self, number: int) -> Entry | None:
        """The entry with this number, if it is still in the table."""
        return self._entries.get(number)

    def spares_behind(self, entry: Entry) -> list[Entry]:
        """The spare entries that a granted entry blocks."""
        lock_id = entry.slot.lock_id
        behind: list[Entry] = []
        for depth in range(1, len(lock_id) + 1):
            behind += self.spares.get(lock_id[:depth], ())
        if entry.slot.children:
            for below, spares in self.spares.items():
                if len(below) > len(lock_id) and below[: len(lock_id)] == lock_id:
                    behind += spares
        return [
            each
            for each in behind
            if each.rank in entry.rivals and each.requester is not entry.requester
        ]

    def grants_against(self, entry: Entry) -> list[Entry]:
        """The granted entries of other requesters that block an entry."""
        grants: list[Entry] = []
        for slot in (*entry.slot.path(), *entry.slot.subtree(entry.rivals)):
            for rank in entry.rivals if slot.queues else ():
                left = slot.granted[rank]
                for other in slot.queues[rank] if left else ():
                    if other.granted:
                        left -= 1
                        if other.requester is not entry.requester:
                            grants.append(other)
                    if not left:  # they are usually at the front
                        break
        return grants

    def must_wait(self, agent: AgentId, lock_id: LockId, mode: Mode) -> bool:
        """Whether a new request of an agent would not be granted at once.

        An upgrade that would go ahead of waiting requests counts as one that waits for them.
        """
        requester = self.requesters.get(agent)
        units = units_of(lock_id)
        taken = 0
        for entry in self.related(lock_id):
            if entry.requester is requester:
                covered = entry.slot.lock_id == lock_id[: len(entry.slot.lock_id)]
                if entry.granted and covered and entry.mode in COVERING[mode]:
                    return False
            elif mode in RIVALS[entry.mode]:
                taken += 1 if units and entry.slot.lock_id == lock_id else max(units, 1)
        return taken >= max(units, 1)

    @property
    def size(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def view(self, lock_id: LockId) -> list[Entry]:
        """All related entries in their order."""
        return sorted(self.related(lock_id), key=order_of)

    def ids(self) -> list[LockId]:
        """All lock ids with entries."""
        return [slot.lock_id for slot in self.root.subtree() if slot.queues]

    def statistics(self) -> TableStatistics:
        """Counters and present size."""
        held_up = self.root.children.get(HELD_UP)
        hidden = () if held_up is None else tuple(held_up.subtree())
        counted: dict[str, int] = {name[1:]: getattr(self, name) for name in COUNTERS}
        sizes = (
            len(self._entries) - sum(1 for slot in hidden for _ in slot.entries()),
            sum(requester.waiting for requester in self.requesters.values())
            - sum(slot.waiting() for slot in hidden),
            len(self.requesters),
            self.version,
        )
        return TableStatistics(**counted, **dict(zip(SIZES, sizes, strict=True)))

    # --- Place ----------------------------------------------------------------------------------

    def _grow(self, lock_id: LockId) -> Slot:
        slot = self.root
        for depth, element in enumerate(lock_id, 1):
            child = slot.children.get(element)
            if child is None:
                child = Slot(lock_id[:depth], slot)
                if type(element) is tuple:
                    self._count(child)
            slot = child
        return slot

    def _count(self, slot: Slot) -> None:
        """Set the number of units of a new slot, if its id is counted."""
        slot.units = units_of(slot.lock_id)
        if slot.units:
            self.counted[slot.lock_id[:-1]] = slot

    def _prune(self, slot: Slot) -> None:
        """Take out a slot without entries on it or below, and likewise the slots above it."""
        if not any(slot.queues):
            slot.close()
            if slot.units:
                del self.counted[slot.lock_id[:-1]]
        while slot.parent is not None and not (slot.children or slot.queues):
            parent = slot.parent
            parent.children.pop(slot.lock_id[-1], None)
            slot = parent

    def _first_waiting(self, requester: Requester, slot: Slot, mode: Mode) -> Entry | None:
        """The first waiting entry of another requester that conflicts with a request of `requester` on a slot."""
        first: Entry | None = None
        rivals = rivals_of(mode)
        for other in (*slot.path(), *slot.subtree(rivals)):
            for rank in rivals if other.queues else ():
                for entry in other.queues[rank]:
                    if first is not None and entry.place >= first.place:
                        break
                    if entry.waits and entry.requester is not requester:
                        first = entry
        return first

    def _enter(self, requester: Requester, slot: Slot, mode: Mode) -> Entry:
        """Make a new entry, which has no place yet."""
        self.version += 1
        entry = Entry(self.version, requester, slot, mode)
        self._requests += 1
        self._entries[entry.number] = entry
        requester.entries.setdefault(slot, []).append(entry)
        requester.total += 1
        requester.waiting += 1
        return entry

    def _place(self, entry: Entry, ahead_of: Entry | None = None) -> None:
        """Give an entry its place: at the end, or, if there is room, directly ahead of another."""
        self.last_place += 1
        if ahead_of is None or ahead_of.room.denominator.bit_length() > ROOM_BITS:
            entry.place = self.last_place
            entry.room = WHOLE
        else:
            # Entries put ahead of the same one before are at a distance `room / k` with a smaller
            # `k`.
            k = self.last_place
            entry.place = ahead_of.place - ahead_of.room / k
            entry.room = ahead_of.room / (k * (k - 1))

    def _stand(self, entry: Entry) -> bool:
        """Put an entry into its slot's queue, waiting; return whether entries above count those below."""
        slot = entry.slot
        rank = entry.rank
        if not slot.queues:
            slot.open()
        queue = slot.queues[rank]
        if not queue:
            slot.queues[rank] = [entry]
        elif queue[-1].place > entry.place:
            insort(queue, entry, key=place_of)
        else:
            queue.append(entry)
        counted = False
        above = slot.parent
        while above is not None:
            above.below[rank] += 1
            if above.counting:
                counted = True
            above = above.parent
        return counted

    def _leave(self, entry: Entry, candidates: dict[Entry, None]) -> None:
        """Take an entry out of its slot's queue, with its grant or its reason to wait.

        Args:
            entry: The entry.
            candidates: Collects the entries whose only reason to wait it may have been.
        """
        slot = entry.slot
        rank = entry.rank
        queue = slot.queues[rank]
        if queue[0] is entry:
            del queue[0]
        elif queue[-1] is entry:
            queue.pop()
        else:
            del queue[bisect_left(queue, entry.place, key=place_of)]
        if entry.blocking:
            for watcher in entry.blocking:
                watcher.blocker = None
            candidates.update(entry.blocking)
            entry.blocking = None
        above = slot.parent
        while above is not None:
            above.below[rank] -= 1
            if above.counting:
                for waiter in above.counting:
                    if counts_against(waiter, entry):
                        waiter.pending -= 1
                        if waiter.pending == 0:
                            candidates[waiter] = None
            above = above.parent
        if entry.granted:
            entry.granted = False
            entry.requester.waiting += 1
            slot.granted[rank] -= 1
        else:
            self._stop_waiting(entry)
        if slot.units:
            following = next_in_line(slot, rank)
            if following is not None:
                candidates[following] = None

    def _take_out(self, requester: Requester, entries: list[Entry]) -> list[Entry]:
        candidates: dict[Entry, None] = {}
        for entry in entries:
            self._leave(entry, candidates)
            if entry.spare:
                self._set_spare(entry, False)
            requester.waiting -= 1
            requester.total -= 1
            own = requester.entries[entry.slot]
            own.remove(entry)
            if not own:
                del requester.entries[entry.slot]
            self.version += 1
            entry.version = entry.since = self.version
            entry.gone = True
            del self._entries[entry.number]
        if not requester.entries:
            del self.requesters[requester.id]
        if candidates:
            changed = list(entries)
            self._consider(candidates, changed)
        else:
            changed = entries
        for entry in entries:
            self._prune(entry.slot)
        return changed

    # --- Grant ----------------------------------------------------------------------------------

    def _consider(self, candidates: dict[Entry, None], changed: list[Entry]) -> None:
        """Consider entries that lost their reason to wait, in the order of their places."""
        for entry in sorted(candidates, key=place_of) if len(candidates) > 1 else candidates:
            self._look(entry)
            if entry.granted:
                changed.append(entry)

    def _look(self, entry: Entry, alone: bool = False) -> None:
        """Find another reason for an entry to wait, or grant it.

        Args:
            entry: The entry.
            alone: Whether it is the only entry on its id.
        """
        slot = entry.slot
        if slot.units and is_full_for(entry):
            return  # `next_in_line` finds it later
        blocker = self._blocker_of(entry, slot.parent if alone or slot.units else slot)
        if blocker is not None:
            if blocker.blocking is None:
                blocker.blocking = {}
            blocker.blocking[entry] = None
            entry.blocker = blocker
            self.looked.append(entry)
            if entry.pending >= 0:
                entry.pending = -1
                del slot.counting[entry]
            return
        pending = self._count_below(entry) if slot.children else 0
        if pending:
            entry.pending = pending
            self.looked.append(entry)
            if slot.counting:
                slot.counting[entry] = None
            else:
                slot.counting = {entry: None}
        else:
            self._grant(entry)

    def _blocker_of(self, entry: Entry, slot: Slot | None) -> Entry | None:
        """An entry on an id or above that blocks this one: the one directly ahead, if there is one."""
        requester, place, rivals = entry.requester, entry.place, entry.rivals
        while slot is not None:
            if slot.queues:
                for rank in rivals:
                    queue = slot.queues[rank]
                    if queue and (queue[0] is not entry or slot.granted[rank]):
                        rival = last_ahead(queue, place, requester)
                        if rival is None and slot.granted[rank]:
                            rival = first_granted(queue, slot.granted[rank], requester)
                        if rival is not None:
                            return rival
            slot = slot.parent
        return None

    def _count_below(self, entry: Entry) -> int:
        """How many entries below block a waiting one."""
        rivals = entry.rivals
        count = 0
        for slot in entry.slot.subtree(rivals):
            if slot.queues:
                for rank in rivals:
                    for other in slot.queues[rank]:
                        if counts_against(entry, other):
                            count += 1
        return count

    def _grant(self, entry: Entry) -> None:
        if entry.blocker is not None or entry.pending >= 0:
            self._stop_waiting(entry)
        if entry.version != self.version:  # unless it was made in this step
            self.version += 1
        entry.since = entry.version = self.version
        if entry.spare:
            self._set_spare(entry, False)
        entry.granted = True
        entry.requester.waiting -= 1
        self._grants += 1
        slot = entry.slot
        slot.granted[entry.rank] += 1
        if slot.units:
            give_unit(entry)

    def _stop_waiting(self, entry: Entry) -> None:
        """Drop the entry's reason for waiting."""
        if entry.blocker is not None:
            if entry.blocker.blocking is not None:
                entry.blocker.blocking.pop(entry, None)
            entry.blocker = None
        if entry.pending >= 0:
            entry.pending = -1
            del entry.slot.counting[entry]

    def _count_in(self, entry: Entry) -> None:
        """Add a new entry to the counts of waiting entries above."""
        above = entry.slot.parent
        while above is not None:
            for waiter in above.counting:
                if counts_against(waiter, entry):
                    waiter.pending += 1
            above = above.parent

    def edge_stands(
        self,
        requester: Requester,
        waiter: tuple[int, int] | None,
        holder: tuple[int, int] | None,
    ) -> bool:
        """Whether `waiter` still waits for the requester's `holder`, and both are unchanged.

        Each is given by its number and `since`. If one of them is `None`, the answer is true.
        """
        if waiter is None or holder is None:
            return True
        w, h = self._entries.get(waiter[0]), self._entries.get(holder[0])
        if w is None or h is None or w.since != waiter[1] or h.since != holder[1]:
            return False
        a, b = w.slot.lock_id, h.slot.lock_id
        return (
            not w.granted
            and h.requester is requester
            and w.requester is not requester
            and h.rank in w.rivals
            and a[: len(b)] == b[: len(a)]
            and (h.granted or h.place < w.place)
        )
