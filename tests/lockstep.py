"""The lock table and its oracle in lockstep: each operation on both, all compared after each."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import cast

from locks.core.server.table import LockTable
from locks.core.server.tree import Entry, Slot
from locks.model import MODES, AgentId, LockId, Mode, RequestRecord, blocks, conflict, covers
from tests.oracle import End, Key, Oracle, Wish

NODE = "n@host"


def agent(number: int) -> AgentId:
    """An agent; a larger number is a larger reference."""
    return AgentId(number, NODE, number)


def key(entry: Entry) -> Key:
    """What identifies an entry in table and oracle."""
    return (entry.requester.id, entry.slot.lock_id, entry.mode)


def written(a_key: Key) -> str:
    """A request as it is written in the tests: `1 write a/2`."""
    who, lock_id, mode = a_key
    return f"{who.serial} {mode} {_path(lock_id)}"


def _path(lock_id: LockId) -> str:
    return "/".join(map(str, lock_id))


class Lockstep:
    """Drives both, and fails with an `AssertionError` as soon as they differ.

    Args:
        table: The table to check; a new one if not given.

    Attributes:
        sightings: Every edge that was ever there: its waiter and its holder, as the oracle and as
            the table names them.
    """

    def __init__(self, table: LockTable | None = None) -> None:
        self.table = LockTable(first_version=1000) if table is None else table
        self.oracle = Oracle()
        self.wishes: dict[int, Wish] = {}
        self.turns: dict[Wish, int] = {}
        self.sightings: dict[tuple[End, End], tuple[tuple[int, int], tuple[int, int]]] = {}
        self.edges: list[tuple[End, End]] = []
        self.tokens: dict[LockId, int] = {}
        self.sound = True  # no comparison has failed
        self.counted = {"requests": 0, "grants": 0, "waits": 0, "surrenders": 0, "refused": 0}

    # --- Operations -----------------------------------------------------------------------------

    def request(self, who: AgentId, lock_id: LockId, mode: Mode) -> Entry:
        before = self.table.version
        changed = self.table.request(who, f"client of {who}", lock_id, mode)
        wish = self.oracle.request(who, lock_id, mode)
        entry = changed[0]
        if wish in self.turns:
            assert self.table.version == before, "a repeated request has changed the version"
            known = self.wishes[entry.number]
            if (who, lock_id, mode) in self._keys():
                assert known.mode == mode
            assert (known.agent, known.lock_id) == (who, lock_id)
            assert covers(known.mode, mode)
            assert known.turn == self.turns[known]
            changed = []
        else:
            self.wishes[entry.number] = wish
            self.counted["requests"] += 1
            self.counted["waits"] += not wish.granted
        self._compare(changed, before)
        return entry

    def release(self, who: AgentId, lock_id: LockId, mode: Mode | None = None) -> list[Entry]:
        before = self.table.version
        changed = self.table.release(who, lock_id, mode)
        self.oracle.release(who, lock_id, mode)
        self._compare(changed, before)
        return changed

    def remove(self, who: AgentId) -> list[Entry]:
        before = self.table.version
        changed = self.table.remove(who)
        self.oracle.remove(who)
        self._compare(changed, before)
        return changed

    def surrender(
        self, who: AgentId, lock_id: LockId, edge: tuple[End, End] | None = None
    ) -> list[Entry]:
        """Surrender for one of the `sightings`, or for no edge in particular."""
        before = self.table.version
        changed = self.table.surrender(who, lock_id, *(self.sightings[edge] if edge else ()))
        done = self.oracle.surrender(who, lock_id, *(edge or ()))
        assert done == bool(changed), "one of both has refused the surrender"
        self.counted["surrenders" if done else "refused"] += 1
        self._compare(changed, before)
        return changed

    def play(self, *lines: str) -> list[Entry]:
        """Carry out lines such as `1 write a/2`, `1 end`, `1 surrender a`, `1 release a/2 read`.

        Returns:
            What the last one changed.
        """
        changed: list[Entry] = []
        for line in lines:
            number, verb, *rest = line.split()
            who = agent(int(number))
            lock_id = tuple(rest[0].split("/")) if rest else ()
            if verb in MODES:
                changed = [self.request(who, lock_id, cast(Mode, verb))]
            elif verb == "release":
                changed = self.release(who, lock_id, cast(Mode, rest[1]) if rest[1:] else None)
            elif verb == "surrender":
                changed = self.surrender(who, lock_id)
            else:
                assert verb == "end"
                changed = self.remove(who)
        return changed

    def edge(self, waiter: str, holder: str) -> tuple[End, End]:
        """The present edge between two requests, written as `1 write a/2`."""
        return next(e for e in self.edges if [written(end[0].key) for end in e] == [waiter, holder])

    @property
    def held(self) -> set[str]:
        """What is granted."""
        return {written(key(e)) for e in self.table.view(()) if e.granted}

    @property
    def waiting(self) -> list[str]:
        """What waits, in the order of places."""
        return [written(key(e)) for e in self.table.view(()) if not e.granted]

    @property
    def waits(self) -> set[tuple[int, int]]:
        """Which agent waits for which."""
        return {(w[0].agent.serial, h[0].agent.serial) for w, h in self.edges}

    def run_out(self) -> list[str]:
        """Who waits for nothing ends; of a deadlock the largest yields; nobody waits in the end.

        Returns:
            The surrenders that were needed, such as `2 surrender a/1`.
        """
        surrenders: list[str] = []
        while self.table.requesters:
            free = [owner.id for owner in self.table.requesters.values() if not owner.waiting]
            if free:
                self.remove(min(free))
                continue
            cycle = self._cycle()
            yielding = max(holder[0].agent for _, holder in cycle)
            edge = next(edge for edge in cycle if edge[1][0].agent == yielding)
            assert self.surrender(yielding, edge[0][0].lock_id, edge)
            surrenders.append(f"{yielding.serial} surrender {_path(edge[0][0].lock_id)}")
            assert len(surrenders) < 1000, "the deadlocks never end"
        assert slots(cast(Slot, self.table.find(()))) == [self.table.find(())]
        return surrenders

    def _keys(self) -> set[Key]:
        return {wish.key for wish in self.turns}

    def _cycle(self) -> list[tuple[End, End]]:
        """A cycle of agents that wait for each other, when no agent waits for nothing."""
        first: dict[AgentId, tuple[End, End]] = {}
        for edge in self.edges:
            first.setdefault(edge[0][0].agent, edge)
        at = min(first)
        seen: list[AgentId] = []
        while at not in seen:
            seen.append(at)
            at = first[at][1][0].agent
        return [first[who] for who in seen[seen.index(at) :]]

    # --- Comparison -----------------------------------------------------------------------------

    def _compare(self, changed: list[Entry], before: int) -> None:
        self.sound = False
        self._compare_changes(changed, before)
        entries = list(self.table.view(()))
        self._compare_state(entries)
        self._note_edges(entries)
        check_exclusion([entry.record(NODE) for entry in entries])
        check_structure(self.table)
        statistics = self.table.statistics()
        assert self.counted == {
            "requests": statistics.requests,
            "grants": statistics.grants,
            "waits": statistics.waits,
            "surrenders": statistics.surrenders,
            "refused": statistics.refused_surrenders,
        }
        assert statistics.entries == len(entries)
        assert statistics.waiting == sum(not wish.granted for wish in self.oracle.wishes())
        assert statistics.agents == len({wish.agent for wish in self.oracle.wishes()})
        assert statistics.version == self.table.version
        self.sound = True

    def _compare_changes(self, changed: list[Entry], before: int) -> None:
        """Returned is exactly what changed, with new versions in the order of the changes."""
        turns = {wish: wish.turn for wish in self.oracle.wishes()}
        expected = {w.key for w, turn in turns.items() if self.turns.get(w) != turn}
        expected |= {w.key for w in self.turns if w not in turns}
        keys = [key(entry) for entry in changed]
        assert len(keys) == len(set(keys)), "an entry is returned twice"
        assert set(keys) == expected, "other entries are returned than have changed"
        versions = [before, *(entry.version for entry in changed)]
        assert versions == sorted(set(versions)), "versions don't rise"
        assert versions[-1] == self.table.version
        for entry in changed:
            wish = self.wishes[entry.number]
            assert entry.gone == (wish not in turns)
            assert entry.since == entry.version, "a change has another version than its state"
            if entry.granted and not entry.gone:
                lock_id = entry.slot.lock_id
                assert entry.since > self.tokens.get(lock_id, 0), "a fencing token is too low"
                if entry.mode == "write":
                    self.tokens[lock_id] = entry.since
                self.counted["grants"] += 1
        for entry in self.table.view(()):
            assert key(entry) in expected or entry.version <= before, "a hidden change"
        self.turns = turns

    def _compare_state(self, entries: list[Entry]) -> None:
        """The same requests are granted; conflicting ones stand in the same order."""
        places = {w: i for i, group in enumerate(self.oracle.line) for w in group}
        assert {key(e): e.granted for e in entries} == {w.key: w.granted for w in places}
        wishes = {entry: self.wishes[entry.number] for entry in entries}
        records = {entry: entry.record(NODE) for entry in entries}
        for a in entries:
            for b in entries:
                if conflict(records[a], records[b]):
                    ahead = places[wishes[a]] < places[wishes[b]]
                    assert (a.place < b.place) == ahead, f"{key(a)}, {key(b)}: the order differs"
        for lock_id in {entry.slot.lock_id for entry in entries}:
            view = self.table.view(lock_id)
            assert Counter(key(e) for e in view) == Counter(
                w.key for w in places if w.lock_id[: len(lock_id)] == lock_id[: len(w.lock_id)]
            )
            assert [e.place for e in view] == sorted(e.place for e in view)

    def _note_edges(self, entries: list[Entry]) -> None:
        """The edges that follow from the records are those of the oracle."""
        ends = {e: (self.wishes[e.number], self.wishes[e.number].turn) for e in entries}
        records = {entry: entry.record(NODE) for entry in entries}
        self.edges = []
        for waiter in entries:
            if waiter.granted:
                continue
            for holder in entries:
                stands = blocks(records[holder], records[waiter])
                assert stands == self.oracle.waits_for(ends[waiter][0], ends[holder][0])
                if stands:
                    edge = (ends[waiter], ends[holder])
                    self.edges.append(edge)
                    self.sightings[edge] = (
                        (waiter.number, waiter.since),
                        (holder.number, holder.since),
                    )
        blocked = {waiter[0] for waiter, _ in self.edges}
        assert blocked == {w for w in self.oracle.wishes() if not w.granted}


def check_exclusion(records: list[RequestRecord]) -> None:
    """No two requests that conflict are granted."""
    granted = [record for record in records if record.state == "granted"]
    for a in granted:
        for b in granted:
            assert not conflict(a, b), f"both are granted: {a}, {b}"


def slots(slot: Slot) -> list[Slot]:
    """The slot and all below it."""
    return [slot, *(s for child in slot.children.values() for s in slots(child))]


def check_structure(table: LockTable) -> None:
    """Everything that the table keeps beside the requests is what it would be if counted anew."""
    root = table.find(())
    assert root is not None
    tree = slots(root)
    everything = [entry for slot in tree for entry in slot.entries()]
    assert {e.number: e for e in everything} == table._entries
    assert {e.requester.id for e in everything} == set(table.requesters)
    for slot in tree:
        below = [e for s in slots(slot) if s is not slot for e in s.entries()]
        own = list(slot.entries())
        assert slot is root or own or slot.children, f"{slot.lock_id} is left over"
        assert table.find(slot.lock_id) is slot
        assert slot.below == [sum(e.mode == mode for e in below) for mode in MODES]
        assert slot.waiting() == sum(not e.granted for e in own)
        assert bool(slot.queues) == bool(slot.granted) == bool(own)
        assert set(slot.counting) == {e for e in own if e.pending >= 0}
        for rank, queue in enumerate(slot.queues):
            assert all(MODES[e.rank] == e.mode and e.rank == rank and e.slot is slot for e in queue)
            assert [e.place for e in queue] == sorted(e.place for e in queue)
            assert slot.granted[rank] == sum(e.granted for e in queue)
            assert slot.waiting((rank,)) == sum(not e.granted for e in queue)
        for child in slot.children.values():
            assert child.parent is slot
    for owner in table.requesters.values():
        own = [e for e in everything if e.requester is owner]
        assert set(owner.all()) == set(own)
        assert all(e.slot is slot for slot, entries in owner.entries.items() for e in entries)
        assert owner.total == len(own)
        assert owner.waiting == sum(not e.granted for e in own)
    records = {entry: entry.record(NODE) for entry in everything}
    for entry in everything:
        assert not entry.gone
        _check_reason(entry, records)
        for watcher in entry.blocking or ():
            assert watcher.blocker is entry
            assert watcher in records


def _check_reason(entry: Entry, records: dict[Entry, RequestRecord]) -> None:
    """A waiting entry keeps exactly one reason for waiting, and it is a true one."""
    blocker = entry.blocker
    if entry.granted:
        assert blocker is None
        assert entry.pending == -1
    elif blocker is not None:
        assert entry.pending == -1
        assert blocker in records
        assert entry in (blocker.blocking or ())
        assert len(blocker.slot.lock_id) <= len(entry.slot.lock_id)
        assert blocks(records[blocker], records[entry])
    else:
        depth = len(entry.slot.lock_id)
        count = sum(
            blocks(records[e], records[entry]) and len(e.slot.lock_id) > depth for e in records
        )
        assert entry.pending == count > 0


def walk(lockstep: Lockstep, random: Random, steps: int) -> None:
    """Carry out random operations and then let all agents come to their end."""
    agents = [agent(i + 1) for i in range(random.randint(2, 6))]
    alphabet = "abc"[: random.randint(1, 3)]
    depth = random.randint(1, 4)
    for _ in range(steps):
        who = random.choice(agents)
        lock_id = tuple(random.choices(alphabet, k=random.randint(1, depth)))
        mode = random.choice(MODES)
        verb = random.choices(["request", "release", "end", "surrender"], [20, 4, 1, 7])[0]
        if verb == "request":
            lockstep.request(who, lock_id, mode)
        elif verb == "release":
            lockstep.release(who, lock_id, random.choice([mode, None]))
        elif verb == "end":
            lockstep.remove(who)
        else:
            edges = random.choice([lockstep.edges, list(lockstep.sightings), []])
            if edges:
                edge = random.choice(edges)
                who = random.choice([edge[1][0].agent] * 3 + [who])
                lockstep.surrender(who, edge[0][0].lock_id, edge)
            else:
                lockstep.surrender(who, lock_id)
    lockstep.run_out()
