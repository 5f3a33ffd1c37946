"""Grants that nodes keep (`locks_lab.keepers`): small worlds in every order, and what they say of the rule (decision 0118)."""

from __future__ import annotations

from typing import Any

import pytest

from locks.model import AgentId
from locks_lab.explorer.search import Visited, visit_all
from locks_lab.explorer.shortest import Found, shortest
from locks_lab.keepers.machines import (
    LEASE,
    Answer,
    Done,
    Granted,
    Keep,
    Keeping,
    Lease,
    Line,
    Message,
    Place,
    Server,
    keeper_of,
)
from locks_lab.keepers.world import Faults, Rules, World
from locks_lab.worlds.host import Violation
from tests.helpers import EXPLORE

Answers = tuple[tuple[str, Answer], ...]


# --- Other rules --------------------------------------------------------------------------------


class WholeLease(Keeping):
    """A node that uses a grant until the whole lease is over by its clock."""

    def has_time(self, lease: Lease, now: int) -> bool:
        return now - lease.asked < LEASE


class NeverHandsOver(Keeping):
    """A node that hands a long use over only when it is told to."""

    def is_due(self, now: int) -> bool:
        return False


class ReleasesInUse(Keeping):
    """A node that releases what it is asked for, in use or not."""

    def last_word(self, lease: Lease) -> Message:
        return Done(keeper_of(self.node), self.lock)


class BeyondTheBlock(Keeping):
    """A node that counts tokens up without end."""

    def has_tokens(self) -> bool:
        return True


class OneServer(Keeping):
    """A node to which one server is enough."""

    def stands(self, now: int) -> bool:
        return any(lease.kept and self.has_time(lease, now) for lease in self.leases)


class NoBlock(Server):
    """A server that sets no tokens aside."""

    def handle(self, message: Message, now: int) -> tuple[Server, Answers]:
        if isinstance(message, Keep):
            message = message._replace(upto=0)
        return super().handle(message, now)


class SameVersion(Server):
    """A server that gives the old grant to a node that asks again."""

    def ask(self, agent: AgentId, lock: int, since: int) -> tuple[Server, Answers]:
        line = self.lines[lock]
        if not since and line.until and line.places[0].agent == keeper_of(agent.node):
            same = Place(agent, line.places[0].since)
            answer = (agent.node, Granted(agent, lock, same.since))
            return self._with(lock, Line((same, *line.places[1:]))), (answer,)
        return super().ask(agent, lock, since)


class TakesBackEarly(Server):
    """A server that takes a grant back when half of its lease is over."""

    def is_due(self, now: int) -> bool:
        return super().is_due(now + LEASE // 2)

    def expire(self, now: int) -> tuple[Server, Answers]:
        return super().expire(now + LEASE // 2)


class Silent(Server):
    """A server that does not say that a hand-over comes too late."""

    def ask(self, agent: AgentId, lock: int, since: int) -> tuple[Server, Answers]:
        server, answers = super().ask(agent, lock, since)
        return server, () if since else answers


class AnotherAge(Server):
    """A server in which an agent that is handed a lock is younger than all others."""

    def ask(self, agent: AgentId, lock: int, since: int) -> tuple[Server, Answers]:
        return super().ask(self.aged(agent) if since else agent, lock, since)

    def _without(self, lock: int, agent: AgentId) -> tuple[Server, Answers]:
        aged = self.aged(agent)
        there = any(place.agent == aged for place in self.lines[lock].places)
        return super()._without(lock, aged if there else agent)

    def aged(self, agent: AgentId) -> AgentId:
        """The agent with another age."""
        return agent if agent.created == 0 else agent._replace(created=99, serial=agent.created)


class KeepersAge(AnotherAge):
    """A server in which an agent that is handed a lock is older than all others."""

    def aged(self, agent: AgentId) -> AgentId:
        return agent if agent.created == 0 else agent._replace(created=0, serial=agent.created)


class WaitsForTheNode(Server):
    """A server that takes nothing back until the node answers, or its connection is lost."""

    def is_due(self, now: int) -> bool:
        return False


class NoLease(Keeping):
    """The node of such a server."""

    def has_time(self, lease: Lease, now: int) -> bool:
        return True


class SaysEachUse(Keeping):
    """A node that hands a lock over as soon as it is used, without waiting for an answer."""

    def is_due(self, now: int) -> bool:
        return self.user is not None


NO_LEASE = Rules(WaitsForTheNode, NoLease)


def world(*clients: str, servers: int = 1, **others: Any) -> World:
    """A world that begins when `p` keeps the first lock."""
    return World(clients, servers, **others).kept()


def explore(world: World) -> Visited:
    """Every order of events of a world."""
    return visit_all(world, world.check)


def find(world: World) -> Found[Any, Any]:
    """A shortest way to what is wrong in it."""
    return shortest(world, world.check, 3_000_000)


def minority(**others: Any) -> World:
    """A world of three servers that begins when one of them keeps a grant for `p`, and `q` was granted the lock by both others."""
    found = World(("p a", "p a", "q a"), 3, **others)
    while found.first.clients[0].phase != "over":
        moves = found.moves(found.first)
        move = next((each for each in moves if each[0] == "deliver"), ("step", 0))
        found.first = found.after(found.first, move)
    requests = [("step", 2), ("deliver", 4, "there"), ("deliver", 5, "there")]
    keeps = [("deliver", number, "there") for number in range(3)]
    for each in requests + keeps:
        found.first = found.after(found.first, each)
    return found


# --- The rule -----------------------------------------------------------------------------------

WORLDS = {
    "two of the node and one elsewhere": world("p a", "p a", "q a", faults=Faults(5)),
    "a deadlock": world("p a b", "q b a", faults=Faults(4)),
    "a deadlock in which the keeper's node gives way": world("q b a", "p a b", faults=Faults(4)),
    "a node stops": world("p a", "q a", faults=Faults(5, stops=1)),
    "two servers": world("p a", "q a", servers=2),
}
LARGER = {
    "nothing is kept at first": World(["p a", "p a", "q a"], faults=Faults(6)),
    "both nodes keep": world("p a", "q a", "q a", keeps=("p", "q"), faults=Faults(4)),
    "a node stops twice": world("p a", "p a", "q a", faults=Faults(4, stops=2)),
    "a link delivers nothing": world("p a", "p a", "q a", faults=Faults(5, holds=1)),
    "a node stops, and a link delivers nothing": world("p a", "q a", faults=Faults(6, 1, 1)),
    "a connection breaks": world("p a", "p a", "q a", faults=Faults(3, cuts=1)),
    "a server restarts": world("p a", "p a", "q a", faults=Faults(5, restarts=1)),
    "a deadlock, and a node stops": world("p a b", "q b a", faults=Faults(4, stops=1)),
    "each use is said, and a node stops": world(
        "p a", "q a", faults=Faults(6, stops=1), rules=Rules(keeping=SaysEachUse)
    ),
    "two servers, and time": world("p a", "q a", servers=2, faults=Faults(5)),
    "two servers, a node stops": world("p a", "q a", servers=2, faults=Faults(4, stops=1)),
    "two servers, nothing is kept at first": World(["p a", "p a", "q a"], 2, faults=Faults()),
    "two servers, a connection breaks": world("p a", "q a", servers=2, faults=Faults(1, cuts=1)),
    "two servers, one restarts": world("p a", "q a", servers=2, faults=Faults(1, restarts=1)),
    "three servers, one of which keeps a grant": minority(),
    "three servers, an idle node stops": world(
        "p", "q a", servers=3, faults=Faults(4, stops=1), drift=(3,)
    ),
    **({"three servers": world("p a", "q a", servers=3)} if EXPLORE else {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_a_kept_grant_in_every_order(name: str) -> None:
    """Clocks that drift, and a node that stops: tokens rise, nobody waits longer than a lease, and only a node with a fault loses a lock."""
    assert explore(WORLDS[name]).states > 1_000


@pytest.mark.explore
@pytest.mark.parametrize("name", LARGER)
def test_a_kept_grant_in_every_order_of_larger_worlds(name: str) -> None:
    """The same with more faults of each kind, and with two and three servers."""
    assert explore(LARGER[name]).states > 1_000


STOPPED = {"faults": Faults(6, stops=1)}
QUIET = {"faults": Faults(5)}
BARE: dict[str, Any] = {}
TWO, THREE, CROSSED = ("p a", "q a"), ("p a", "p a", "p a", "q a"), ("p a b", "q b a")
WRONG: dict[str, tuple[Rules, str, tuple[str, ...], dict[str, Any]]] = {
    "no half lease": (Rules(keeping=WholeLease), "exclusion", TWO, QUIET),
    "a long use is not handed over": (Rules(keeping=NeverHandsOver), "exclusion", TWO, STOPPED),
    "a lock in use is released": (Rules(keeping=ReleasesInUse), "exclusion", TWO, BARE),
    "a grant is taken back early": (Rules(server=TakesBackEarly), "exclusion", TWO, QUIET),
    "tokens beyond the block": (Rules(keeping=BeyondTheBlock), "tokens", THREE, BARE),
    "no tokens set aside": (Rules(server=NoBlock), "tokens", TWO, BARE),
    "the old version again": (Rules(server=SameVersion), "tokens", THREE, QUIET),
    "handed over as younger": (Rules(server=AnotherAge), "progress", CROSSED, BARE),
    "handed over as older": (Rules(server=KeepersAge), "progress", CROSSED, BARE),
    "a late hand-over is not answered": (Rules(server=Silent), "told", TWO, STOPPED),
    "clocks of which one is three times as fast": (
        *(Rules(), "exclusion", TWO),
        {"faults": Faults(6), "drift": (1, 3)},
    ),
    "a server waits for the node": (NO_LEASE, "bound", TWO, STOPPED),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_caught(name: str) -> None:
    """A rule that is wrong in one point violates the check that is meant for it."""
    rules, wrong, clients, others = WRONG[name]
    with pytest.raises(Violation, match=f"^{wrong}: "):
        explore(world(*clients, rules=rules, checks=(wrong,), **others))


@pytest.mark.explore
def test_a_use_needs_a_majority() -> None:
    """A node that uses what one of three servers keeps for it has the token of an agent that the others have granted the lock."""
    with pytest.raises(Violation, match=r"^tokens: "):
        explore(minority(rules=Rules(keeping=OneServer)))


# --- What it costs ------------------------------------------------------------------------------

LEASES, SAYS, WAITS = Rules(), Rules(keeping=SaysEachUse), NO_LEASE
FAULTS = {
    "nothing": Faults(6),
    "a node stops": Faults(6, stops=1),
    "a link is slow": Faults(6, holds=1),
    "a connection breaks": Faults(3, cuts=1),
}
# The faults by which no lock is lost, unless a connection breaks while it is held.
KEEP_THE_PROMISE = {
    "nobody keeps grants": (
        None,
        {"nothing", "a node stops", "a link is slow", "a connection breaks"},
    ),
    "leases": (LEASES, {"nothing"}),
    "each use is said": (SAYS, {"nothing", "a node stops"}),
    "the server waits for the node": (WAITS, {"nothing", "a node stops", "a link is slow"}),
}


@pytest.mark.parametrize("name", KEEP_THE_PROMISE)
@pytest.mark.parametrize("fault", FAULTS)
def test_which_locks_are_lost(name: str, fault: str) -> None:
    """Without kept grants, a lock is lost only if a connection breaks while it is held. With leases it is lost if its node stops, too."""
    rules, faults = KEEP_THE_PROMISE[name]
    others = {"faults": FAULTS[fault], "promise": "connection", "checks": ("exclusion",)}
    if rules is None:
        found = find(World(TWO, keeps=(), **others))
    else:
        found = find(world(*TWO, rules=rules, **others))
    assert (found.violation is None) == (fault in faults)


def test_a_stopped_holder_looks_idle() -> None:
    """Nothing tells the server that the grant is in use when its node stops: it takes it back, as it must, and the lock has two holders."""
    lost = find(world(*TWO, promise="connection", **STOPPED))
    assert str(lost.violation) == "exclusion: two clients hold one lock"
    assert [move for move in lost.schedule if move[0] != "tick"] == [
        ("step", 0),  # the client of the node that keeps the lock: it sends nothing
        ("step", 1),  # the other one requests it
        ("deliver", 1, "there"),
        ("stop", 0),
        ("expire", 0),
        ("deliver", 1, "back"),
    ]
