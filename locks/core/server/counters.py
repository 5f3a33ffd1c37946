"""The counters of a lock table."""

from __future__ import annotations

from typing import NamedTuple

from locks.ranges import Number

__all__ = ["TableStatistics"]


class TableStatistics(NamedTuple):
    """Counters of a lock table since it was made, and its size now.

    Entries that stand for hold-ups (`locks.core.agent.hold_ups`) are not in the size.

    Attributes:
        requests: Requests taken in.
        grants: Grants, those after a surrender included.
        waits: Requests that were not granted at once.
        surrenders: Surrenders carried out.
        refused_surrenders: Surrenders whose edge no longer existed.
        entries: Requests in the table now.
        waiting: Of these, how many wait.
        agents: Agents with requests in the table now.
        version: The last version assigned.
    """

    requests: Number
    grants: Number
    waits: Number
    surrenders: Number
    refused_surrenders: Number
    entries: Number
    waiting: Number
    agents: Number
    version: Number
