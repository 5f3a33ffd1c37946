"""What a lock server remembers of whom it has told what."""

from __future__ import annotations

from locks.core.messages import Remove, Request
from locks.core.server.machine import ServerMachine
from locks.model import AgentId

NODE = "n1@h"
A = ("a",)


def test_a_lock_that_is_held_for_long_does_not_remember_all_who_were_told_of_it() -> None:
    """Agents that have waited for it, and are gone, are forgotten: a leader holds its lock for weeks."""
    server = ServerMachine(NODE)
    holder = AgentId(1, NODE, 1)
    server.handle(Request(holder, "holder", A, "write", True, True))
    for number in range(2, 500):
        agent = AgentId(number, "n2@h", number)
        told = server.handle(Request(agent, "waiter", A, "write", True, True))
        assert any(effect.agent == agent and len(effect.message.records) == 2 for effect in told)
        server.handle(Remove(agent))
    (entry,) = server.table.owners[holder].all()
    assert entry.notified is not None
    assert len(entry.notified) < 50
