"""What agents are told, in parts; and how much of a cycle a report has."""

from __future__ import annotations

from typing import Any

import pytest

from locks.core import parts
from locks.core.messages import (
    Knowledge,
    RequestStates,
    Resolved,
    Surrender,
    Surrendered,
)
from locks.lock_ids import LARGEST, size_of
from locks.model import AgentId, Deadlock, Edge, RequestRecord

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
    assert sorted(r for part in made for r in part.records) == sorted(records)
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
    assert made[at] == message._replace(records=(own[0], others[0]))
    assert sorted(after) == sorted(message.records)


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
