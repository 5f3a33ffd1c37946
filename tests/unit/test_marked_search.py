"""What the search through marked requests leaves out: nothing that agents need, told from a search through everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from locks.core.messages import (
    Inquire,
    Release,
    Remove,
    Request,
    RequestStates,
    Resolved,
    ServerEffect,
    ServerMessage,
    StandingElsewhere,
    Surrender,
    Surrendered,
    ToAgent,
)
from locks.core.server.machine import ServerMachine
from locks.core.server.tree import Requester
from locks.core.server.waits import edges_from
from locks.lock_ids import counted
from locks.model import AgentId, Deadlock, Edge, LockId, Mode
from tests import whole_search
from tests.lockstep import agent
from tests.unit.test_waits import check_marks
from tests.whole_search import WholeServer

SEEDS = 3  # tried with 120 of each
STEPS = 150
FLAT: tuple[LockId, ...] = (("a",), ("b",), ("c",))
TREE: tuple[LockId, ...] = (("a",), ("b",), ("a", 1), ("a", 2), ("b", 1), ("a", 1, 1), ("a", 1, 2))
STANDINGS = ((False, False), (True, False), (True, True), (False, True))

Told = set[tuple[AgentId, int]]


class World(NamedTuple):
    """What the agents of a random world may do.

    Attributes:
        ids: What they ask for.
        modes: How.
        elsewhere: How often they say anything of other nodes.
    """

    ids: tuple[LockId, ...]
    modes: tuple[Mode, ...]
    elsewhere: float


WORLDS = {
    "writes": World(FLAT, ("write",), 0.3),
    "writes, one node": World(FLAT, ("write",), 0),
    "reads and writes": World(FLAT, ("write", "read"), 0.3),
    "reads and writes, one node": World(FLAT, ("write", "read"), 0),
    "trees": World(TREE, ("write", "write", "read"), 0.3),
    "trees, one node": World(TREE, ("write", "write", "read"), 0),
    "counted": World((*TREE, counted(("a", 3), 2)), ("write", "write", "read"), 0.2),
}


def steps(world: World, seed: int) -> Iterator[tuple[ServerMachine, ServerMachine, Told, Told]]:
    """A server with each search after each of the same steps, and what each of them tells whom in it."""
    chance = random.Random(seed)
    agents = chance.choice((3, 5, 8, 20))
    new, whole = ServerMachine("n@h"), WholeServer("n@h")
    for _ in range(STEPS):
        message = draw(chance, world, new, agents)
        yield new, whole, told(new.handle(message)), told(whole.handle(message))


def draw(chance: random.Random, world: World, server: ServerMachine, agents: int) -> ServerMessage:
    """Anything that an agent may say."""
    who = agent(chance.randrange(agents))
    lock_id = chance.choice(world.ids)
    kind = chance.random()
    owner = server.table.requesters.get(who)
    if kind < world.elsewhere:
        if owner is not None:
            return StandingElsewhere(who, *chance.choice(STANDINGS))
        return Request(who, "c", lock_id, mode(chance, world, lock_id), *chance.choice(STANDINGS))
    kind = chance.random()
    if kind < 0.2:
        edges = [e for o in server.table.requesters.values() for e in whole_search.edges_from(o)]
        if edges:
            return surrender(chance.choice(edges), chance)
    if kind < 0.75:
        there = (
            (False, False) if owner is None else (owner.requests_elsewhere, owner.waits_elsewhere)
        )
        spare = there[0] and type(lock_id[-1]) is not tuple and chance.random() < 0.3
        return Request(who, "c", lock_id, mode(chance, world, lock_id), *there, spare)
    if kind < 0.85:
        return Release(who, lock_id, chance.choice(("read", "write", None)))
    return Inquire(who) if kind < 0.9 else Remove(who)


def mode(chance: random.Random, world: World, lock_id: LockId) -> Mode:
    """A mode; counted ids are written."""
    return "write" if type(lock_id[-1]) is tuple else chance.choice(world.modes)


def surrender(edge: whole_search.WaitEdge, chance: random.Random) -> Surrender:
    """The agent that is waited for gives up what the other one waits for; mostly a deadlock is reported."""
    waiter, holder = edge.waiter, edge.holder
    broken = Edge(waiter.record("n@h"), holder.record("n@h"))
    report = Deadlock(edge.to.id, waiter.slot.lock_id, "n@h", "surrendered", (broken,), "so")
    return Surrender(
        edge.to.id,
        waiter.slot.lock_id,
        (waiter.number, waiter.since),
        (holder.number, holder.since),
        report if chance.random() < 0.8 else None,
    )


def told(effects: list[ServerEffect]) -> Told:
    """Which agent is told of which request."""
    found: Told = set()
    for effect in effects:
        if isinstance(effect, ToAgent):
            message = effect.message
            if isinstance(message, (RequestStates, Resolved, Surrendered)):
                found |= {(effect.agent, record.number) for record in message.records}
    return found


def known(server: ServerMachine) -> set[tuple[Requester, Requester]]:
    """Who waits for whom, where both ends know it, or the largest agent of a long cycle."""
    found = set()
    for owner in server.table.requesters.values():
        for edge in whole_search.edges_from(owner):
            ends = [edge.waiter.notified or {}, edge.holder.notified or {}]
            for_both = [
                all(each.get(end) == end.changed_at for each in ends) for end in (edge.by, edge.to)
            ]
            by_one = [o for o in ends[0] if all(each.get(o) == o.changed_at for each in ends)]
            if all(for_both) or any(o not in (edge.by, edge.to) for o in by_one):
                found.add((edge.by, edge.to))
    return found


def knots(ways: set[tuple[Requester, Requester]]) -> list[set[Requester]]:
    """Those who reach themselves and each other."""
    after: dict[Requester, set[Requester]] = {}
    for by, to in ways:
        after.setdefault(by, set()).add(to)
    reach: dict[Requester, set[Requester]] = {}
    for start in after:
        todo = list(after[start])
        found = set(todo)
        for each in todo:
            for to in after.get(each, ()):
                if to not in found:
                    found.add(to)
                    todo.append(to)
        reach[start] = found
    parts: list[set[Requester]] = []
    for owner, found in reach.items():
        if owner in found and not any(owner in part for part in parts):
            parts.append({other for other in found if owner in reach.get(other, ())})
    return parts


@pytest.mark.parametrize("name", ["writes", "writes, one node"])
def test_with_writes_alone_it_is_the_same(name: str) -> None:
    """With each step, the same agents are told of the same requests."""
    for seed in range(SEEDS):
        for new, _, found, expected in steps(WORLDS[name], seed):
            assert found == expected, f"seed {seed}"
            check_marks(new.table)


@pytest.mark.parametrize("name", WORLDS)
def test_whoever_may_be_tied_knows_a_way(name: str) -> None:
    """From each agent with requests elsewhere to each that waits there, if any way leads, one leads over edges looked at.

    All who are on it are tied, and no others are than before.
    """
    for seed in range(SEEDS):
        for new, _, _, _ in steps(WORLDS[name], seed):
            owners = list(new.table.requesters.values())
            whole = [edge for owner in owners for edge in whole_search.edges_from(owner)]
            fewer = [edge for owner in owners for edge in edges_from(owner)]
            assert set(fewer) <= set(whole)
            before, now = (whole_search.tied_ones(owners, edges) for edges in (whole, fewer))
            assert now <= before, f"seed {seed}"
            assert now == set(new._notifier._tied) or not new._notifier.closers
            for asking in [o for o in before if o.requests_elsewhere]:
                reached = [
                    {
                        other
                        for other in whole_search._spread({asking}, [(e.by, e.to) for e in edges])
                        if other.waits_elsewhere
                    }
                    for edges in (whole, fewer)
                ]
                assert reached[0] == reached[1], f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_in_each_deadlock_within_the_node_a_cycle_is_known(name: str) -> None:
    """And so it is with a search through everything."""
    count = 0
    for seed in range(SEEDS):
        for new, whole, _, _ in steps(WORLDS[name], seed):
            for server in (new, whole):
                owners = list(server.table.requesters.values())
                edges = [edge for owner in owners for edge in whole_search.edges_from(owner)]
                tied = whole_search.tied_ones(owners, edges)
                ways = known(server)
                for part in knots({(edge.by, edge.to) for edge in edges}):
                    if not part & tied:
                        count += 1
                        inside = {way for way in ways if part.issuperset(way)}
                        assert knots(inside), f"seed {seed}, {type(server).__name__}"
    assert count


@pytest.mark.parametrize("name", WORLDS)
def test_no_more_is_told(name: str) -> None:
    """Than by a search through everything, in all the steps of all seeds.

    Another one of the shortest cycles may be chosen, which later becomes another one: within one node that costs a few
    more, and with several it is one in a thousand at most in as few steps as these (less than before in 40 seeds).
    """
    now = before = 0
    for seed in range(SEEDS):
        for _, _, found, expected in steps(WORLDS[name], seed):
            now += len(found)
            before += len(expected)
    if name.startswith("writes"):
        assert now == before
    else:
        assert now <= before * (1.05 if name.endswith("one node") else 1.001)
