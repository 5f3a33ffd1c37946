"""What agents tell each other, when the connections of their nodes come and go."""

from __future__ import annotations

from typing import Any

from locks.core.agent.machine import AgentMachine
from locks.core.messages import Knowledge, RequestStates, ToAgent
from locks.model import AgentId, RequestRecord

ONE, TWO, THREE = (AgentId(n, f"c{n}", n) for n in (1, 2, 3))
X, Y = ("x",), ("y",)


def record(agent: AgentId, node: str, lock: Any, number: int, state: str = "waiting") -> Any:
    """A request; it waits unless said otherwise, and its agent waits for something in any case."""
    return RequestRecord(
        node, number, agent, f"client of {agent}", lock, "write",
        state, number, number, True, number,
    )  # fmt: skip


def smallest() -> AgentMachine:
    """An agent that has x on n1, for which TWO waits, and waits for y on n2, which THREE has."""
    machine = AgentMachine(ONE, "one", ["n1", "n2"], await_nodes=True)
    machine.ask(X, "write", ("n1",), "all")
    machine.ask(Y, "write", ("n2",), "all", "wait")
    mine = record(ONE, "n1", X, 1, "granted")
    machine.receive(RequestStates("n1", (mine, record(TWO, "n1", X, 2))))
    theirs = record(THREE, "n2", Y, 1, "granted")
    machine.receive(RequestStates("n2", (theirs, record(ONE, "n2", Y, 2))))
    return machine


def told(effects: Any) -> list[tuple[AgentId, int]]:
    """Whom other agents are told how many records; -1: that this one has forgotten."""
    return [
        (each.agent, -1 if each.message.forgot else len(each.message.records))
        for each in effects
        if isinstance(each, ToAgent)
    ]


def test_what_was_told_is_told_again_when_a_connection_is_there_or_lost() -> None:
    """Each time, until then nothing twice; it is as if the agents there had been told nothing."""
    machine = smallest()
    first = told(machine.settle())
    assert first == [(TWO, 3)]
    assert told(machine.settle()) == []
    for event in (machine.peer_up, machine.peer_down, machine.peer_up):
        assert told(event("c9")) == []
        assert told(machine.settle()) == []
        event("c2")
        assert told(machine.settle()) == first


def test_its_partners_are_the_nodes_of_those_that_it_has_told_something() -> None:
    """As long as it waits; and none of those that have told it something."""
    machine = smallest()
    assert machine.partners == set()
    machine.settle()
    machine.receive(Knowledge(THREE, (record(THREE, "n2", Y, 1, "granted"),)))
    assert machine.partners == {"c2"}
    assert machine.in_touch
    machine.receive(RequestStates("n2", (record(ONE, "n2", Y, 2, "granted"),)))
    assert machine.partners == set()


def test_of_an_agent_that_ends_nothing_is_left() -> None:
    """No channel is kept for it."""
    machine = smallest()
    machine.settle()
    machine.end_transaction()
    assert machine.partners == set()
