"""Deadlocks between clients of both kinds: one of ours yields, on whichever lock server it is.

Deadlocks of the original's agents alone are its own affair. (It leaves many rings of four unresolved.)
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import locks
from locks.otp.bytes.terms import Atom
from tests.erlang.clients import PythonClient
from tests.erlang.conftest import PYTHON
from tests.erlang.erlang import Erlang, ErlangClient
from tests.erlang.test_locks import ERLANG, Fresh, eventually_queued
from tests.helpers import EXPLORE, SEED, eventually

LockId = tuple[Any, ...]
Place = tuple[LockId, str]  # a lock id and the node of its lock server


class Party:
    """A client of either kind, with the same face."""

    def __init__(self, name: str, erlang: Erlang | None = None) -> None:
        self.name = name
        self.client: Any = PythonClient() if erlang is None else ErlangClient(erlang, name)
        self._asked: Any = None
        self.deadlocks: list[Any] = []

    def ask(self, place: Place, mode: str = "write") -> None:
        """Ask for a lock."""
        lock_id, server = place
        self._asked = self.client.ask(lock_id, mode, server)

    @property
    def has_it(self) -> bool:
        """Whether what was asked for is there."""
        python = isinstance(self.client, PythonClient)
        done: bool = self._asked.done() if python else self._asked.is_done
        if done:
            answer = self._asked.result() if python else self._asked.get()
            self.deadlocks = list(answer.deadlocks if python else answer[1])
        return done

    def end(self) -> None:
        """End the transaction."""
        self.client.end()


def play(erlang: Erlang, parties: list[Party], ring: list[Place], order: Any) -> None:
    """Each has one lock of a ring, and asks for the next one's; all must get them, one by one."""
    for party, place in zip(parties, ring, strict=True):
        party.ask(place)
        eventually(lambda party=party: party.has_it)
    for number, position in enumerate(order):
        wanted = ring[(position + 1) % len(ring)]
        parties[position].ask(wanted)
        if number < len(ring) - 1:
            eventually_queued(erlang, *wanted, 2)
    left = list(parties)
    while left:
        done = eventually(lambda: [party for party in left if party.has_it])
        for party in done:
            party.end()
            left.remove(party)


# --- Two parties


@pytest.mark.parametrize("closing", ["erlang", "python"])
@pytest.mark.parametrize("servers", list(itertools.product([PYTHON, ERLANG], repeat=2)))
def test_deadlock_of_two(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh, servers: tuple[str, str], closing: str
) -> None:
    """The Python client yields, and both are told which lock was surrendered."""
    parties = [Party("theirs", erlang), Party("mine")]
    ring = [(fresh(), servers[0]), (fresh(), servers[1])]
    play(erlang, parties, ring, [1, 0] if closing == "erlang" else [0, 1])
    theirs, mine = parties
    (report,) = mine.deadlocks
    assert report.agent == mine.client.agent.id
    assert report.lock == ring[1]
    assert report.action == "surrendered"
    assert {agent.node for agent in report.agents} == {PYTHON, ERLANG}
    ((agent, (lock_id, where)),) = theirs.deadlocks
    assert (agent.number, agent.node) == mine.client.agent.id[:2]
    assert (tuple(lock_id), where.name) == ring[1]


@pytest.mark.parametrize("server", [PYTHON, ERLANG])
def test_abort_on_deadlock(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh, server: str
) -> None:
    """A Python client that was told that it has the lock is aborted, and has nothing any more."""
    first, second = fresh(), fresh()
    theirs = ErlangClient(erlang, "theirs")
    theirs.lock(first, "write", server)
    mine = PythonClient(abort_on_deadlock=True)
    mine.lock(second, "write", server)
    wanted = theirs.ask(second, "write", server)
    eventually_queued(erlang, second, server, 2)
    asked = mine.ask(first, "write", server)
    with pytest.raises(locks.DeadlockAborted):
        asked.result(5)
    assert wanted.get()[0] == Atom("ok")
    for lock_id in (first, second):
        eventually_queued(erlang, lock_id, server, 1)
    mine.die()
    theirs.end()


# --- Three parties

PLACES = [[PYTHON] * 3, [ERLANG] * 3, [PYTHON, ERLANG, PYTHON], [ERLANG, PYTHON, ERLANG]]


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("kinds", ["eep", "epp"])
def test_deadlock_of_three_in_every_order(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh, places: list[str], kinds: str
) -> None:
    """Two clients of one kind and one of the other, in both directions and in all orders."""
    for direction in (1, -1):
        for order in itertools.permutations(range(3)):
            parties = [
                Party(f"theirs-{number}", erlang if kind == "e" else None)
                for number, kind in enumerate(kinds)
            ][::direction]
            play(erlang, parties, [(fresh(), server) for server in places], order)
            ours = [p for p in parties if isinstance(p.client, PythonClient)]
            assert any(party.deadlocks for party in ours), (direction, order)


# --- Many


class Exclusion:
    """Who has what: two who have conflicting locks at the same time are a failure."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held: dict[str, dict[Place, str]] = {}
        self.conflicts: list[Any] = []

    def enter(self, who: str, wanted: dict[Place, str]) -> None:
        """A client was told that it has all that it asked for."""
        with self._mutex:
            for other, held in self._held.items():
                for (mine, where), mode in wanted.items():
                    for (theirs, there), its in held.items():
                        depth = min(len(mine), len(theirs))
                        related = where == there and mine[:depth] == theirs[:depth]
                        if related and "write" in (mode, its):
                            self.conflicts.append((who, mine, mode, other, theirs, its))
            self._held[who] = wanted

    def leave(self, who: str) -> None:
        """It is about to let go."""
        with self._mutex:
            del self._held[who]


def random_wishes(
    rng: random.Random, places: list[Place], ordered: bool
) -> Iterator[tuple[Place, str]]:
    """Some of the locks; in a fixed order if deadlocks are to be avoided."""
    chosen = rng.sample(range(len(places)), rng.randint(2, 4))
    for index in sorted(chosen) if ordered else chosen:
        yield places[index], rng.choice(["read", "write", "write"])


def test_random_transactions_of_both_kinds(
    node: locks.node.Node, erlang: Erlang, more_erlang: Callable[..., Erlang], fresh: Fresh
) -> None:
    """Nobody gets stuck, and nobody has what another one has, with clients on three nodes.

    Clients of the original ask in a fixed order: so there is one of ours in each deadlock.
    """
    other = more_erlang("h@127.0.0.1")
    assert node.connect(other.name)
    servers = [PYTHON, ERLANG, other.name]
    base = fresh()
    places: list[Place] = [((*base, str(i)), server) for server in servers for i in range(2)]
    tables: list[Place] = [(base, PYTHON)]
    exclusion = Exclusion()
    errors: list[BaseException] = []
    until = time.monotonic() + (60 if EXPLORE else 3)
    rounds = [0] * 8

    def work(number: int) -> None:
        theirs = number % 2 == 0
        rng = random.Random(SEED * 100 + number)
        # Ids of the same name on several nodes can't be in one transaction of the original.
        mine = [((*lock_id, server[0]), server) for lock_id, server in places]
        while time.monotonic() < until:
            party = Party(f"random-{number}", (erlang, other)[number // 2 % 2] if theirs else None)
            wanted = dict(random_wishes(rng, mine if theirs else mine + tables, theirs))
            for place, mode in wanted.items():
                party.ask(place, mode)
                eventually(lambda party=party: party.has_it, 20)
            exclusion.enter(party.name, wanted)
            exclusion.leave(party.name)
            party.end()
            rounds[number] += 1

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(rounds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert not exclusion.conflicts
    assert all(rounds), rounds
