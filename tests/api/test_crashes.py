"""What a bug in a machine does: to whoever calls, to the agent that has it, to the node."""

from __future__ import annotations

from typing import Any

import pytest

import locks
from locks.core.agent.machine import AgentMachine
from locks.core.server.machine import ServerMachine
from tests.helpers import eventually

A, B, C = ("a",), ("b",), ("c",)


@pytest.fixture(autouse=True)
def _stopped_afterwards() -> Any:
    """Each transaction has its machine from its beginning."""
    locks.start().thin.usable = False
    yield
    locks.stop()


def _break_agent(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can't take in what a lock server says, in a message or at once."""

    def or_crash(method: Any) -> Any:
        def call(machine: AgentMachine, *args: Any) -> Any:
            if machine is broken.machine:
                raise RuntimeError("broken")
            return method(machine, *args)

        return call

    for name in ("receive", "ask_told"):
        monkeypatch.setattr(AgentMachine, name, or_crash(getattr(AgentMachine, name)))


def test_a_bug_in_a_call_is_raised_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets the very error; its transaction, and all others, are as they were."""
    with locks.transaction() as other:
        other.lock(B)
        broken, _ = locks.original.begin_transaction([(A, "write")])
        with monkeypatch.context() as patch:
            _break_agent(broken, patch)
            with pytest.raises(RuntimeError, match="broken"):
                locks.original.lock(broken, C, timeout=5)
        assert not locks.queue(C).requests
        assert [info.lock_id for info in locks.original.lock_info(broken)] == [A]
        locks.original.ensure_held(broken, A)
        other.ensure_held(B)
        locks.original.lock(broken, C)
        locks.original.end_transaction(broken)


def test_an_agent_that_crashes_goes_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in an agent that is in the way of others' work ends that agent, and is logged."""
    with locks.transaction() as other:
        other.lock(B)
        broken = locks.original.spawn_agent()
        locks.original.lock(broken, A)
        locks.original.lock_nowait(broken, B)
        _break_agent(broken, monkeypatch)
        with pytest.raises(RuntimeError, match="broken"):
            other.unlock(B)  # grants it to the broken one, which can't take that in
        eventually(lambda: not broken.is_alive())
        assert not locks.queue(A).requests
        other.lock(A)
        eventually(lambda: "has crashed" in caplog.text)


def test_a_lock_server_that_crashes_ends_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be released fences the node: all who hold or wait are told, nothing is granted."""
    holder, _ = locks.original.begin_transaction([(A, "write")])
    other, _ = locks.original.begin_transaction([(B, "write")])

    def broken(*args: Any) -> Any:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(ServerMachine, "handle", broken)
        patch.setattr(ServerMachine, "request", broken)
        with pytest.raises(RuntimeError, match="broken"):
            locks.original.lock(holder, C, timeout=5)
        locks.original.ensure_held(holder, A)
        with pytest.raises(RuntimeError, match="broken"):
            locks.original.unlock(other, B)  # the background goes on trying for a while
        eventually(lambda: not other.is_alive())
    with pytest.raises(locks.TransactionEnded, match="lost its lock server"):
        locks.original.ensure_held(holder, A)
    with pytest.raises(locks.TransactionEnded):
        locks.original.lock(holder, B)
    with locks.transaction() as tx:  # a new node is started
        tx.lock(A)


def test_what_is_interrupted_now_and_then_is_carried_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of each transaction is interrupted once: only one that fails again and again is given up."""
    agents = [locks.original.begin_transaction([((name,), "write")])[0] for name in "abcdefgh"]
    dispatch = agents[0].node._dispatch
    end, interrupted = dispatch._on_ended, set()

    def or_interrupt(agent: locks.actors.Agent) -> None:
        if agent not in interrupted:
            interrupted.add(agent)
            raise RuntimeError("from outside")
        end(agent)

    monkeypatch.setattr(dispatch, "_on_ended", or_interrupt)
    for agent in agents:
        with pytest.raises(RuntimeError, match="from outside"):
            locks.original.end_transaction(agent)
    eventually(lambda: not agents[0].node.agents_by_id)
    assert interrupted == set(agents)
    assert not agents[0].node.holders
    assert not agents[0].node.clients
    assert "failed to carry out" not in caplog.text
