"""What agents are told: in parts, how much of a cycle a report has, and anew when connections come and go."""

from __future__ import annotations

from typing import Any

import pytest

from locks.core import parts
from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    Knowledge,
    RequestStates,
    Resolved,
    Surrender,
    Surrendered,
    ToAgent,
)
from locks.lock_ids import LARGEST, size_of
from locks.model import AgentId, Deadlock, Edge, RequestRecord
from locks.ranges import replace

ME, OTHER = AgentId(1 << 12, "a@h", 0), AgentId(2 << 12, "b@h", 0)
NODE = "s@h"


def record(
    number: int, agent: AgentId = ME, state: Any = "granted", key: Any = "k"
) -> RequestRecord:
    """A record of a request on an id of its own."""
    lock_id = (key, number)
    return RequestRecord(
        NODE, number, agent, "c", lock_id, "write", state, number, number, True, number
    )


def deadlock(edges: int, key: str = "k") -> Deadlock:
    """A report of a cycle."""
    cycle = [Edge(record(n, key=key), record(n + 1, key=key)) for n in range(edges)]
    return Deadlock(ME, ("k",), NODE, "surrendered", parts.shown_cycle(tuple(cycle)), "rule")


@pytest.mark.parametrize("kind", ["states", "knowledge", "resolved"])
def test_parts_have_all_that_there_is(kind: str) -> None:
    """Each record once, at most 100 in a part; the first part has what makes the receiver keep the rest."""
    own = [record(n) for n in range(1, 1000)]
    waiting = [record(n, state="waiting") for n in range(1000, 1500)]
    others = [record(n, OTHER) for n in range(1500, 2500)]
    records = (*own, *waiting, *others)
    message: Any = {
        "states": RequestStates(NODE, records),
        "knowledge": Knowledge(OTHER, records, True),
        "resolved": Resolved(deadlock(2), records),
    }[kind]
    made: list[Any] = list(parts.in_parts(message, ME))
    assert sorted(r.number for part in made for r in part.records) == sorted(
        r.number for r in records
    )
    assert {r for part in made for r in part.records} == set(records)
    assert max(len(part.records) for part in made) <= 100
    if kind == "knowledge":
        assert [part.forgot for part in made] == [True] + [False] * (len(made) - 1)
        return
    assert type(made[0]) is type(message)
    assert {type(part) for part in made[1:]} == {RequestStates}
    assert {r.agent for r in made[0].records} == {ME, OTHER}
    assert any(r.state == "waiting" and r.agent == ME for r in made[0].records)


def test_the_answer_to_a_surrender_comes_after_what_was_lost_by_it() -> None:
    """Own requests are told before it, the ends of the edge with it, and what matters after it."""
    own = [record(n, state="waiting") for n in range(1, 1000)]
    others = [record(n, OTHER, "waiting") for n in range(1000, 1100)]
    surrender = Surrender(ME, ("k",), (1000, 1000), (1, 1), deadlock(2))
    message = Surrendered(NODE, surrender, True, (*own, *others), 5000)
    made: list[Any] = list(parts.in_parts(message, ME))
    at = [type(part) for part in made].index(Surrendered)
    before = [r for part in made[:at] for r in part.records]
    after = [r for part in made[at + 1 :] for r in part.records]
    assert before == own
    assert made[at] == replace(message, records=(own[0], others[0]))
    assert sorted(after, key=repr) == sorted(message.records, key=repr)


def test_parts_are_bounded_in_bytes() -> None:
    """Also with the largest ids that there are."""
    large = [record(n, key="x" * (LARGEST - 100)) for n in range(100)]
    made = list(parts.in_parts(RequestStates(NODE, tuple(large)), ME))
    assert max(sum(size_of(r.lock_id) for r in part.records) for part in made) <= 2 * LARGEST  # type: ignore[union-attr]


def test_a_report_of_a_large_cycle_is_cut() -> None:
    """50 edges at most, fewer with large ids, two at least."""
    assert len(deadlock(50).cycle) == 50
    assert len(deadlock(5000).cycle) == 50
    assert len(deadlock(5000, "x" * LARGEST).cycle) == 2
    assert len(deadlock(40, "x" * 10_000).cycle) == 4


# --- What agents tell each other, when the connections of their nodes come and go. ---


ONE, TWO, THREE = (AgentId(n, f"c{n}", n) for n in (1, 2, 3))
X, Y = ("x",), ("y",)


def record_of_partners(
    agent: AgentId, node: str, lock: Any, number: int, state: str = "waiting"
) -> Any:
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
    mine = record_of_partners(ONE, "n1", X, 1, "granted")
    machine.receive(RequestStates("n1", (mine, record_of_partners(TWO, "n1", X, 2))))
    theirs = record_of_partners(THREE, "n2", Y, 1, "granted")
    machine.receive(RequestStates("n2", (theirs, record_of_partners(ONE, "n2", Y, 2))))
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
    machine.receive(Knowledge(THREE, (record_of_partners(THREE, "n2", Y, 1, "granted"),)))
    assert machine.partners == {"c2"}
    assert machine.in_touch
    machine.receive(RequestStates("n2", (record_of_partners(ONE, "n2", Y, 2, "granted"),)))
    assert machine.partners == set()


def test_of_an_agent_that_ends_nothing_is_left() -> None:
    """No channel is kept for it."""
    machine = smallest()
    machine.settle()
    machine.end_transaction()
    assert machine.partners == set()
