"""A deadlock, told step by step."""

from __future__ import annotations

from typing import Any

from locks.core.steps import steps_of
from locks.model import AgentId, Deadlock, Edge, LockId, RequestRecord
from locks.words import HELD_UP

ANN, BEN = AgentId(1, "a@x", 1), AgentId(2, "a@x", 2)
RULE = "the youngest yields"


def record(agent: AgentId, client: str, lock_id: LockId, state: Any = "granted") -> RequestRecord:
    """A request."""
    return RequestRecord("a@x", 1, agent, client, lock_id, "write", state, 1, 1, True, 1)


def report(action: Any = "surrendered", *edges: Edge) -> Deadlock:
    """A deadlock of two; Ben yields a lock for which Ann waits."""
    broken = Edge(record(ANN, "Ann", ("b",), "waiting"), record(BEN, "Ben", ("b",)))
    closing = Edge(record(BEN, "Ben", ("a", 1), "waiting"), record(ANN, "Ann", ("a",)))
    return Deadlock(BEN, ("b",), "a@x", action, edges or (broken, closing), RULE)


def test_the_edge_that_was_broken_closes_the_circle() -> None:
    """And then somebody yields."""
    told = steps_of(report())
    assert told.yields == "Ben"
    assert told.steps == (
        "Ben waits for write a/1: Ann holds write a.",
        "Ann waits for write b: Ben holds write b. This closes the cycle.",
        "Ben gives up b and queues for it again: the youngest yields. The others continue.",
    )
    assert steps_of(report("aborted")).steps[-1].startswith("Ben is aborted: ")


def test_who_stands_in_line_and_who_waits_elsewhere() -> None:
    """Neither holds what somebody waits for."""
    ahead = Edge(record(ANN, "Ann", ("b",), "waiting"), record(BEN, "Ben", ("b",), "waiting"))
    own = (HELD_UP, "x")
    held_up = Edge(record(BEN, "Ben", own, "waiting"), record(ANN, "Ben", own))
    steps = steps_of(report("surrendered", held_up, ahead)).steps
    assert steps[0] == "Ann waits for write b: Ben is queued for write b."
    assert steps[1].startswith(f"Ben waits with {ANN} and cannot continue with {BEN} meanwhile.")
