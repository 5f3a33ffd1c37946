"""The answers of the lock servers at one time; pure."""

from __future__ import annotations

from typing import NamedTuple

from locks.core.facts import DeadlockFact, NodeFact
from locks.facts.around import Around
from locks.facts.graph import WaitReport

__all__ = ["Look"]


class Look(NamedTuple):
    """The answers of the lock servers at one time; see `locks.facts.gather.look`.

    Attributes:
        at: The time by the observer's clock, in seconds since 1970.
        known: The number of lock servers.
        needed: How many of them a lock needs.
        required: How many of them must be up so that every lock can be taken.
        nodes: The facts of those that answered, about themselves.
        waits: The wait-for graph.
        deadlocks: The remembered deadlocks, the newest first.
        silent: The lock servers that did not answer, each with the reason.
        around: The answers of client nodes, too; `None` if they were not asked.
    """

    at: float
    known: int = 0
    needed: int = 0
    required: int = 0
    nodes: tuple[NodeFact, ...] = ()
    waits: WaitReport = WaitReport((), ())
    deadlocks: tuple[DeadlockFact, ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    around: Around | None = None

    @property
    def enough(self) -> bool:
        """Whether enough lock servers answered to take any lock."""
        return bool(self.known) and len(self.nodes) >= self.required
