"""Our agents at the original's lock servers, and among its agents: what they say, what they learn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AnswerWait,
    Ended,
    ToAgent,
    ToServer,
)
from locks.model import AgentId, Contender, LockId, LockResult
from locks.node.original.forms import CastServer, SendTerm, pack_request
from locks.node.original.servers import OriginalServers
from locks.otp.bytes.etf import decode, encode
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Atom, Pid
from locks.wire.forms import agent_of, pid_of

E, F, P = "e@h", "f@h", "p@h"  # two nodes with the original, and ours
ME = agent_of(Pid((1 << 60) + 1, P, 3))
OLDER = agent_of(Pid(1 << 60, P, 3))  # another one of ours
HER, HIM = Pid(101, E, 7), Pid(102, E, 7)  # agents of the original
CLIENT, THEIRS = Pid(9, P, 3), Pid(99, E, 7)
MINE = pid_of(ME, 3)
A, B = ("a",), ("b",)

Entry = Pid | tuple[Pid, int] | tuple[Pid, int, str]


def row(lock_id: Any, version: int, *queue: tuple[str, Entry], node: str = E) -> tuple[Any, ...]:
    """A `#lock{}` as the original makes it; each group is its mode and its entries."""
    groups = []
    for mode, *entries in queue:
        made = []
        for entry in entries:
            pid, since, kind = (*entry, 1, "direct")[:3] if type(entry) is tuple else (entry, 1, "")
            if len(entry) == 2:
                kind = "direct"
            made.append((Atom("entry"), pid, THEIRS, since, Atom(kind or "direct")))
        groups.append((Atom(mode), made))
    return (Atom("lock"), lock_id, version, Pid(90, node, 7), groups, [])


def info(
    lock_id: LockId, version: int, *queue: Any, node: str = E, surrendered: Any = None
) -> tuple[Any, ...]:
    """A `#locks_info{}`."""
    note = [] if surrendered is None else (Atom("surrender"), *surrendered)
    lock = row(list(lock_id), version, *queue, node=node)
    return (Atom("locks_info"), lock, Atom(node), note)


class World:
    """One of our agents, and what stands between it and the original.

    Attributes:
        casts: What was cast to lock servers of the original.
        sent: What was sent to agents of the original.
        answers: What the client's waits were answered with.
        others: What the agent wants to say to others.
    """

    def __init__(self, **options: Any) -> None:
        self.servers = OriginalServers(lambda agent: pid_of(agent, 3), {E, F}.__contains__)
        self.machine = AgentMachine(ME, "mine", [E, F, P], **options)
        self.casts: list[tuple[Any, ...]] = []
        self.sent: list[SendTerm] = []
        self.told: list[Any] = []
        self.answers: list[Any] = []
        self.others: list[Any] = []
        self.ended: Ended | None = None

    def ask(self, lock_id: LockId, mode: Any = "write", *nodes: str) -> None:
        """The client asks for a lock, and waits for it."""
        self.effects(self.machine.ask(lock_id, mode, nodes or (E,), "all", lock_id))

    def arrives(self, term: Any, sender: Pid | None = None) -> None:
        """Something comes to the agent from a process of the original."""
        self.commands(self.servers.receive(ME, decode(encode(term)), sender))

    def commands(self, commands: list[Any]) -> None:
        """Carry commands out."""
        for command in commands:
            if isinstance(command, CastServer):
                encode(command.term)
                self.casts.append((command.node, *command.term))
            elif isinstance(command, SendTerm):
                self.sent.append(command)
            else:
                assert isinstance(command, ToAgent)
                assert command.agent == ME
                self.told.append(command.message)
                self.effects(self.machine.receive(command.message))
        self.effects(self.machine.settle())

    def effects(self, effects: list[Any]) -> None:
        """Do what the agent wants done."""
        for effect in effects:
            if isinstance(effect, ToServer) and effect.node != P:
                self.commands(self.servers.send(ME, effect.node, effect.message, CLIENT))
            elif isinstance(effect, AnswerWait):
                self.answers.append(effect.result)
            elif isinstance(effect, Ended):
                self.ended = effect
            else:
                self.others.append(effect)

    @property
    def held(self) -> list[bool]:
        """Whether each lock asked for is held."""
        return [lock.held for lock in self.machine.lock_info()]

    def surrenders(self) -> list[tuple[Any, ...]]:
        """What was surrendered, and for which versions."""
        return [(cast[2], cast[3]) for cast in self.casts if cast[1] == Atom("surrender")]


@pytest.fixture
def world() -> World:
    """A fresh world."""
    return World()


# --- One lock


def test_asking(world: World) -> None:
    """A request is a cast in the agent's name, with its client's pid; what comes is the answer."""
    world.ask(A)
    assert world.casts == [(E, Atom("lock"), ["a"], MINE, CLIENT, Atom("write"))]
    world.arrives(info(A, 5, ("w", (MINE, 5))))
    assert world.answers == [LockResult("have_all_locks", ())]


def test_waiting(world: World) -> None:
    """Who stands behind the head waits; when it comes to the head it has the lock."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", HER), ("w", MINE)))
    assert world.held == [False]
    world.arrives(info(A, 6, ("w", MINE)))
    assert world.held == [True]


# --- What the original can't do


# --- Deadlocks


def deadlock(world: World) -> None:
    """`HER` and `ME` have one lock each of the other one's at one lock server."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", (MINE, 5))))
    world.ask(B)
    world.arrives(info(B, 6, ("w", (HER, 4)), ("w", (MINE, 6))))
    assert world.surrenders() == []
    world.arrives(info(A, 7, ("w", (MINE, 5)), ("w", (HER, 7))))


def test_yielding(world: World) -> None:
    """The one of ours yields, with the version told last; the info that says so is the answer."""
    deadlock(world)
    assert world.surrenders() == [(["a"], 7)]
    world.arrives(info(A, 8, ("w", (HER, 7)), ("w", (MINE, 8)), surrendered=(MINE, 7)))
    (report,) = world.machine.deadlocks
    assert (report.lock, report.agent, report.action) == ((A, E), ME, "surrendered")
    assert world.held == [False, False]
    world.arrives(info(B, 9, ("w", (MINE, 6))))
    world.arrives(info(A, 10, ("w", (MINE, 8))))
    assert world.answers[-1].status == "have_all_locks"
    assert len(world.surrenders()) == 1


# --- What an agent is told again


# --- What agents of the original pass on


def carried(lock_id: LockId, version: int, *requests: Contender) -> tuple[Any, ...]:
    """What an agent of the original was told by a lock server of ours, and passes on."""
    entries = [(Pid(c.agent.created, c.agent.node, 3), pack_request(c)) for c in requests]
    return info(lock_id, version, *[("w", entry) for entry in entries], node=P)


def contender(agent: AgentId, number: int, granted: bool) -> Contender:
    """A request at our lock server."""
    return Contender(agent, "name", B, "write", granted, number, number, number)


def test_a_deadlock_over_both_kinds_of_servers(world: World) -> None:
    """I wait for HER at hers; she waits for HIM at ours, he for me at hers: she passes that on."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", (MINE, 5)), ("w", (HIM, 5))))
    world.ask(("c",))
    world.arrives(info(("c",), 6, ("w", (HER, 4)), ("w", (MINE, 6))))
    him, her = contender(agent_of(HIM), 71, True), contender(agent_of(HER), 72, False)
    world.arrives(carried(B, 80, him, her), HER)
    assert world.surrenders() == [(["a"], 5)]


def test_records_of_our_servers_are_exact(world: World) -> None:
    """Our own lock server and the original's agents tell of the same request by the same key."""
    world.arrives(carried(B, 80, contender(OLDER, 71, True)), HER)
    (knowledge,) = world.told
    (record,) = knowledge.records
    assert record.key == (P, 71)
    assert (record.agent, record.client, record.since, record.version) == (OLDER, "name", 71, 80)
    assert knowledge.sender == agent_of(HER)


# --- Interviews


# --- Who is no more


def test_the_loss_of_a_lock_server(world: World) -> None:
    """Nothing is known of it any more; when it is back, versions may begin anew."""
    world.ask(A)
    world.arrives(info(A, 500, ("w", MINE)))
    world.servers.server_down(E)
    world.effects(world.machine.node_down(E))
    assert world.ended is not None
    other = World(await_nodes=True)
    other.ask(A)
    other.arrives(info(A, 500, ("w", MINE)))
    other.servers.server_down(E)
    other.effects(other.machine.node_down(E))
    assert other.held == [False]
    other.effects(other.machine.node_up(E))
    other.arrives(info(A, 2, ("w", MINE)))
    assert other.held == [True]


# --- Garbage

PARTS = st.recursive(
    st.sampled_from([HER, MINE, Atom("w"), Atom("r"), Atom("entry"), Atom("direct"), E, 1, [], 5]),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=6).map(tuple),
    max_leaves=10,
)


def mutated(term: Any, path: list[int], part: Any) -> Any:
    """A term with one part replaced."""
    if not path or type(term) not in (tuple, list) or not term:
        return part
    index = path[0] % len(term)
    inner = mutated(term[index], path[1:], part)
    return type(term)([*term[:index], inner, *term[index + 1 :]])


@given(st.lists(st.integers(0, 9), max_size=7), PARTS, st.booleans())
def test_garbage_is_refused(path: list[int], part: Any, answer: bool) -> None:
    """An info or an answer with a wrong part is a `BadMessage`, or means something."""
    term: Any = info(A, 5, ("r", HER, (HIM, 2)), ("w", MINE), surrendered=(HER, 4))
    if answer:
        lock = row((["a"], Atom(E)), 5, ("w", HER), ("w", HIM))
        term = ((Atom("lock_info"), HER), ([], [lock]))
    world = World()
    try:
        world.arrives(mutated(term, path, part))
    except BadMessage:
        assert world.told == []
