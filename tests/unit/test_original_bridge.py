"""The original's agents at our lock server: what they say, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from locks.core.messages import Request, ServerMessage, Surrender, ToWatcher
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, Contender, LockId
from locks.node.original.agents import OriginalAgents, OriginalWatcher
from locks.node.original.forms import (
    DemonitorPid,
    MonitorPid,
    OriginalInfo,
    SendTerm,
    ToLockServer,
    pack_request,
    read_info,
    unpack_request,
    watcher_request,
)
from locks.otp.bytes.etf import decode, encode
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Atom, Pid
from locks.ranges import one_line
from locks.wire.forms import agent_of, pid_of
from locks_lab.worlds.study import all_watchers

E, P = "e@h", "p@h"  # a node with the original, and ours
ONE, TWO, THREE = (Pid(number, E, 7) for number in (101, 102, 103))
CLIENT = Pid(99, E, 7)
OURS = agent_of(Pid(1 << 60, P, 3))
READ, WRITE = Atom("read"), Atom("write")


def lock(agent: Pid, lock_id: list[Any], mode: Atom = WRITE) -> tuple[Any, ...]:
    """What an agent casts to ask for a lock."""
    return (Atom("lock"), lock_id, agent, CLIENT, mode)


class World:
    """Our lock server, and processes of the original that have to do with it.

    Attributes:
        clients: The pids of the clients of our agents, as far as they are known.
        infos: What each process was told last of each lock.
        sent: All that was sent.
    """

    def __init__(self) -> None:
        self.machine = ServerMachine(P, 1000)
        self.clients: dict[AgentId, Pid] = {}
        self.agents = OriginalAgents(
            Pid(5, P, 3), lambda agent: pid_of(agent, 3), lambda agent: self.clients.get(agent)
        )
        self.infos: dict[tuple[Pid, LockId], OriginalInfo] = {}
        self.sent: list[SendTerm] = []
        self.monitored: set[Pid] = set()

    def cast(self, *term: Any) -> list[SendTerm]:
        """Somebody on the Erlang node casts something; returns what is sent for it."""
        return self.perform(self.agents.cast(decode(encode(term)), E))

    def perform(self, commands: list[Any]) -> list[SendTerm]:
        """Carry commands out; returns what is sent."""
        before = len(self.sent)
        for command in commands:
            if isinstance(command, ToLockServer):
                self.serve(command.message)
            elif isinstance(command, MonitorPid):
                self.monitored.add(command.pid)
            elif isinstance(command, DemonitorPid):
                self.monitored.remove(command.pid)
            else:
                assert isinstance(command, SendTerm)
                sent = SendTerm(command.to, decode(encode(command.term)))
                self.sent.append(sent)
                info = read_info(sent.term)
                if info is not None:
                    self.infos[sent.to, info.lock_id] = info
        return self.sent[before:]

    def serve(self, message: ServerMessage) -> list[SendTerm]:
        """Give a message to the lock server; returns what is sent for it."""
        before = len(self.sent)
        for effect in self.machine.handle(message):
            if isinstance(effect, ToWatcher):
                assert isinstance(effect.watcher, OriginalWatcher)
                view = self.machine.view(effect.watcher.lock_id)
                self.perform(self.agents.told(effect.watcher, view))
        return self.sent[before:]

    def queue(self, agent: Pid, *lock_id: Any) -> list[str]:
        """The queue that an agent was told: each group with its agents, indirect ones in brackets."""
        return [
            group.mode[0]
            + " "
            + " ".join(
                str(e.pid.number) if e.direct else f"({e.pid.number})" for e in group.entries
            )
            for group in self.infos[agent, lock_id].queue
        ]

    def clients_in(self, agent: Pid, *lock_id: Any) -> list[Pid]:
        """The clients in the queue that somebody was told."""
        groups = self.infos[agent, lock_id].queue
        return [entry.client for group in groups for entry in group.entries]

    def believes(self, agent: Pid, lock_id: LockId, mode: str) -> bool:
        """Whether an agent of the original thinks that it has a lock, after what it was told."""
        info = self.infos.get((agent, lock_id))
        if info is None:
            return False
        head = info.queue[0]
        holders = [entry.pid for entry in head.entries]
        if head.mode == "write" and len(holders) > 1:
            holders = []
        return agent in holders and (head.mode == "write" or mode == "read")


@pytest.fixture
def world() -> World:
    """A fresh world."""
    return World()


# --- What they are told


def test_a_lock_that_is_free(world: World) -> None:
    """The agent is watched over, and told that it is alone in the head, with its own pid."""
    (sent,) = world.cast(*lock(ONE, ["a", 1]))
    assert world.monitored == {ONE}
    assert sent.to == ONE
    _, (_, lock_id, version, server, queue, watchers), where, about = sent.term
    assert (lock_id, server, where, about) == (["a", 1], Pid(5, P, 3), Atom(P), [])
    ((group, ((entry, agent, client, _, kind),)),) = queue
    assert (group, entry, kind) == (Atom("w"), Atom("entry"), Atom("direct"))
    assert (agent, client, watchers) == (ONE, CLIENT, [])
    assert version == world.machine.version


def test_those_who_wait_stand_behind(world: World) -> None:
    """All in the queue are told each change; readers who are neighbours stand together."""
    world.cast(*lock(ONE, ["a"]))
    world.cast(*lock(TWO, ["a"], READ))
    sent = world.cast(*lock(THREE, ["a"], READ))
    assert {each.to for each in sent} == {ONE, TWO, THREE}
    assert world.queue(THREE, "a") == ["w 101", "r 102 103"]
    world.serve(Request(OURS, "mine", ("a",), "write"))
    assert world.queue(ONE, "a") == ["w 101", "r 102 103", f"w {OURS.created}"]
    world.perform(world.agents.down(ONE))
    assert world.queue(TWO, "a") == ["r 102 103", f"w {OURS.created}"]


# --- Surrender


def test_surrender(world: World) -> None:
    """With the version told last it is carried out, and the queue says so to all in it."""
    world.cast(*lock(ONE, ["a"]))
    world.cast(*lock(TWO, ["a"]))
    version = world.infos[ONE, ("a",)].version
    sent = world.cast(Atom("surrender"), ["a"], version, ONE)
    assert world.queue(TWO, "a") == ["w 102", "w 101"]
    assert [each.term[3] for each in sent] == [(Atom("surrender"), ONE, version)] * 2
    world.cast(*lock(THREE, ["a"]))
    assert world.infos[TWO, ("a",)].surrender is None


# --- Who goes


def test_an_agent_goes(world: World) -> None:
    """By its own word, cast or sent, or by its death: others get what it had."""
    for leave in ("cast", "death", "node"):
        world.cast(*lock(ONE, ["a"]))
        world.cast(*lock(TWO, ["a"], READ))
        if leave == "cast":
            world.cast(Atom("remove_agent"), ONE)
            assert world.monitored == {TWO}
        elif leave == "death":
            world.perform(world.agents.down(ONE))
        else:
            world.perform(world.agents.node_down(E))
            assert not world.machine.table.requesters
            break
        assert world.queue(TWO, "a") == ["r 102"]
        world.perform(world.agents.down(TWO))
    assert all_watchers(world.machine) == []


# --- Watching


def test_watching(world: World) -> None:
    """At first only that somebody has it; then each change, the last one with an empty queue."""
    world.cast(*lock(ONE, ["a"]))
    (sent,) = world.cast(Atom("watch"), ["a"], TWO)
    assert sent == SendTerm(TWO, (Atom("locks_info"), ["a"], Atom(P), []))
    world.cast(*lock(THREE, ["a"]))
    assert world.queue(TWO, "a") == ["w 101", "w 103"]
    assert world.sent[-1].term[1][5] == [TWO]
    for agent in (ONE, THREE):
        world.perform(world.agents.down(agent))
    assert world.queue(TWO, "a") == []
    world.cast(Atom("unwatch"), ["a"], TWO)
    assert world.monitored == {ONE, THREE}
    assert world.cast(*lock(ONE, ["a"]))[0].to == ONE


# --- What is refused


@pytest.mark.parametrize(
    "term",
    [
        lock(ONE, []),
        lock(ONE, ["a"], Atom("rw")),
        (Atom("lock"), "a", ONE, CLIENT, WRITE),
        (Atom("lock"), ["a"], ONE, "me", WRITE),
        (Atom("lock"), ["a"], (ONE, 1), CLIENT, WRITE),
        lock(Pid(1, "f@h", 7), ["a"]),
        (Atom("watch"), ["a"], Pid(1, P, 3)),
        (Atom("remove_agent"), pid_of(OURS, 3)),
        (Atom("remove_agent"), Atom("name")),
        (Atom("surrender"), ["a"], 1, pid_of(OURS, 3)),
        (Atom("unlock"), ["a"], ONE),
        (Atom("lock"),),
        (),
        ["lock"],
        Atom("stop"),
    ],
)
def test_what_is_refused_changes_nothing(world: World, term: Any) -> None:
    """What the original doesn't say, and what a node says for processes of another one."""
    world.serve(Request(OURS, "mine", ("a",), "write"))
    version = world.machine.version
    with pytest.raises(BadMessage):
        world.agents.cast(term, E)
    assert world.machine.version == version
    assert all_watchers(world.machine) == []
    assert world.cast(*lock(ONE, ["a"])) != []


ANYTHING = st.recursive(
    st.sampled_from(
        [ONE, pid_of(OURS, 3), Atom("lock"), Atom("read"), READ, 1, "a", b"\xff", None]
    ),
    lambda inner: st.lists(inner, max_size=5) | st.lists(inner, max_size=6).map(tuple),
    max_leaves=12,
)
TAGS = st.sampled_from(["lock", "surrender", "remove_agent", "watch", "unwatch"]).map(Atom)


@given(st.tuples(TAGS, st.lists(ANYTHING, max_size=4)).map(lambda t: (t[0], *t[1])) | ANYTHING)
def test_garbage_is_refused(term: Any) -> None:
    """Whatever comes is carried out, or is a `BadMessage` and changes nothing."""
    world = World()
    try:
        world.cast(*term) if type(term) is tuple else world.agents.cast(term, E)
    except BadMessage:
        assert world.machine.version == 1000
        assert not world.monitored


# --- They think what is true

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["lock", "lock", "lock", "lock", "surrender", "remove", "ours", "ours-gives"]
        ),
        st.integers(0, 3),
        st.sampled_from([("t",), ("t", 1), ("t", 2), ("t", 1, 1), ("u",)]),
        st.sampled_from(["read", "write"]),
    ),
    max_size=30,
)


@given(STEPS)
def test_agents_of_the_original_believe_what_is_true(steps: list[Any]) -> None:
    """After each step: each thinks that it has a lock if and only if the lock table has granted it,
    and finds in the head everybody with a grant that is in its way."""
    world = World()
    for what, number, lock_id, mode in steps:
        note(f"{what} {number} {lock_id} {mode}")
        agent, ours = Pid(101 + number, E, 7), agent_of(Pid((1 << 60) + number, P, 3))
        if what == "lock":
            world.cast(*lock(agent, list(lock_id), Atom(mode)))
        elif what == "surrender" and (agent, lock_id) in world.infos:
            world.cast(Atom("surrender"), [*lock_id], world.infos[agent, lock_id].version, agent)
        elif what == "remove":
            world.cast(Atom("remove_agent"), agent)
            for key in [key for key in world.infos if key[0] == agent]:
                del world.infos[key]
        elif what == "ours":
            world.serve(Request(ours, "mine", lock_id, mode))
        elif what == "ours-gives":
            world.serve(Surrender(ours, lock_id))
        check(world)


def check(world: World) -> None:
    """Compare what agents of the original were told with the lock table."""
    table = world.machine.table
    for owner in table.requesters.values():
        if owner.id.node != E:
            continue
        pid = Pid(owner.id.created, E, 7)
        for slot, entries in owner.entries.items():
            has = {entry.mode for entry in entries if entry.granted}
            assert world.believes(pid, slot.lock_id, "write") == ("write" in has)
            assert world.believes(pid, slot.lock_id, "read") == bool(has)
            if has:
                continue
            head = {entry.agent for entry in world.infos[pid, slot.lock_id].queue[0].entries}
            tail = world.infos[pid, slot.lock_id].queue[1:]
            assert any(e.pid == pid for group in tail for e in group.entries)
            for other in table.related(slot.lock_id):
                conflicts = "write" in {entry.mode for entry in (other, *entries)}
                if other.granted and other.requester is not owner and conflicts:
                    assert other.requester.id in head


# --- Records that travel in the versions of entries


@given(
    st.builds(
        Contender,
        st.just(OURS),
        st.text(max_size=20),
        st.lists(st.integers(-(2**62), 2**62) | st.text(max_size=9), min_size=1, max_size=4).map(
            tuple
        ),
        st.sampled_from(["read", "write"]),
        st.booleans(),
        st.integers(1, 2**50),
        st.integers(1, 2**63 - 1),
        st.integers(0, 2**40) | st.fractions(0, 2**20),
    )
)
def test_records_come_back_exactly(contender: Contender) -> None:
    """What was packed into a number is the same record, wherever it is unpacked."""
    place = contender.place
    assume(type(place) is int or place.denominator > 1)
    record = unpack_request(pack_request(contender), OURS, P, 77)
    assert record is not None
    assert record[:3] == (P, contender.number, OURS)
    assert (record.client, record.lock_id) == (one_line(contender.client), contender.lock_id)
    assert (record.mode, record.since) == (contender.mode, contender.version)
    assert (record.state == "granted") == contender.granted
    assert (record.place, type(record.place)) == (place, type(place))
    assert (record.blocked, record.version) == (True, 77)


# --- Who asks to be told of a lock server

CODE = [(Atom("case"), 1, [(Atom("call"), Atom("whereis"), [Atom("locks_server")])])]


@pytest.mark.parametrize(
    "request_",
    [
        (Atom("os"), Atom("cmd"), ["rm"]),
        (Atom("erl_eval"), Atom("exprs"), [CODE, [(Atom("Agent"), ONE)]]),
        (Atom("erl_eval"), Atom("exprs"), [[Atom("locks_running")], [(Atom("X"), ONE)]]),
        (Atom("erl_eval"), Atom("exprs"), [CODE, [(Atom("Agent"), "me")]]),
        (Atom("erl_eval"), Atom("exprs"), [CODE]),
        (Atom("erl_eval"), Atom("exprs"), None),
        ("erl_eval", "exprs", [CODE, [(Atom("Agent"), ONE)]]),
    ],
)
def test_all_other_code_is_refused(request_: Any) -> None:
    """Nothing else is taken for it."""
    assert watcher_request(*request_) is None
