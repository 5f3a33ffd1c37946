"""What lock servers say, made up."""

from __future__ import annotations

from typing import Any

from locks.core.facts import NodeFact, RequestFact
from locks.core.server.table import TableStatistics
from locks.core.statistics import (
    BrokenStatistics,
    Durations,
    NodeStatistics,
    TimesStatistics,
)
from locks.model import AgentId, LockId, RequestRecord

__all__ = ["NOW", "NO_TIMES", "fact", "node"]

NOW = 1_000_000_000
NO_TIMES = TimesStatistics(*(Durations((), 0) for _ in range(3)))


def node(
    name: str,
    now: int = NOW,
    started: int = 0,
    times: TimesStatistics = NO_TIMES,
    **counted: int,
) -> NodeFact:
    """A lock server."""
    zero = dict.fromkeys(TableStatistics.__struct_fields__, 0)
    broken = BrokenStatistics(counted.pop("surrendered", 0), counted.pop("aborted", 0))
    table = TableStatistics(**{**zero, **counted})
    told = NodeStatistics(name, 0, 0, 0, 0, 0, table, broken, times, 0, 0, 0, ())
    return NodeFact(name, "1", "locks, pid 1", started, now, (name,), 2, told)


def fact(
    number: int,
    lock_id: LockId,
    agent: AgentId,
    state: Any,
    asked: int,
    now: int,
    node: str = "a@x",
    label: str = "ann",
) -> RequestFact:
    """A request; if it is granted, that was a second after it was asked for."""
    record = RequestRecord(
        node, number, agent, label, lock_id, "write", state, number, number, True, number
    )
    since = asked + 1_000_000 if state == "granted" else 0
    return RequestFact(record, asked, since, now, label, "ann.py", 7, "")
