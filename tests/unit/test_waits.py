"""The edges that a lock server follows: enough to find each deadlock, from a search through everything."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import NamedTuple

import pytest

from locks.core.messages import (
    Inquire,
    Release,
    Remove,
    Request,
    ServerMessage,
    StandingElsewhere,
    Surrender,
)
from locks.core.server import waits
from locks.core.server.machine import ServerMachine
from locks.core.server.notifier import News, Notifier
from locks.core.server.tree import Entry, Requester
from locks.core.server.waits import FEW, WaitEdge, edges_from
from locks.lock_ids import counted
from locks.model import Deadlock, Edge, LockId, Mode
from locks_lab.worlds.rules import OtherServer
from tests.lockstep import agent

SEEDS = 60
STEPS = 60
STANDINGS = ((False, False), (True, False), (True, True), (False, True))
FLAT: tuple[LockId, ...] = tuple((name,) for name in "abcd")
TREE: tuple[LockId, ...] = (("a",), ("b",), ("a", 1), ("a", 2), ("b", 1), ("a", 1, 1), ("a", 1, 2))


class World(NamedTuple):
    """What the agents of a random world may do.

    Attributes:
        ids: What they lock.
        modes: How.
        elsewhere: How often one of them says that it waits elsewhere, or has requests there.
    """

    ids: tuple[LockId, ...]
    modes: tuple[Mode, ...]
    elsewhere: float


WORLDS = {
    "writes": World(FLAT, ("write",), 0),
    "reads and writes": World(FLAT, ("write", "read"), 0),
    "trees": World(TREE, ("write", "write", "read"), 0),
    "trees, elsewhere": World(TREE, ("write", "write", "read"), 0.3),
    "counted": World((*TREE, counted(("a", 3), 2)), ("write", "write", "read"), 0),
}


def all_edges(requester: Requester) -> Iterator[WaitEdge]:
    """All edges that go out from a requester."""
    for waiter in requester.all():
        if waiter.waits:
            for slot in (*waiter.slot.path(), *waiter.slot.subtree()):
                for holder in slot.entries():
                    to = holder.requester
                    ahead = holder.granted or holder.place < waiter.place
                    if to is not requester and to.waits and ahead and holder.rank in waiter.rivals:
                        yield WaitEdge(requester, to, waiter, holder)


def draw(chance: random.Random, world: World, server: ServerMachine, agents: int) -> ServerMessage:
    """Anything that an agent may say."""
    who = agent(chance.randrange(agents))
    lock_id = chance.choice(world.ids)
    mode = "write" if type(lock_id[-1]) is tuple else chance.choice(world.modes)
    requesters = server.table.requesters
    own = requesters.get(who)
    there = (False, False) if own is None else (own.requests_elsewhere, own.waits_elsewhere)
    if chance.random() < world.elsewhere:
        return StandingElsewhere(who, *chance.choice(STANDINGS))
    kind = chance.random()
    edges = [edge for each in requesters.values() for edge in all_edges(each)]
    if kind < 0.2 and edges:
        return surrender(chance.choice(edges))
    if kind < 0.75:
        return Request(who, "c", lock_id, mode, *there)
    if kind < 0.85:
        return Release(who, lock_id, chance.choice(("read", "write", None)))
    return Inquire(who) if kind < 0.9 else Remove(who)


def surrender(edge: WaitEdge) -> Surrender:
    """The agent that is waited for gives up what the other one waits for."""
    waiter, holder = edge.waiter, edge.holder
    broken = Edge(waiter.record("n@h"), holder.record("n@h"))
    report = Deadlock(edge.to.id, waiter.slot.lock_id, "n@h", "surrendered", (broken,), "so")
    ends = ((waiter.number, waiter.since), (holder.number, holder.since))
    return Surrender(edge.to.id, waiter.slot.lock_id, *ends, report)


def servers(world: World, seed: int, server: ServerMachine) -> Iterator[ServerMachine]:
    """A lock server after each of some random messages."""
    chance = random.Random(seed)
    agents = chance.choice((3, 5, 8, 20))
    for _ in range(STEPS):
        server.handle(draw(chance, world, server, agents))
        yield server


Ways = dict[Requester, set[Requester]]


def ways(edges: Collection[WaitEdge]) -> Ways:
    """Whom each agent reaches."""
    found: Ways = {edge.by: set() for edge in edges}
    for start in found:
        todo = [start]
        for requester in todo:
            for edge in edges:
                if edge.by is requester and edge.to not in found[start]:
                    found[start].add(edge.to)
                    todo.append(edge.to)
    return found


def is_told(edge: WaitEdge) -> bool:
    """Whether both ends know an edge, or somebody else does: the largest agent of a long cycle."""

    def knows(requester: Requester, entry: Entry) -> bool:
        return (entry.notified or {}).get(requester) == requester.changed_at

    def knows_both(requester: Requester) -> bool:
        return knows(requester, edge.waiter) and knows(requester, edge.holder)

    others = set(edge.waiter.notified or {}) - {edge.by, edge.to}
    return (knows_both(edge.by) and knows_both(edge.to)) or any(map(knows_both, others))


def unknown_deadlocks(server: ServerMachine) -> list[Requester]:
    """Agents of deadlocks of which nobody knows a cycle; deadlocks that wait for other ones are left out."""
    edges = [edge for each in server.table.requesters.values() for edge in all_edges(each)]
    reach, reach_told = ways(edges), ways([edge for edge in edges if is_told(edge)])
    return [
        start
        for start, reached in reach.items()
        if start in reached
        and all(start in reach.get(other, ()) for other in reached)
        and not any(other in reach_told.get(other, ()) for other in reached)
    ]


def end_who_can(server: ServerMachine) -> None:
    """Whoever does not wait ends, one after the other."""
    while free := [each.id for each in server.table.requesters.values() if not each.waits]:
        server.handle(Remove(free[0]))


def missed(world: World, seed: int, server: ServerMachine) -> bool:
    """Whether a deadlock stays unknown after some random steps, when all who can end have ended."""
    for _ in servers(world, seed, server):
        pass
    end_who_can(server)
    return bool(unknown_deadlocks(server))


@pytest.mark.parametrize("name", WORLDS)
def test_nearly_each_deadlock_is_known_at_once(name: str) -> None:
    """Within one lock server: after all but one in 500 random steps. The others wait for somebody else, too."""
    late = 0
    for seed in range(SEEDS):
        for server in servers(WORLDS[name], seed, ServerMachine("n@h")):
            late += bool(unknown_deadlocks(server))
    assert late * 500 <= SEEDS * STEPS


@pytest.mark.parametrize("few", [waits.FEW, 0])
@pytest.mark.parametrize("name", WORLDS)
def test_each_deadlock_is_known_when_all_others_have_ended(
    name: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one lock server, after random steps, however many of the ids below are looked at while something else blocks."""
    monkeypatch.setattr(waits, "FEW", few)
    stuck = 0
    for seed in range(SEEDS):
        server = ServerMachine("n@h")
        assert not missed(WORLDS[name], seed, server), f"seed {seed}"
        stuck += bool(server.table.requesters)
    assert stuck > SEEDS // 10


class _NewOnly(Notifier):
    """Looks for cycles only from agents of changed requests, and not from those that have another reason to wait."""

    def after(self, changed: list[Entry], requester: Requester | None = None) -> News:
        self._table.looked = []
        return super().after(changed, requester)


class _NewOnlyServer(OtherServer):
    notifier_class = _NewOnly


def behind_a_reader(server: ServerMachine) -> list[Requester]:
    """1 reads a, others some rows of it, 2 writes x and waits for a, 3 has read one more row and waits for x. Then 1 ends."""
    for who, lock_id, mode in (
        (1, ("a",), "read"),
        *((row, ("a", row), "read") for row in range(10, 10 + FEW)),
        (3, ("a", 1), "read"),
        (2, ("x",), "write"),
        (3, ("x",), "write"),
        (2, ("a",), "write"),
    ):
        server.handle(Request(agent(who), "c", lock_id, mode))  # type: ignore[arg-type]
    server.handle(Remove(agent(1)))
    return unknown_deadlocks(server)


def test_who_has_another_reason_to_wait_may_close_a_cycle() -> None:
    """While somebody reads a table, few rows below are looked at; without a second look nobody finds the deadlock."""
    assert not behind_a_reader(ServerMachine("n@h"))
    assert behind_a_reader(_NewOnlyServer("n@h"))


def test_a_server_that_tells_nothing_is_caught() -> None:
    """So the property above can fail."""
    server = ServerMachine("n@h")
    for who, lock_id in ((1, "a"), (2, "b"), (1, "b"), (2, "a")):
        server.handle(Request(agent(who), "c", (lock_id,), "write"))
    assert not unknown_deadlocks(server)
    for entry in server.table.related(("a",)):
        entry.notified = None
    assert unknown_deadlocks(server)


@pytest.mark.parametrize("name", WORLDS)
def test_edges_that_are_followed_are_edges(name: str) -> None:
    """After each step of random worlds."""
    for seed in range(SEEDS // 4):
        for server in servers(WORLDS[name], seed, ServerMachine("n@h")):
            for requester in server.table.requesters.values():
                assert set(edges_from(requester)) <= set(all_edges(requester)), f"seed {seed}"
