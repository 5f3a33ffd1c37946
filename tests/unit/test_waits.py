"""Who waits for whom at a lock server, and who may do so by way of other nodes: each against its definition."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from locks.core.messages import Inquire, Release, Remove, Request, ServerMessage, StandingElsewhere
from locks.core.server.machine import ServerMachine
from locks.core.server.search_index import AHEAD, HELD, PLAIN, indexed_below
from locks.core.server.table import LockTable
from locks.core.server.tree import Entry, Requester, place_of
from locks.core.server.waits import WaitEdge, edges_from, edges_to, tied_elsewhere
from locks.lock_ids import counted
from locks.model import MODES as MODES_BY_RANK
from locks.model import LockId, Mode
from tests.lockstep import agent, slots

SEEDS = 60
IDS: tuple[LockId, ...] = (
    *(("a",), ("b",), ("a", 1), ("a", 2), ("b", 1), ("a", 1, 1), ("a", 1, 2)),
    counted(("a", 3), 2),
)
MODES: tuple[Mode, ...] = ("write", "write", "read")
STANDINGS = ((False, False), (True, False), (True, True), (False, True))


def message(chance: random.Random, agents: int, ids: int) -> ServerMessage:
    """Anything that an agent may say of its requests, or of what it does elsewhere."""
    who = agent(chance.randrange(agents))
    lock_id = chance.choice(IDS[:ids])
    kind = chance.random()
    if kind < 0.5:
        return Request(who, "c", lock_id, chance.choice(MODES), *chance.choice(STANDINGS))
    if kind < 0.75:
        return StandingElsewhere(who, *chance.choice(STANDINGS))
    if kind < 0.85:
        return Release(who, lock_id, chance.choice(MODES))
    return Inquire(who) if kind < 0.9 else Remove(who)


def servers(seed: int) -> Iterator[ServerMachine]:
    """A lock server after each of some random messages."""
    chance = random.Random(seed)
    agents, ids = chance.choice((3, 5, 8, 20)), chance.choice((1, 2, 5, len(IDS)))
    server = ServerMachine("n@h")
    for _ in range(60):
        server.handle(message(chance, agents, ids))
        yield server


def edges(server: ServerMachine) -> set[WaitEdge]:
    """All edges, found from their beginnings."""
    return {edge for owner in server.table.requesters.values() for edge in edges_from(owner)}


def tied(server: ServerMachine) -> set[Requester]:
    """By definition: those who wait, to whom a way leads from elsewhere, and from whom one leads there."""
    owners = [owner for owner in server.table.requesters.values() if owner.waits]
    ways: dict[Requester | None, set[Requester | None]] = {owner: set() for owner in owners}
    ways[None] = {owner for owner in owners if owner.requests_elsewhere}
    for edge in edges(server):
        ways[edge.by].add(edge.to)
    for owner in owners:
        if owner.waits_elsewhere:
            ways[owner].add(None)

    def reached(start: Requester | None) -> set[Requester | None]:
        found: set[Requester | None] = set()
        todo = [start]
        for each in todo:
            todo += ways[each] - found
            found |= ways[each]
        return found

    return {owner for owner in owners if owner in reached(None) and None in reached(owner)}


def kind(entry: Entry) -> int:
    """By definition: the mark of an entry."""
    owner = entry.requester
    if not owner.waits:
        return -1
    if entry.granted:
        return HELD
    related = [
        own
        for own in owner.all()
        if own.slot.lock_id[: len(entry.slot.lock_id)]
        == entry.slot.lock_id[: len(own.slot.lock_id)]
    ]
    alone = len(related) == 1 and owner.waiting == 1 and not owner.waits_elsewhere and entry.waits
    return PLAIN if alone else AHEAD


def check_marks(table: LockTable) -> None:
    """All marks are as they would be if made anew."""
    for slot in slots(table.root):
        below = [each for each in slots(slot) if each is not slot]
        entries = list(slot.entries())
        for entry in entries:
            assert entry.kind == kind(entry)
        for owner in {entry.requester for entry in entries}:
            assert set(owner.waiters) == {e for e in owner.all() if e.waits and owner.waits}
        strong = {s for s in below if any(0 <= kind(e) < PLAIN for e in s.entries())}
        plain = {s for s in below if any(kind(e) == PLAIN for e in s.entries())}
        marks = slot.index
        if marks is None:
            assert all(kind(entry) < 0 for entry in entries)
            assert not strong | plain
            continue
        for of in (HELD, AHEAD, PLAIN):
            for rank in range(len(MODES_BY_RANK)):
                there = [e for e in entries if kind(e) == of and e.rank == rank]
                assert marks.lists[of + rank] == sorted(there, key=place_of)
        assert {s for s in indexed_below(slot, False) if s in strong} == strong
        assert {s for s in indexed_below(slot, True) if s in strong | plain} == strong | plain
        for child in slot.children.values():
            inside = set(slots(child))
            assert (child in marks.strong_below) == bool(inside & strong)
            assert (child in marks.plain_below) == bool(inside & plain)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS // 4))
def test_who_waits_and_is_tied_is_known_after_each_step(first: int) -> None:
    """After each step of random worlds, with their seeds: edges, who is tied, what these were told, the notifier's lists, and all marks."""
    for seed in range(first, first + SEEDS // 4):
        count = 0
        for server in servers(seed):
            both_ends_agree(server)
            tied_ones = tied(server)
            assert (
                set(tied_elsewhere(server._notifier.asking, server._notifier.away)) == tied_ones
            ), seed
            tied_ones_know_all(server, tied_ones)
            waiting_is_known(server)
            check_marks(server.table)
            count += len(tied_ones)
        assert count, seed


def both_ends_agree(server: ServerMachine) -> None:
    """What leads to somebody is what leads from somebody else."""
    owners = list(server.table.requesters.values())
    found = [edge for owner in owners for edge in edges_to(owner, owners)]
    assert len(found) == len(set(found))
    assert set(found) == edges(server)


def tied_ones_know_all(server: ServerMachine, tied_ones: set[Requester]) -> None:
    """Both ends of each edge between them have been told of both its requests, since they last began to wait or forgot it."""
    for edge in edges(server):
        if edge.by in tied_ones and edge.to in tied_ones:
            for owner in (edge.by, edge.to):
                for entry in (edge.waiter, edge.holder):
                    assert entry.notified is not None
                    assert entry.notified[owner] == owner.changed_at


def waiting_is_known(server: ServerMachine) -> None:
    """The notifier's own lists of those who ask or wait elsewhere are right."""
    owners = list(server.table.requesters.values())
    waiting = {owner for owner in owners if owner.waits}
    assert set(server._notifier.waiting) == waiting
    assert set(server._notifier.asking) == {o for o in waiting if o.requests_elsewhere}
    assert set(server._notifier.away) == {o for o in owners if o.waits_elsewhere}
