"""One election of the original's candidates and ours, each with all that belongs to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.erlang.test_election import ERLANG, PUT, Theirs

import locks
import locks_leader
from locks.values import Atom
from locks_leader import Behaviour, Caller, ElectionState
from tests.erlang.erlang import Erlang
from tests.helpers import eventually

_elections = itertools.count(1)
DICTIONARY = Atom("dictionary")
GET = Atom("get")


class Dictionary(Behaviour):
    """The same as candidate.erl: a dictionary that all share."""

    def init(self, own: dict[str, Any]) -> None:
        self.own = own

    def elected(self, election: ElectionState, newcomer: Any) -> Any:
        for _, other in election.ask_candidates(DICTIONARY).replies:
            self.own = {**other, **self.own}
        return self.own

    def surrendered(self, message: Any, election: ElectionState) -> None:
        self.own = message

    def from_leader(self, message: Any, election: ElectionState) -> None:
        self.own = message if isinstance(message, dict) else {**self.own, message[1]: message[2]}

    def handle_leader_call(self, request: Any, caller: Caller, election: ElectionState) -> Any:
        if request[0] == GET:
            return self.own.get(request[1], Atom("undefined"))
        self.own = {**self.own, request[1]: request[2]}
        election.broadcast(request)
        return Atom("ok")

    def handle_call(self, request: Any, caller: Caller, election: ElectionState) -> Any:
        return self.own


class Ours:
    """A candidate of ours, looked at as one of theirs is."""

    def __init__(self, node: locks.node.Node, name: str, resource: str) -> None:
        self._ref = locks_leader.start(Dictionary, {name: 1}, resource=resource)
        assert node.cluster is not None
        self.pid = node.turn.ask(node.cluster.remotes.pid_of, self._ref)

    @property
    def leader(self) -> Any:
        """Whom it takes for its leader."""
        leader = locks_leader.info(self._ref).leader
        if leader == self._ref:
            return self.pid
        return leader.target if isinstance(leader, locks.node.RemoteRef) else None

    @property
    def state(self) -> Any:
        """Its dictionary."""
        return locks_leader.call(self._ref, DICTIONARY)

    def leader_call(self, request: Any) -> Any:
        """Call the leader through it."""
        return locks_leader.leader_call(self._ref, request, timeout=10)

    def die(self) -> None:
        """It ends."""
        self._ref.stop()


Member = Ours | Theirs


@pytest.fixture
def other(node: locks.node.Node, more_erlang: Callable[..., Erlang]) -> Erlang:
    """A second node with the original, connected with all."""
    other = more_erlang("g@127.0.0.1")
    meet(node, other)
    return other


def meet(node: locks.node.Node, other: Erlang) -> None:
    """Let all three nodes be connected."""
    assert node.connect(ERLANG)
    assert node.connect(other.name)
    assert other.call("main", "net_adm", "ping", Atom(ERLANG)) == Atom("pong")
    eventually(lambda: {ERLANG, other.name} <= node.alive)


@pytest.fixture
def started() -> Iterator[list[Member]]:
    """Candidates that end with the test."""
    started: list[Member] = []
    yield started
    for each in started:
        each.die()


def agreed(members: list[Member]) -> Member:
    """Wait until all have one of them for their leader, and the same dictionary; return the leader."""

    def leader() -> Member | None:
        pids = {each.leader for each in members}
        if len(pids) != 1 or any(each.state != members[0].state for each in members):
            return None
        return next((each for each in members if each.pid in pids), None)

    found = eventually(leader)
    assert found is not None
    return found


@pytest.mark.parametrize("order", list(itertools.permutations("oef")), ids="".join)
def test_they_elect_one_leader_and_share_its_state(
    node: locks.node.Node, erlang: Erlang, other: Erlang, started: list[Member], order: str
) -> None:
    """In whatever order they start; what one writes all have, and a successor goes on with it."""
    resource = f"mixed {next(_elections)}"
    for each in order:
        name = f"{resource} {each}"
        if each == "o":
            started.append(Ours(node, name, resource))
        else:
            started.append(Theirs(erlang if each == "e" else other, name, resource))
    agreed(started)
    assert len(started[0].state) == 3, "what each of them had is there"
    for number, each in enumerate(started):
        assert each.leader_call((PUT, number, "written")) == Atom("ok")
    for each in started:
        assert each.leader_call((GET, 1)) == "written"
    leader = agreed(started)
    started.remove(leader)
    leader.die()
    agreed(started)
    assert len(started[0].state) == 6
    assert started[0].leader_call((PUT, "last", 1)) == Atom("ok")
    agreed(started)
