"""What a lock table counts survives that its state is saved and loaded: no counter is forgotten."""

from __future__ import annotations

from locks.core.messages import Release, Remove, Request, Surrender
from locks.core.server.machine import ServerMachine
from locks.model import AgentId

NODE = "a@h"
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
    assert all(counted), f"this test makes each counter move: {counted}"
    again = machine.another()
    again.load(machine.save())
    assert again.statistics() == counted
    again.handle(Remove(BOB))
    assert again.statistics() != counted
