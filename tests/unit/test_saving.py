"""A machine's state can be gone back to, a history makes the machine anew, and no counter is forgotten."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise
from types import FunctionType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

import locks
from locks.core.agent.machine import AgentMachine
from locks.core.agent.requests import Undo
from locks.core.messages import (
    Inquire,
    Knowledge,
    Release,
    Remove,
    Request,
    RequestStates,
    StandingElsewhere,
    Surrender,
    Watch,
)
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, RequestRecord
from locks.node import dispatch
from locks.node.history import begin, is_outgrown, past, replay
from locks.program.default import default_node
from locks.ranges import replace
from locks_lab.worlds.study import subjects

NODE = "a@h"
IDS = [("a",), ("a", "b"), ("a", "c"), ("a", "b", "d"), ("e",)]
AGENTS = [AgentId(i, NODE if i % 2 else "b@h", i) for i in range(1, 6)]

agents = st.sampled_from(AGENTS)
ids = st.sampled_from(IDS)
modes = st.sampled_from(["read", "write"])
messages = st.one_of(
    st.builds(
        Request,
        agents,
        st.just("client"),
        ids,
        modes,
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(Release, agents, ids, st.one_of(st.none(), modes)),
    st.builds(Remove, agents),
    st.builds(Surrender, agents, ids),
    st.builds(StandingElsewhere, agents, st.booleans(), st.booleans()),
    st.builds(Inquire, agents),
    st.builds(Watch, st.sampled_from(["w", "v"]), ids),
)


def _what_is_seen(server: ServerMachine) -> Any:
    return (
        [server.view(lock_id) for lock_id in IDS],
        server.statistics(),
        server.version,
        subjects(server),
        [set(server.watchers(lock_id)) for lock_id in IDS],
    )


def _said(server: ServerMachine, message: Any) -> list[str]:
    """What a server wants done; in which order it tells different parties does not matter."""
    effects = []
    for effect in server.handle(message):
        text = repr(effect)
        told = getattr(getattr(effect, "message", None), "records", None)
        if told is not None:
            text = repr(effect._replace(message=replace(effect.message, records=())))  # type: ignore
            text += repr(sorted(map(repr, told)))
        effects.append(text)
    return sorted(effects)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(messages, max_size=25), st.lists(messages, max_size=15))
def test_a_lock_server_goes_on_from_its_saved_state_as_if_nothing_had_happened(
    before: list[Any], after: list[Any]
) -> None:
    """Whatever was asked before, the saved state and the server itself can't be told apart."""
    server = ServerMachine(NODE, 1000)
    for message in before:
        server.handle(message)
    other = ServerMachine(NODE)
    other.load(server.save())
    assert _what_is_seen(other) == _what_is_seen(server)
    assert other.save() == server.save()
    for message in after:
        assert _said(other, message) == _said(server, message)
        assert _what_is_seen(other) == _what_is_seen(server)


def test_a_saved_state_can_be_used_again() -> None:
    """What happens to the machine later does not change the state that was saved."""
    agent = AgentMachine(AGENTS[0], "client", (NODE,))
    agent.ask_all([(IDS[0], "write", (NODE,), "all")], "wait")
    state = agent.save()
    assert agent.size == 1
    for _ in range(2):
        agent.unlock(IDS[0])
        agent.end_transaction()
        agent.load(state)
        assert [info.lock_id for info in agent.lock_info()] == [IDS[0]]
        assert agent.ended is None


def test_who_waits_is_known_by_identity_in_a_saved_state() -> None:
    """A wait is not copied: it is the very one that is answered."""

    class Wait:
        def __deepcopy__(self, memo: object) -> Wait:
            raise AssertionError("a wait was copied")

    wait = Wait()
    agent = AgentMachine(AGENTS[0], "client", (NODE,))
    agent.ask_all([(IDS[0], "write", (NODE,), "all")], wait)
    state = agent.save()
    agent.load(state)
    (effect, *_) = agent.end_transaction()
    assert effect.wait is wait  # type: ignore[union-attr]


def _changeable(state: Any) -> dict[int, Any]:
    """All that a state has that can change: containers, and objects of an agent's core; whatever has them."""
    found: dict[int, Any] = {}
    new = [state]
    while new:
        each = new.pop()
        of_the_core = type(each).__module__.startswith("locks.core.agent")
        if id(each) not in found and (of_the_core or type(each) in (list, dict, set, tuple)):
            found[id(each)] = each
            new += gc.get_referents(each)
    unchanging = (tuple, type, FunctionType, Undo)
    return {i: each for i, each in found.items() if not isinstance(each, unchanging)}


def test_a_saved_state_shares_nothing_that_changes() -> None:
    """Of an agent that waits, holds, has learned and was told: neither what is saved nor what is loaded is the machine's own."""
    agent = AgentMachine(AGENTS[4], "client", (NODE, "b@h"), notify=True)
    agent.ask_all([(IDS[0], "read", (NODE, "b@h"), "majority")], "first")
    records = [
        RequestRecord(NODE, n, who, "c", IDS[0], "write", state, n, n, True, n)
        for n, who, state in ((1, AGENTS[0], "granted"), (2, AGENTS[4], "waiting"))
    ]
    agent.receive(RequestStates(NODE, tuple(records)))  # type: ignore[arg-type]
    agent.receive(Knowledge(AGENTS[1], tuple(records[:1])))
    agent.hold_up("first")
    agent.settle()
    saved = agent.save()
    own = _changeable([getattr(agent, name) for name in saved])
    kept = _changeable(list(saved.values()))
    assert {"Ledger", "LockRequest", "WaitGraph", "HoldUps"} <= {
        type(e).__name__ for e in own.values()
    }
    assert not [each for i, each in kept.items() if i in own]
    agent.load(saved)
    loaded = _changeable([getattr(agent, name) for name in saved])
    assert not [each for i, each in kept.items() if i in loaded]
    assert agent.save().keys() == saved.keys()


def test_a_history_makes_its_machine_anew() -> None:
    """Cut where an event was torn, it leads to the state before; begun anew, to the same."""
    agent = AgentMachine(AGENTS[0], "client", (NODE,))
    made = begin(agent, (AGENTS[0], "client", (NODE,), *[False] * 4, frozenset()))
    for lock_id in IDS[:3]:
        made.append((agent.ask_all, ([(lock_id, "write", (NODE,), "all")],)))
        agent.ask_all([(lock_id, "write", (NODE,), "all")])
    made.pop()
    replay(made)
    assert [info.lock_id for info in agent.lock_info()] == IDS[:2]
    anew = begin(agent)
    agent.unlock(IDS[0])
    assert [info.lock_id for info in past(agent, anew).lock_info()] == IDS[:2]
    assert [info.lock_id for info in agent.lock_info()] == IDS[1:2]
    replay(anew)
    assert [info.lock_id for info in agent.lock_info()] == IDS[:2]
    assert is_outgrown(made, agent, 1) is False
    assert is_outgrown(made * 8, agent, 1) is True


@pytest.fixture
def node() -> Iterator[locks.node.Node]:
    """The program's node, until the test is over."""
    yield default_node()
    locks.stop()


def test_a_long_history_that_is_over_is_freed_in_parts(
    node: locks.node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn frees more than a few hundred events: to free 10,000 takes longer than a turn may."""
    monkeypatch.setattr(dispatch, "AT_ONCE", 10)
    monkeypatch.setattr(node.thin, "pause", 10_000)  # thin transactions have no history
    over = node._dispatch._over
    lengths: list[int] = []
    for number in range(1000):
        with locks.transaction() as tx:
            tx.write_lock(("a", number % 7))
        lengths.append(sum(map(len, over)))
    freed = [before - after for before, after in pairwise(lengths)]
    assert max(lengths) > 100
    assert max(freed) <= 10 * 10  # a transaction takes fewer turns than ten
    assert 0 in lengths[lengths.index(max(lengths)) :]
    assert not locks.holders(("a",))


# --- What a lock table counts survives that its state is saved and loaded: no counter is forgotten. ---

ANN, BOB = AgentId(1, NODE, 1), AgentId(2, NODE, 2)


def test_each_counter_is_saved() -> None:
    """A lock server whose counters have all moved is saved and loaded: its statistics are the same.

    A new counter of `TableStatistics` is 0 here until this test makes it move, and is lost until `saving.py` knows it.
    """
    machine = ServerMachine(NODE, 100)
    for message in (
        Request(ANN, "ann", ("a",), "write"),
        Request(BOB, "bob", ("a",), "write"),  # waits
        Surrender(ANN, ("a",)),
        Surrender(ANN, ("b",)),  # there is nothing to surrender
        Request(ANN, "ann", ("c",), "read"),
        Release(ANN, ("c",)),
    ):
        machine.handle(message)
    counted = machine.statistics()
    assert all(astuple(counted)), f"this test makes each counter move: {counted}"
    again = machine.another()
    again.load(machine.save())
    assert again.statistics() == counted
    again.handle(Remove(BOB))
    assert again.statistics() != counted
