"""The way that a message takes from one agent to another, and who keeps what about it."""

from __future__ import annotations

from typing import Any

import pytest

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    Knowledge,
    Relay,
    Remove,
    Request,
    RequestStates,
    ServerEffect,
    ToAgent,
    ToServer,
    Undelivered,
)
from locks.core.paths import in_order, way
from locks.core.server import relays
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, RequestRecord

ONE, TWO, THREE = (AgentId(n, f"c{n}", n) for n in (1, 2, 3))
X, Y = ("x",), ("y",)


# --- Paths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "own", "connected", "found"),
    [
        (["n1"], ["n1"], ["n1", "c2"], "c2"),  # directly
        (["n1", "n2"], [], ["n1", "n2"], "n1"),
        (["n1", "n2"], ["n3"], ["n2", "n3"], "n2"),
        (["n1", "n2"], ["n3"], ["n3"], "n3"),  # by two relays
        (["n1"], ["n3"], [], None),
        ([], ["n3"], ["n3"], None),  # nobody knows where the receiver has requests
        (["c1"], [], [], "c1"),  # one's own lock server
        (["erlang"], ["n3"], ["erlang", "n3"], "n3"),  # the original's relays nothing
    ],
)
def test_way(over: list[str], own: list[str], connected: list[str], found: str | None) -> None:
    """The receiver's node, else a lock server where it has requests, else one of one's own."""

    def can_relay(node: str) -> bool:
        return node in connected and node != "erlang"

    assert way("c1", "c2", over, own, connected.__contains__, can_relay) == found


def test_order() -> None:
    """Those first where the sender has requests; the order is always the same."""
    assert in_order(["n3", "n1", "n2", "n3"], ["n3"]) == ["n3", "n1", "n2"]


# --- Lock servers -------------------------------------------------------------------------------


def server(name: str = "n1", **peers: bool) -> ServerMachine:
    """A lock server, and the nodes that it is connected with."""
    made = ServerMachine(name)
    for node, can_relay in peers.items():
        made.peer_up(node, can_relay)
    return made


def relay(sender: AgentId = ONE, to: AgentId = TWO, *over: str, via: str = "") -> Relay:
    """Something that an agent tells another one."""
    return Relay(sender, to, over, Knowledge(sender, ()), via)


def undelivered(node: str = "n1", again: bool = False) -> list[ServerEffect]:
    """What the sender is told."""
    return [ToAgent(ONE, Undelivered(node, TWO, again))]


def ask(machine: ServerMachine, *agents: AgentId) -> None:
    """Agents ask for x."""
    for agent in agents:
        machine.handle(Request(agent, "client", X, "write"))


def test_it_is_handed_to_an_agent_that_has_requests() -> None:
    """As it is."""
    made = server(c1=False, c2=False)
    ask(made, TWO)
    assert made.handle(relay()) == [ToAgent(TWO, Knowledge(ONE, ()))]


def test_nobody_else_gets_it() -> None:
    """An agent that has no request here, or whose node is gone, is not reached; the sender is told so."""
    made = server(c1=False, c2=False)
    assert made.handle(relay()) == undelivered()
    ask(made, TWO)
    made.peer_down("c2")
    assert made.handle(relay()) == undelivered()


def test_it_is_sent_on_once() -> None:
    """To the first lock server that relays; that one sends it no further, and answers by the first one."""
    first, second = server(c1=False, n2=True, n3=True, c9=False), server("n2", n1=True, n3=True)
    (sent,) = first.handle(relay(ONE, TWO, "n1", "c9", "n2", "n3"))
    assert sent == ToServer("n2", relay(via="n1"))
    (answer,) = second.handle(relay(via="n1"))
    assert answer == ToServer("n1", Relay(ONE, ONE, (), Undelivered("n2", TWO), "n2"))
    assert first.handle(answer.message) == undelivered("n2")  # type: ignore[arg-type, union-attr]


def test_a_way_that_is_lost() -> None:
    """The senders are told; and when the lock server over which it went is back, that it can be used."""
    made = server(c1=False, c2=False, n2=True)
    ask(made, TWO)
    made.handle(relay())
    made.handle(relay(ONE, THREE, "n2"))
    assert made.peer_down("c2") == undelivered()
    assert made.peer_down("c2") == []
    assert made.peer_down("n2") == [ToAgent(ONE, Undelivered("n1", THREE))]
    assert made.peer_up("n2", True) == [ToAgent(ONE, Undelivered("n1", THREE, True))]
    assert made.peer_up("n2", True) == []
    assert not made._relays.passed


def test_a_way_that_was_not_there_yet() -> None:
    """Who was told that there is none is told when there is."""
    made = server(c1=False)
    assert made.handle(relay(ONE, TWO, "n2")) == undelivered()
    assert made.peer_up("n2", False) == []  # not known as a lock server yet
    assert made.peer_up("n2", True) == undelivered(again=True)


def test_what_is_remembered_goes_with_the_agents() -> None:
    """With the end of either, and with the sender's node."""
    made = server(c1=False, c2=False)
    ask(made, TWO)
    for gone in (lambda: made.handle(Remove(ONE)), lambda: made.peer_down("c1")):
        made.handle(relay())
        assert made._relays.passed
        gone()
        assert not made._relays.passed
    made.peer_up("c1", False)
    made.handle(relay())
    made.handle(Remove(TWO))
    assert not made._relays.passed
    assert not made._relays._of
    assert not made._relays._counts


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many pairs, those go of which nobody has requests; then nothing is passed on."""
    monkeypatch.setattr(relays, "MOST_RELAYED", 2)
    made = server(c1=False, c2=False, n2=True)
    ask(made, TWO)
    made.handle(relay())
    for serial in range(10, 15):  # to agents that are not here: they are forgotten for others
        assert made.handle(relay(ONE, AgentId(serial, "c2", serial), "n2"))
    assert (ONE, TWO) in made._relays.passed
    ask(made, ONE)
    other = AgentId(20, "c2", 20)
    ask(made, other)
    made.handle(relay(ONE, other))
    last = AgentId(21, "c2", 21)
    ask(made, last)
    assert made.handle(relay(ONE, last)) == [ToAgent(ONE, Undelivered("n1", last))]
    assert len(made._relays.passed) == 2


def test_it_is_saved() -> None:
    """A machine that is made anew knows what it has relayed."""
    made = server(c1=False, c2=False, n2=True)
    ask(made, TWO)
    made.handle(relay())
    again = ServerMachine("n1")
    again.load(made.save())
    assert again.save() == made.save()
    assert again.peer_down("c2") == undelivered()
    assert again.relay_again([(ONE, TWO)]) == []
    assert made.relay_again([(ONE, TWO)]) == undelivered(again=True)


# --- Agents -------------------------------------------------------------------------------------


def record(agent: AgentId, node: str, lock: Any, number: int, **given: Any) -> RequestRecord:
    """A request; it waits unless said otherwise."""
    fields: dict[str, Any] = {"state": "waiting", "blocked": True, "version": number, **given}
    version = fields["version"]
    return RequestRecord(
        node, number, agent, f"client of {agent}", lock, "write",
        fields["state"], number, number, fields["blocked"], version,
    )  # fmt: skip


def smallest() -> AgentMachine:
    """An agent that has x on n1, for which TWO waits, and waits for y on n2, which THREE has."""
    machine = AgentMachine(ONE, "one", ["n1", "n2"])
    machine.ask(X, "write", ("n1",), "all")
    machine.ask(Y, "write", ("n2",), "all", "wait")
    mine = record(ONE, "n1", X, 1, state="granted")
    machine.receive(RequestStates("n1", (mine, record(TWO, "n1", X, 2))))
    theirs = record(THREE, "n2", Y, 1, state="granted")
    machine.receive(RequestStates("n2", (theirs, record(ONE, "n2", Y, 2))))
    return machine


def told(effects: Any) -> list[tuple[AgentId, tuple[str, ...], int]]:
    """Whom other agents are told how many records, and over what."""
    return [
        (e.agent, e.over, len(e.message.records) if not e.message.forgot else -1)
        for e in effects
        if isinstance(e, ToAgent)
    ]


def test_an_agent_says_over_what() -> None:
    """Over the lock server where it knows the other one to have a request."""
    (effect,) = (e for e in smallest().settle() if isinstance(e, ToAgent))
    assert (effect.agent, effect.over, effect.own) == (TWO, ("n1",), ("n1", "n2"))


def test_it_is_said_again_when_there_is_another_way() -> None:
    """Not over the way that has failed, until something newer is known of a request there."""
    machine = smallest()
    machine.settle()
    machine.receive(Undelivered("n1", TWO))
    assert told(machine.settle()) == []
    machine.receive(RequestStates("n1", (record(TWO, "n1", X, 2, version=9),)))
    ((agent, over, count),) = told(machine.settle())
    assert (agent, over) == (TWO, ("n1",))
    assert count > 1  # all that it was told before, too
    assert told(machine.settle()) == []


@pytest.mark.parametrize("news", ["again", "up", "peer"])
def test_it_is_said_again_when_the_way_is_there(news: str) -> None:
    """A relay says so, or a node is connected."""
    machine = smallest()
    machine.settle()
    machine.receive(Undelivered("", TWO))
    assert told(machine.settle()) == []
    if news == "again":
        machine.receive(Undelivered("n1", TWO, True))
    elif news == "up":
        machine.node_up("n3")
    else:
        machine.peer_up("c2")
    assert [agent for agent, *_ in told(machine.settle())] == [TWO]


def test_that_it_has_forgotten_is_said_again() -> None:
    """When it was lost with a relay: to whom it was said, and to nobody else."""
    machine = AgentMachine(ONE, "one", ["n1", "n2"], await_nodes=True)
    machine.ask(X, "write", ("n1",), "all")
    machine.ask(Y, "write", ("n2",), "all", "wait")
    states = RequestStates("n2", (record(ONE, "n2", Y, 2), record(THREE, "n2", Y, 1)))
    machine.receive(states)
    machine.receive(Knowledge(TWO, (record(TWO, "n1", X, 2),)))
    assert (TWO, ("n1",), -1) in told(machine.node_down("n2"))
    machine.receive(Undelivered("n1", TWO, True))
    machine.node_up("n2")
    machine.receive(states)
    assert (TWO, ("n1",), -1) in told(machine.settle())
    machine.receive(Undelivered("n1", THREE))
    assert told(machine.settle()) == []


def test_of_an_agent_that_is_near_nothing_is_kept() -> None:
    """With connected nodes all is as without relays."""
    machine = AgentMachine(ONE, "one", ["n1", "n2", "c1", "c2", "c3"])
    machine.ask(X, "write", ("n1",), "all")
    machine.ask(Y, "write", ("n2",), "all", "wait")
    mine = record(ONE, "n1", X, 1, state="granted")
    machine.receive(RequestStates("n1", (mine, record(TWO, "n1", X, 2))))
    theirs = record(THREE, "n2", Y, 1, state="granted")
    machine.receive(RequestStates("n2", (theirs, record(ONE, "n2", Y, 2))))
    (effect,) = (e for e in machine.settle() if isinstance(e, ToAgent))
    assert (effect.over, effect.own) == ((), ())
    machine.receive(Knowledge(TWO, (record(TWO, "n1", X, 3),)))
    assert machine._resolver._reach.sources == {TWO: ()}


def test_a_node_without_a_lock_server_that_is_lost() -> None:
    """What was told an agent there directly is told again."""
    machine = smallest()
    first = told(machine.settle())
    machine.peer_down("c2")
    assert told(machine.settle()) == first
