"""Counted locks in lock tables and agents: how many have one, in which order, and what is refused."""

from __future__ import annotations

import random

import pytest

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AnswerWait,
    Refused,
    Release,
    Remove,
    Request,
    RequestStates,
    Surrender,
    Surrendered,
    ToAgent,
)
from locks.core.server.machine import ServerMachine
from locks.errors import ConflictingRequest, InvalidLockId, InvalidOption
from locks.lock_ids import MOST_UNITS, check_lock_id, counted
from locks.model import AgentId, Deadlock, Edge, LockId, RequestRecord, unit_at
from tests.helpers import SEED
from tests.lockstep import agent

NODE = "n@h"
POOL = counted(("pool",), 2)


def ask(server: ServerMachine, number: int, lock_id: LockId = POOL) -> list[object]:
    """Have an agent ask; return what it is answered."""
    effects = server.handle(Request(agent(number), "c", lock_id, "write"))
    return [each.message for each in effects if isinstance(each, ToAgent)]


def records(server: ServerMachine, lock_id: LockId = POOL) -> dict[int, RequestRecord]:
    """What there is on an id, by agent."""
    entries = server.table.view(lock_id)
    return {e.requester.id.serial: e.record(NODE) for e in entries if e.slot.lock_id == lock_id}


@pytest.mark.parametrize("value", [1, 2, 3, 7])
def test_units_are_given_in_order(value: int) -> None:
    """At each time the first `value` of those who asked and did not let go have a unit, each another one.

    A unit stays with who has it, and its tokens rise. Going back to a saved state changes nothing.
    """
    pool = counted(("pool", "x"), value)
    chance = random.Random(f"{SEED} {value}")
    server = ServerMachine(NODE)
    line: list[int] = []  # who has asked, in order
    had: dict[int, int] = {}  # the unit of each who has one
    tokens: dict[int, int] = {}  # the last token of each unit
    for _ in range(400):
        number = chance.randint(1, 12)
        if number not in line:
            ask(server, number, pool)
            line.append(number)
        else:
            gone = Remove(agent(number)) if chance.random() < 0.5 else Release(agent(number), pool)
            server.handle(gone)
            line.remove(number)
            had.pop(number, None)
        if chance.random() < 0.1:
            saved, server = server.save(), ServerMachine(NODE)
            server.load(saved)
        now = records(server, pool)
        assert sorted(now) == sorted(line)
        granted = {n: unit_at(record) for n, record in now.items() if record.state == "granted"}
        assert set(granted) == set(line[:value])
        assert sorted(set(granted.values())) == sorted(granted.values())
        for n, unit in granted.items():
            assert unit is not None
            assert 0 <= unit < value
            if n in had:
                assert had[n] == unit
            else:
                assert now[n].since > tokens.get(unit, -1)
                tokens[unit] = now[n].since
            had[n] = unit


def test_locks_above_exclude_all_units() -> None:
    """Who has what is above waits for all units, and they for it; ids beside it have nothing to do with it."""
    server = ServerMachine(NODE)
    for number in (1, 2):
        ask(server, number)
    ask(server, 3, ("pool",))
    ask(server, 4)
    ask(server, 5, ("pool", 1))
    states = {n: r.state for n, r in records(server).items()}
    assert states == {1: "granted", 2: "granted", 4: "waiting"}
    server.handle(Remove(agent(1)))
    assert records(server)[4].state == "waiting"  # 3 stands ahead of it
    server.handle(Remove(agent(2)))
    (above,) = [e for e in server.table.view(("pool",)) if e.slot.lock_id == ("pool",)]
    assert above.granted
    server.handle(Remove(agent(3)))
    assert records(server)[4].state == "granted"


def test_another_number_of_units_is_refused() -> None:
    """As long as anybody has or wants units; then any number may be named anew. Nobody can read a unit."""
    server = ServerMachine(NODE)
    other = counted(("pool",), 3)
    ask(server, 1)
    assert ask(server, 2, other) == [Refused(NODE, other, 2)]
    assert not records(server, other)
    server.handle(Remove(agent(1)))
    assert isinstance(ask(server, 2, other)[0], RequestStates)
    assert ask(server, 1) == [Refused(NODE, POOL, 3)]
    server.handle(Remove(agent(2)))
    read = server.handle(Request(agent(1), "c", POOL, "read"))
    assert read == [ToAgent(agent(1), Refused(NODE, POOL, 2))]
    assert server.size == 0


def machine() -> AgentMachine:
    """An agent that wants a unit."""
    return AgentMachine(AgentId(1, NODE, 1), "c", [NODE])


def test_who_is_refused_is_told_so() -> None:
    """A wait ends with an error that names both numbers, and nothing stays asked for."""
    me = machine()
    me.ask(POOL, "write", (NODE,), "all", wait=7)
    effects = me.receive(Refused(NODE, POOL, 3))
    (answer,) = [each for each in effects if isinstance(each, AnswerWait)]
    assert isinstance(answer.result, ConflictingRequest)
    assert "with 3 units" in str(answer.result)
    assert "with 2 units" in str(answer.result)
    assert me.empty
    assert me.ended is None
    assert me.receive(Refused(NODE, POOL, 3)) == []  # comes too late


@pytest.mark.parametrize(
    ("mode", "nodes", "require"),
    [
        ("read", (NODE,), "all"),
        ("write", (NODE, "m@h"), "majority"),
        ("write", (NODE, "m@h"), "any"),
        ("write", (NODE, "m@h"), "all_alive"),
    ],
)
def test_what_there_is_not(mode: str, nodes: tuple[str, ...], require: str) -> None:
    """Reading a unit, and units at some of several nodes, are refused, and nothing is asked for."""
    me = AgentMachine(AgentId(1, NODE, 1), "c", [NODE, "m@h"])
    with pytest.raises(InvalidOption, match="counted lock"):
        me.ask(POOL, mode, nodes, require, wait=1)  # type: ignore[arg-type]
    assert me.empty


def test_a_surrender_for_a_knot_that_has_changed_is_refused() -> None:
    """The answer has what has changed of it, and what is gone."""
    server = ServerMachine(NODE)
    for number in (1, 2, 3):
        ask(server, number)
    ask(server, 3, ("x",))
    ask(server, 2, ("x",))
    ask(server, 4, ("y",))
    now = records(server)
    waiter, holder = now[3], now[2]
    report = Deadlock(agent(2), POOL, NODE, "surrendered", (Edge(waiter, holder),), "")
    ends = tuple((record.number, record.since) for record in (waiter, holder))
    (free,) = server.table.view(("y",))
    for knot in (((free.number, free.since),), ((10_000, 1),), ((holder.number, 0),)):
        message = Surrender(agent(2), POOL, ends[0], ends[1], report, (*ends, *knot))
        answer = server.handle(message)[-1]
        assert isinstance(answer, ToAgent)
        assert isinstance(answer.message, Surrendered)
        assert not answer.message.done
        assert answer.message.gone == (() if knot[0][0] != 10_000 else (10_000,))
        assert {record.number for record in answer.message.records} >= {
            n for n, _ in knot if n != 10_000
        }
        assert records(server) == now
    answer = server.handle(Surrender(agent(2), POOL, ends[0], ends[1], report, ends))[-1]
    assert isinstance(answer, ToAgent)
    assert isinstance(answer.message, Surrendered)
    assert answer.message.done
    assert records(server)[3].state == "granted"


@pytest.mark.parametrize(
    "wrong",
    [
        (("$units", 3),),
        ("a", ("$units", 0)),
        ("a", ("$units", MOST_UNITS + 1)),
        ("a", ("$units", True)),
        ("a", ("$units", 3.0)),
        ("a", ("$units",)),
        ("a", ("$units", 3, 4)),
        ("a", ("$units", 3), "b"),
        ("a", ("$units", 3), ("$units", 3)),
    ],
    ids=str,
)
def test_ids_that_are_no_counted_ones(wrong: tuple[object, ...]) -> None:
    """What begins as the mark of a counted id, and is none, is refused."""
    with pytest.raises(InvalidLockId, match="units"):
        check_lock_id(wrong)
