"""What a lock server says of itself, made up."""

from __future__ import annotations

from locks.core.facts import NodeFact
from locks.core.server.counters import TableStatistics
from locks.core.statistics import (
    BrokenStatistics,
    Durations,
    NodeStatistics,
    TimesStatistics,
)

__all__ = ["NOW", "NO_TIMES", "node"]

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
    zero = dict.fromkeys(TableStatistics._fields, 0)
    broken = BrokenStatistics(counted.pop("surrendered", 0), counted.pop("aborted", 0))
    table = TableStatistics(**{**zero, **counted})
    told = NodeStatistics(name, 0, 0, 0, 0, 0, table, broken, times, 0, 0, 0, ())
    return NodeFact(name, "1", "locks, pid 1", started, now, (name,), 2, told)
