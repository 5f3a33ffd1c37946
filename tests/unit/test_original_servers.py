"""Our agents at the original's lock servers, and among its agents: what they say, what they learn."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AnswerWait,
    Ended,
    Inquire,
    Knowledge,
    RaiseVersion,
    Remove,
    Request,
    RequestStates,
    StandingElsewhere,
    ToAgent,
    ToServer,
    VersionRaised,
    Watch,
)
from locks.core.server.machine import ServerMachine
from locks.errors import ConflictingRequest, DeadlockAborted, MisuseError
from locks.lock_ids import counted
from locks.model import AgentId, Contender, LockId, LockResult
from locks.node.original.agents import around
from locks.node.original.forms import CastServer, SendTerm, lock_id_of, pack_request
from locks.node.original.servers import OFTEN, PATIENCE, OriginalServers, cannot_unlock
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


def test_infos_that_are_outdated(world: World) -> None:
    """Of two infos of a lock the one with the larger version counts, whatever comes last."""
    world.ask(A)
    world.arrives(info(A, 6, ("w", MINE)))
    world.arrives(info(A, 5, ("w", HER), ("w", MINE)))
    assert world.held == [True]


def test_several_writers_in_the_head(world: World) -> None:
    """Nobody has the lock by that: they have something above or below."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", (HER, 1, "indirect"), MINE)))
    assert world.held == [False]


def test_readers_in_the_head(world: World) -> None:
    """All of them have it, to read."""
    world.ask(A, "read")
    world.arrives(info(A, 5, ("r", HER, MINE), ("w", HIM)))
    assert world.held == [True]
    world.ask(A, "write")
    world.arrives(info(A, 6, ("r", HER, MINE), ("w", HIM), ("w", MINE)))
    assert world.held == [False]


def test_a_write_lock_for_who_wants_to_read(world: World) -> None:
    """The original may make one of it, where something below is written already."""
    world.ask(A, "read")
    world.arrives(info(A, 5, ("w", MINE)))
    assert world.held == [True]
    assert len(world.answers) == 1


def test_what_it_has_above_or_below_is_not_the_lock(world: World) -> None:
    """An indirect entry does not mean that the id was asked for."""
    world.ask(("t", 1))
    world.arrives(info(("t",), 5, ("w", (MINE, 5, "indirect"))))
    assert world.held == [False]
    world.arrives(info(("t", 1), 5, ("w", (MINE, 5))))
    assert world.held == [True]


def test_a_read_lock_that_vanishes(world: World) -> None:
    """In the original it goes when its owner's upgrade must wait: the client is not left believing."""
    world.ask(A, "read")
    world.arrives(info(A, 5, ("r", MINE)))
    world.ask(A, "write")
    world.arrives(info(A, 6, ("w", HER), ("w", MINE)))
    assert world.held == [False]
    with pytest.raises(Exception, match="surrendered"):
        world.machine.ensure_held(A)


def test_the_agent_goes(world: World) -> None:
    """At its end it is taken out."""
    world.ask(A)
    world.effects(world.machine.end_transaction())
    assert world.casts[-1] == (E, Atom("remove_agent"), MINE)


# --- What the original can't do


def test_what_is_given_up_stays(world: World) -> None:
    """A request that is withdrawn is still there; a grant that comes for it does no harm."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", HER), ("w", MINE)))
    world.effects(world.machine.abandon_wait(A))
    assert world.machine.empty
    world.arrives(info(A, 6, ("w", MINE)))
    assert world.machine.empty
    world.ask(A)
    assert len(world.casts) == 2
    world.arrives(info(A, 7, ("w", (MINE, 7))))
    assert world.held == [True]


def test_asking_again_before_it_has_answered(world: World) -> None:
    """A request is withdrawn and made again before anything has come: the first info serves it."""
    world.ask(A)
    world.effects(world.machine.abandon_wait(A))
    world.ask(A)
    assert len(world.casts) == 2
    world.arrives(info(A, 5, ("w", MINE)))
    assert world.held == [True]


def test_tokens_and_watching_are_refused(world: World) -> None:
    """Versions are never confirmed there, and our views can't be asked for."""
    (told,) = world.servers.send(ME, E, RaiseVersion(ME, A, 5, 6))
    assert told == ToAgent(ME, VersionRaised(E, A, 5, 6, False))
    election = (Atom("locks_leader"), "r")  # only Python nodes count for its token
    (told,) = world.servers.send(ME, E, RaiseVersion(ME, election, 5, 6))
    assert told == ToAgent(ME, VersionRaised(E, election, 5, 6, True))
    with pytest.raises(MisuseError, match="runs the Erlang original"):
        world.servers.send(ME, E, Watch("me", A))
    assert "until the transaction ends" in str(cannot_unlock(A, E))


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


def test_a_surrender_that_came_too_late(world: World) -> None:
    """The queue had changed: the change is the answer, and another surrender follows."""
    deadlock(world)
    world.arrives(info(A, 8, ("w", (MINE, 5)), ("w", (HER, 7)), ("w", (HIM, 8))))
    assert not world.machine.deadlocks
    assert world.surrenders() == [(["a"], 7), (["a"], 8)]
    world.arrives(info(A, 9, ("w", HER), ("w", HIM), ("w", MINE), surrendered=(MINE, 8)))
    assert len(world.machine.deadlocks) == 1


def test_a_surrender_of_somebody_else_is_no_answer(world: World) -> None:
    """Only a note with the own name and version means that it was carried out."""
    deadlock(world)
    world.arrives(info(A, 8, ("w", (MINE, 5)), ("w", (HER, 8)), surrendered=(HER, 7)))
    assert not world.machine.deadlocks
    assert len(world.surrenders()) == 2


def test_an_upgrade_is_asked_for_again(world: World) -> None:
    """The original forgets an upgrade that waits when its agent surrenders."""
    world.ask(A, "read")
    world.arrives(info(A, 5, ("r", (MINE, 5), (HER, 4))))
    world.ask(A, "write")
    world.arrives(info(A, 6, ("r", (MINE, 5), (HER, 4)), ("w", (HER, 5)), ("w", (MINE, 6))))
    assert world.surrenders() == [(["a"], 6)]
    before = len(world.casts)
    world.arrives(info(A, 7, ("r", HER), ("w", HER), ("r", (MINE, 7)), surrendered=(MINE, 6)))
    again = (E, Atom("lock"), ["a"], MINE, CLIENT, Atom("write"))
    assert world.casts[before:] == [again]
    world.arrives(info(A, 8, ("r", MINE), ("w", (MINE, 8))))
    world.arrives(info(A, 9, ("w", (MINE, 8))))
    assert world.held == [True]


def test_a_request_that_became_indirect_is_asked_for_again(world: World) -> None:
    """So does it with a request, where the agent has something below as well."""
    world.ask(("t",))
    world.arrives(info(("t",), 5, ("w", HER), ("w", MINE)))
    taken = info(("t",), 6, ("w", HER), ("w", (MINE, 6, "indirect")), surrendered=(MINE, 5))
    world.arrives(taken)
    assert world.casts[-1] == (E, Atom("lock"), ["t"], MINE, CLIENT, Atom("write"))


def test_a_reader_may_wait_behind_readers(world: World) -> None:
    """Readers who become neighbours don't join in the original; that wait counts as well."""
    world.ask(B)
    world.arrives(info(B, 3, ("w", (MINE, 3))))
    world.ask(A, "read")
    world.arrives(info(A, 5, ("r", (HER, 1)), ("r", (MINE, 4))))
    assert world.held == [True, False]
    world.arrives(info(B, 6, ("w", (MINE, 3)), ("w", (HER, 6))))
    assert world.surrenders() == [(["b"], 6)]


def test_yielding_for_who_waits_for_a_table(world: World) -> None:
    """The row of the table is surrendered, so that all that is below goes at once."""
    world.ask(("t", 1))
    world.arrives(info(("t", 1), 5, ("w", (MINE, 5))))
    world.ask(B)
    world.arrives(info(B, 6, ("w", (HER, 4)), ("w", (MINE, 6))))
    world.arrives(info(("t",), 7, ("w", (MINE, 5, "indirect")), ("w", (HER, 7))))
    assert world.surrenders() == [(["t"], 7)]
    after = (("w", (HER, 7)), ("w", (MINE, 8, "indirect")))
    world.arrives(info(("t",), 8, *after, surrendered=(MINE, 7)))
    (report,) = world.machine.deadlocks
    assert report.lock == (("t",), E)
    assert report.cycle[0].holder.lock_id == ("t",)


def test_entries_that_were_never_asked_for(world: World) -> None:
    """The original carries entries over to other rows. They can't be given up, and are not known."""
    world.ask(("t", 1))
    world.arrives(info(("t", 1), 5, ("w", (MINE, 5))))
    world.ask(B)
    world.arrives(info(B, 6, ("w", (HER, 4)), ("w", (MINE, 6))))
    world.arrives(info(("t", 2), 7, ("w", (MINE, 5, "indirect")), ("w", (HER, 7))))
    assert world.surrenders() == []


def test_aborting() -> None:
    """Everything is given up at once, as soon as the edge is known."""
    world = World(abort_on_deadlock=True)
    deadlock(world)
    assert (E, Atom("remove_agent"), MINE) in world.casts
    assert isinstance(world.answers[-1], DeadlockAborted)
    assert world.ended is not None


def test_who_surrenders_too_often_is_answered_later(world: World) -> None:
    """Two of ours may undo what the other one does, over and over: then one of them pauses."""
    deadlock(world)
    version = 7
    for _ in range(OFTEN + 1):
        assert world.surrenders()[-1] == (["a"], version)
        version += 2
        note = (MINE, version - 2)
        world.arrives(info(A, version, ("w", (MINE, version)), ("w", HER), surrendered=note))
    assert world.machine.status() == "waiting"
    assert len(world.surrenders()) == OFTEN + 1
    world.commands(world.servers.interview(ME, []))
    assert len(world.surrenders()) == OFTEN + 2


def test_a_surrender_of_which_nothing_comes(world: World) -> None:
    """After some time it is taken to be refused, and what is known is looked at again."""
    deadlock(world)
    for _ in range(PATIENCE):
        world.commands(world.servers.interview(ME, []))
    assert len(world.surrenders()) == 1
    world.commands(world.servers.interview(ME, []))
    assert len(world.surrenders()) == 2


# --- What an agent is told again


def test_who_begins_to_wait_is_told_who_waits_for_it(world: World) -> None:
    """What came while it did not wait was of no interest; it is told again, once."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", (MINE, 5)), ("w", (HER, 4))))
    world.ask(B)
    world.arrives(info(B, 6, ("w", (HER, 4)), ("w", (MINE, 6))))
    assert world.surrenders() == [(["a"], 5)]


def test_who_waits_elsewhere_is_told_who_waits_for_it(world: World) -> None:
    """`StandingElsewhere`, a request that says so, and `Inquire` bring what is known there."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", (MINE, 5)), ("w", (HER, 4))))
    for message in (StandingElsewhere(ME, True, True), Inquire(ME)):
        (told,) = world.servers.send(ME, E, message)
        assert isinstance(told, ToAgent)
        assert isinstance(told.message, RequestStates)
        assert {record.agent for record in told.message.records} == {ME, agent_of(HER)}
    assert world.servers.send(ME, E, StandingElsewhere(ME, True, True)) == []
    assert world.servers.send(ME, F, Inquire(ME)) == []


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


def test_what_is_gone_since(world: World) -> None:
    """Who stands in the queue no more in a newer info is gone."""
    for node in (E, P):
        world.told.clear()
        if node == E:
            world.arrives(info(A, 5, ("w", HER), ("w", HIM)))
            world.arrives(info(A, 6, ("w", HIM)))
        else:
            her, him = contender(agent_of(HER), 71, True), contender(agent_of(HIM), 72, False)
            world.arrives(carried(B, 80, her, him))
            world.arrives(carried(B, 81, him))
        first, second = world.told
        assert [r.state for r in first.records] == ["granted", "waiting"]
        gone = [r for r in second.records if r.state == "gone"]
        assert [record.agent for record in gone] == [agent_of(HER)]


def test_who_has_forgotten_is_told_again(world: World) -> None:
    """An agent that did not wait asks whoever told it something: we answer for all of them."""
    world.arrives(info(A, 5, ("w", HER), ("w", HIM)), HIM)
    world.arrives(carried(B, 80, contender(OLDER, 71, True)), HER)
    told = [record for message in world.told for record in message.records]
    (again,) = world.servers.forgot(agent_of(HIM), ME)
    assert isinstance(again, ToAgent)
    assert isinstance(again.message, Knowledge)
    assert set(again.message.records) == set(told)
    assert world.servers.forgot(agent_of(HER), ME) == []  # one answer is enough
    assert world.servers.forgot(agent_of(HIM), OLDER) == []


def test_other_messages_of_agents(world: World) -> None:
    """That somebody has surrendered is said by the lock server as well."""
    world.arrives((Atom("surrendered"), HER, (["a"], Atom(E)), 5))
    world.arrives((Atom("locks_info"), ["a"], Atom(E), []))
    assert world.told == []


# --- Interviews


def test_an_interview(world: World) -> None:
    """Those of the original that it is entangled with are asked, as by a `gen_server` call."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", (MINE, 5)), ("w", (HIM, 4))))
    world.ask(B)
    world.arrives(info(B, 6, ("w", (HER, 4)), ("w", (MINE, 6))))
    entangled = world.servers.entangled(ME, world.machine.outlook())
    assert set(entangled) == {agent_of(HER), agent_of(HIM)}
    world.commands(world.servers.interview(ME, entangled))
    assert {to for to, _ in world.sent} == {pid_of(agent_of(pid), 3) for pid in (HER, HIM)}
    for to, term in world.sent:
        assert term == (Atom("$gen_call"), (MINE, (Atom("lock_info"), to)), Atom("lock_info"))
    assert world.surrenders() == []
    # She knows for whom she waits: that closes the circle.
    known = row((["c"], Atom(F)), 3, ("w", (HIM, 2)), ("w", (HER, 3)), node=F)
    mine = row((["b"], Atom(E)), 99, ("w", (HER, 4)))  # what the lock server tells itself counts
    world.arrives(((Atom("lock_info"), HER), ([], [known, mine])))
    assert world.surrenders() == [(["a"], 5)]
    assert world.held == [True, False]


def test_who_does_not_wait_asks_nobody(world: World) -> None:
    """Without an outlook there is nothing to ask."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", (MINE, 5)), ("w", (HIM, 4))))
    assert world.servers.entangled(ME, world.machine.outlook()) == []
    assert world.servers.interview(ME, []) == []


def test_what_a_lock_server_of_ours_knows_about_them(world: World) -> None:
    """It is taken in as far as it is newer; what it does not say of an agent is not there."""
    machine = ServerMachine(P, 100)
    her, him = agent_of(HER), agent_of(HIM)
    for agent in (her, him, OLDER):
        machine.handle(Request(agent, "name", B, "write", True, True))
    machine.handle(Request(OLDER, "name", ("c",), "write"))
    found, records = around(machine.table, P, [her], {E, F}.__contains__)
    assert found == [her, him]  # he waits for her
    assert {(r.agent, r.lock_id, r.state) for r in records} == {
        (her, B, "granted"),
        (him, B, "waiting"),
        (OLDER, B, "waiting"),
    }
    (told,) = world.servers.informed(ME, P, machine.version, found, records)
    assert isinstance(told, ToAgent)
    assert told.message == Knowledge(her, tuple(records))
    assert world.servers.informed(ME, P, machine.version, found, records) == []
    machine.handle(Remove(her))
    found, records = around(machine.table, P, [her, him], {E, F}.__contains__)
    assert world.servers.informed(ME, P, 1, found, ()) == []  # outdated: it says nothing
    (told,) = world.servers.informed(ME, P, machine.version, found, records)
    assert isinstance(told, ToAgent)
    states = {(r.agent, r.state) for r in told.message.records}  # type: ignore[union-attr]
    assert states == {(her, "gone"), (him, "granted")}


def test_a_circle_that_only_a_lock_server_of_ours_knows(world: World) -> None:
    """I wait for HER at hers, she waits for HIM at ours, and he for me: nobody passes that on."""
    world.ask(A)
    world.arrives(info(A, 5, ("w", (MINE, 5)), ("w", (HIM, 5))))
    world.ask(("c",))
    world.arrives(info(("c",), 6, ("w", (HER, 4)), ("w", (MINE, 6))))
    machine = ServerMachine(P, 100)
    for pid in (HIM, HER):
        machine.handle(Request(agent_of(pid), "name", B, "write", True, True))
    entangled = world.servers.entangled(ME, world.machine.outlook())
    known = around(machine.table, P, entangled, {E, F}.__contains__)
    world.commands(world.servers.informed(ME, P, machine.version, *known))
    assert world.surrenders() == [(["a"], 5)]


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


def test_the_loss_of_a_node_with_agents(world: World) -> None:
    """What its agents have is gone, wherever that was told."""
    world.arrives(carried(B, 80, contender(agent_of(HER), 71, True), contender(OLDER, 72, False)))
    world.arrives(info(A, 5, ("w", HER), ("w", pid_of(OLDER, 3)), node=F))
    world.told.clear()
    world.commands(world.servers.node_down(E))
    (knowledge,) = world.told
    assert {(record.node, record.state) for record in knowledge.records} == {
        (P, "gone"),
        (F, "gone"),
    }
    (again,) = world.servers.forgot(knowledge.sender, ME) or [None]
    assert again is None or {r.agent for r in again.message.records} == {OLDER}


def test_the_death_of_an_agent(world: World) -> None:
    """Likewise, for one of them."""
    world.arrives(carried(B, 80, contender(agent_of(HER), 71, True)), HIM)
    world.commands(world.servers.down(HER))
    assert [record.state for record in world.told[-1].records] == ["gone"]
    assert world.servers.down(HIM) == []


def test_our_agents_are_forgotten(world: World) -> None:
    """Nothing is kept for agents that have ended."""
    world.arrives(carried(B, 80, contender(OLDER, 71, True)), HER)
    world.servers.keep([ME])
    assert world.servers.forgot(agent_of(HER), ME)
    world.servers.keep([])
    assert world.servers.forgot(agent_of(HER), ME) == []


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


def test_numbers_of_requests_are_the_same_everywhere() -> None:
    """Two of our agents, also on different nodes, tell of a request by the same key."""
    keys = []
    for me, order in itertools.product((ME, OLDER), ((HER, HIM), (HIM, HER))):
        servers = OriginalServers(lambda agent: pid_of(agent, 3), {E}.__contains__)
        told = servers.receive(me, info(A, 5, ("w", order[0]), ("w", order[1])))
        keys.append({(r.key, r.agent) for c in told for r in c.message.records})  # type: ignore[union-attr]
    assert all(each == keys[0] for each in keys)
    assert len({key for key, _ in keys[0]}) == 2


def test_counted_locks_are_refused() -> None:
    """The original has none: our agents are told so, and it is cast nothing; nor can it ask for one here."""
    world = World()
    world.ask(counted(("pool",), 3))
    assert world.casts == []
    (answer,) = world.answers
    assert isinstance(answer, ConflictingRequest)
    assert (
        f"can't request the counted lock pool*3 on {E}: that node runs the Erlang original"
        in str(answer)
    )
    assert world.held == []
    with pytest.raises(BadMessage, match="counted lock"):
        lock_id_of(["pool", ("$units", 3)])
