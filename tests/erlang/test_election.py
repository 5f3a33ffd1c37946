"""The original's candidates and one of ours stand in one election; ours says what is prescribed.

Ours is a process that says only what `Originals` has it say, and a contest for the lock: no machine of
ours decides anything here. So what is tested is what the original makes of what it is told.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pykka
import pytest

import locks
from locks import groups
from locks.otp.bytes.behaviours import parse_call, parse_cast
from locks.otp.bytes.etf import encode
from locks.otp.bytes.terms import Atom, Pid
from locks_leader.core import messages as ours
from locks_leader.core.events import Resync
from locks_leader.original.bridge import (
    Command,
    Hear,
    Meet,
    Originals,
    TellOriginal,
    holder_in,
)
from locks_leader.original.messages import (
    parse,
)
from tests.erlang.conftest import PYTHON
from tests.erlang.erlang import Erlang
from tests.helpers import eventually

ERLANG = "e@127.0.0.1"
PUT = Atom("put")
LEADER_CALL, LEADER_CAST = Atom("$locks_leader_call"), Atom("$locks_leader_cast")
_elections = itertools.count(1)


def group_term(lock_id: tuple[Any, ...]) -> tuple[Any, ...]:
    """The process group in which the original's candidates for a lock meet."""
    return (Atom("locks_leader"), list(lock_id))


class Client(pykka.ThreadingActor):
    """Calls what it is asked to call: it is the client of the transaction."""

    def on_receive(self, message: Any) -> Any:
        """Call it."""
        return message()


class Candidate:
    """One of ours: it leads as long as it has the lock, and follows whom `Originals` lets it follow.

    Attributes:
        lock_id: The election's lock.
        pid: How the original knows it.
        leader: Whom it follows.
        state: The dictionary.
        heard: What its machine would have been told.
        received: All that it was sent, as it was sent.
        requests: What the leader was asked to do.
    """

    def __init__(self, node: locks.node.Node, resource: str) -> None:
        assert node.cluster is not None
        self._node = node
        self._processes = node.cluster.processes
        self.lock_id = (Atom("locks_leader"), resource)
        self._client = Client.start()
        self._pids: list[Pid] = []
        node.turn.run(self._introduce)
        (self.pid,) = self._pids
        self._originals = Originals(self.pid, "candidate")
        self.agent = locks.original.spawn_agent(client=self._client, await_nodes=True)
        self.state: Any = {}
        self.leader: Any = None
        self._led: dict[Any, None] = {}
        self.heard: list[Command] = []
        self.received: list[Any] = []
        self.requests: list[Any] = []
        self._terms = itertools.count(1)
        locks.watch(self.lock_id, watcher=self._viewed)
        groups.join(group_term(self.lock_id), self._client)

    def _introduce(self) -> None:
        self._pids.append(self._processes.pid_of(self._client, self._deliver))

    def _viewed(self, view: locks.values.View) -> None:
        self._node.turn.post(lambda: self._perform(self._originals.granted(holder_in(view))))

    def ask(self, *nodes: str) -> None:
        """Ask for the lock."""
        objects = (self.agent, self.lock_id, "write", list(nodes), "all_alive")
        self._client.ask(lambda: locks.original.lock_nowait(*objects))

    @property
    def leads(self) -> bool:
        """Whether it has the lock wherever it has asked for it."""
        infos = locks.original.lock_info(self.agent)
        return bool(infos) and all(info.held for info in infos)

    def announce(self, *members: Pid) -> None:
        """Tell some of the original's that it leads them."""
        for member in members:
            self._say(member, ours.Announce(next(self._terms), self.state))
            self._led[member] = None

    def put(self, key: str, value: Any) -> None:
        """Do as a leader: change the dictionary, and pass it on."""
        self.state = {**self.state, key: value}
        for member in self._led:
            self._say(member, ours.FromLeader(0, (PUT, key, value)))

    def token(self) -> int:
        """The fencing token of the lock: its term."""
        token: int = self._client.ask(
            lambda: locks.original.fencing_token(self.agent, self.lock_id, timeout=5)
        )
        return token

    def resign(self) -> None:
        """Step down, and give up the lock."""
        for member in self._led:
            self._say(member, ours.Resign(0))
        self._led.clear()
        self._client.ask(lambda: locks.original.end_transaction(self.agent))

    def forward(self, number: int, request: Any) -> None:
        """Pass a call on to the leader that it follows."""
        self._say(self.leader, ours.Forward(number, request))

    def tell(self, member: Pid, term: Any) -> None:
        """Send a term to a process of the original."""
        self._node.turn.post(lambda: self._processes.send(member, encode(term)))

    def stop(self) -> None:
        """End, with its transaction."""
        self._client.stop()

    def _say(self, member: Pid, message: ours.Message) -> None:
        self._node.turn.post(lambda: self._perform(self._originals.send(member, message)))

    def _deliver(self, term: Any, sender: Pid | None) -> None:
        self.received.append(term)
        call, cast = parse_call(term), parse_cast(term)
        message = parse(term)
        if call is not None:
            caller, tag, request = call
            if type(request) is tuple and request[:1] == (LEADER_CALL,):
                self.requests.append(request[1])
                answer = (Atom("$locks_leader_reply"), ("done", 1))
                self._processes.answer(caller, tag, answer)
            else:
                self._processes.answer(caller, tag, self.state)
        elif type(cast) is tuple and cast[:1] == (LEADER_CAST,):
            self.requests.append(cast[1])
        elif message is not None:
            self._perform(self._originals.receive(message))

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, TellOriginal):
                assert isinstance(command.member, Pid)
                self._processes.send(command.member, encode(command.term))
                continue
            self.heard.append(command)
            if isinstance(command, (Resync, Meet)):
                self._perform(
                    self._originals.send(
                        command.member, ours.Announce(next(self._terms), self.state)
                    )
                )
                self._led[command.member] = None
            elif isinstance(command, Hear):
                self._hear(command.sender, command.message)

    def _hear(self, sender: Any, message: ours.Message) -> None:
        if isinstance(message, ours.Announce):
            self.leader, self.state = sender, message.payload
        elif isinstance(message, ours.FromLeader) and sender == self.leader:
            if type(message.payload) is tuple:
                _, key, value = message.payload
                self.state = {**self.state, key: value}
            else:
                self.state = message.payload
        elif isinstance(message, ours.Resign) and sender == self.leader:
            self.leader = None


class Theirs:
    """A candidate of the original, or a worker."""

    def __init__(self, node: Erlang, name: str, resource: str, *, worker: bool = False) -> None:
        self._node = node
        self._group = group_term((Atom("locks_leader"), resource))
        start = "start_worker" if worker else "start"
        ok, self.pid = node.call(name, "candidate", start, resource, {name: 1})
        assert ok == Atom("ok")

    @property
    def leader(self) -> Any:
        """Whom it takes for its leader."""
        return self._node.call("asks", "candidate", "leader", self.pid)

    @property
    def state(self) -> Any:
        """Its dictionary."""
        return self._node.call("asks", "candidate", "dictionary", self.pid)

    def leader_call(self, request: Any) -> Any:
        """Call the leader through it."""
        return self._node.call("calls", "locks_leader", "leader_call", self.pid, request)

    def leader_cast(self, request: Any) -> None:
        """Cast to the leader through it."""
        self._node.call("calls", "locks_leader", "leader_cast", self.pid, request)

    def die(self) -> None:
        """It is killed, and with it the process that has started it.

        It leaves its group before. In OTP 25.2 the process groups of a node break down, and with them
        the original, when a process ends that watches a group and is in it.
        """
        self._node.call("kills", "locks_pg", "leave", self._group, self.pid)
        self._node.call("kills", "driver", "kill", self.pid)


@pytest.fixture
def other(node: locks.node.Node, more_erlang: Callable[..., Erlang]) -> Erlang:
    """A second node with the original, connected with all."""
    other = more_erlang("f@127.0.0.1")
    assert node.connect(other.name)
    eventually(lambda: other.name in node.alive)
    assert other.call("main", "net_adm", "ping", Atom(ERLANG)) == Atom("pong")
    return other


Start = Callable[..., Theirs]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts instances of the original, which end with the test."""
    started: list[Theirs] = []

    def start(node: Erlang, name: str, mine: Candidate, **options: bool) -> Theirs:
        started.append(Theirs(node, name, mine.lock_id[1], **options))
        return started[-1]

    yield start
    for each in started:
        each.die()


@pytest.fixture
def mine(node: locks.node.Node) -> Iterator[Candidate]:
    """One of ours."""
    candidate = Candidate(node, f"election {next(_elections)}")
    yield candidate
    candidate.stop()


def lead(mine: Candidate, *nodes: str) -> None:
    """Ours gets the lock before the others ask for it."""
    mine.ask(PYTHON, *nodes)
    eventually(lambda: mine.leads)


def test_candidates_of_the_original_follow_ours(
    mine: Candidate, erlang: Erlang, other: Erlang, start: Start
) -> None:
    """They take our state over, what we broadcast next, and pass calls and casts on to us."""
    mine.state = {"ours": 0}
    lead(mine, ERLANG, other.name)
    theirs = [start(each, f"c{i}", mine) for i, each in enumerate((erlang, other))]
    mine.announce(*(each.pid for each in theirs))
    mine.put("early", 1)  # before they have asked for the announcement
    eventually(lambda: [each.leader for each in theirs] == [mine.pid] * 2)
    eventually(lambda: [each.state for each in theirs] == [{"ours": 0, "early": 1}] * 2)
    mine.put("later", 2)
    eventually(lambda: theirs[1].state == {"ours": 0, "early": 1, "later": 2})
    assert theirs[0].leader_call((PUT, "k", "v")) == ("done", 1)
    theirs[1].leader_cast((PUT, "k", "w"))
    eventually(lambda: mine.requests == [(PUT, "k", "v"), (PUT, "k", "w")])


def test_when_ours_resigns_or_dies_one_of_the_original_leads(
    node: locks.node.Node, erlang: Erlang, start: Start
) -> None:
    """With the state that it had from us."""
    for end in (Candidate.resign, Candidate.stop):
        mine = Candidate(node, f"election {next(_elections)}")
        mine.state = {"ours": 0}
        lead(mine, ERLANG)
        theirs = start(erlang, f"heir-{end.__name__}", mine)
        mine.announce(theirs.pid)
        eventually(lambda mine=mine, theirs=theirs: theirs.leader == mine.pid)
        end(mine)
        eventually(lambda theirs=theirs: theirs.leader == theirs.pid)
        assert theirs.state == {"ours": 0}
        mine.stop()


def test_ours_follows_a_leader_of_the_original(
    mine: Candidate, erlang: Erlang, start: Start
) -> None:
    """It gives us its state once it has the lock on our node, merged with ours; then its broadcasts,
    and answers to calls. When it dies, ours gets the lock."""
    mine.state = {"mine": 2}
    theirs = start(erlang, "leads", mine)
    eventually(lambda: theirs.leader == theirs.pid)
    eventually(lambda: locks.holders(mine.lock_id))
    mine.ask(PYTHON, ERLANG)
    eventually(lambda: mine.leader == theirs.pid)
    eventually(lambda: mine.state == {"leads": 1, "mine": 2})
    (announced,) = {e.message.term for e in mine.heard if is_announcement(e)}
    assert announced == locks.holders(mine.lock_id)[0].version
    assert theirs.leader_call((PUT, "k", "v")) == Atom("ok")
    eventually(lambda: mine.state == {"leads": 1, "mine": 2, "k": "v"})
    mine.forward(7, (Atom("get"), "k"))
    eventually(lambda: Hear(theirs.pid, ours.ForwardAnswer(7, "v")) in mine.heard)
    theirs.die()
    eventually(lambda: mine.leads)


def test_terms_rise_from_a_leader_of_one_kind_to_one_of_the_other(
    node: locks.node.Node, mine: Candidate, erlang: Erlang, start: Start
) -> None:
    """On each Python node: the token of ours, then the version of the original's grant, then a token."""
    lead(mine, ERLANG)
    first = mine.token()
    theirs = start(erlang, "between", mine)
    eventually(lambda: len(locks.queue(mine.lock_id).requests) == 2)
    mine.resign()
    eventually(lambda: [each.client for each in locks.holders(mine.lock_id)] == [str(theirs.pid)])
    second = locks.holders(mine.lock_id)[0].version
    next_one = Candidate(node, mine.lock_id[1])
    next_one.ask(PYTHON, ERLANG)
    eventually(lambda: len(locks.queue(mine.lock_id).requests) == 2)
    theirs.die()
    eventually(lambda: next_one.leads)
    assert first < second < next_one.token()
    next_one.stop()


def is_announcement(command: Command) -> bool:
    """Whether our machine was told of a leader."""
    return isinstance(command, Hear) and isinstance(command.message, ours.Announce)
