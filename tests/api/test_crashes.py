"""What a broken invariant does: the actor in which it broke goes down, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

import locks
from locks.core.agent.machine import AgentMachine
from locks.core.server.machine import ServerMachine
from tests.helpers import eventually

A, B = ("a",), ("b",)


@pytest.fixture(autouse=True)
def _stopped_afterwards() -> Any:
    yield
    locks.stop()


def test_an_agent_that_crashes_goes_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in one agent ends that agent, frees its locks, and is logged; others go on."""
    with locks.transaction() as other:
        other.lock(B)
        broken, _ = locks.begin_transaction([(A, "write")])
        receive = AgentMachine.receive

        def receive_or_crash(machine: AgentMachine, message: Any) -> Any:
            if machine is broken.machine:
                raise RuntimeError("broken")
            return receive(machine, message)

        monkeypatch.setattr(AgentMachine, "receive", receive_or_crash)
        with pytest.raises(locks.AgentEnded, match="crashed"):
            locks.lock(broken, ("c",), timeout=5)
        assert not broken.is_alive()
        assert not locks.queue(A).requests
        other.lock(A)
        eventually(lambda: "has crashed" in caplog.text)


def test_a_lock_server_that_crashes_ends_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its lock server a node can vouch for nothing: all who hold or wait are told so."""
    holder, _ = locks.begin_transaction([(A, "write")])

    def broken(*args: Any) -> Any:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(ServerMachine, "handle", broken)
        with pytest.raises(locks.AgentEnded, match="lost its lock server"):
            locks.lock(holder, B, timeout=5)
    with pytest.raises(locks.AgentEnded):
        locks.lock(holder, B)
    with locks.transaction() as tx:  # a new node is started
        tx.lock(A)
