"""What the lock servers have told at one time; pure."""

from __future__ import annotations

from typing import NamedTuple

from locks.core.facts import DeadlockFact, NodeFact
from locks.facts.around import Around
from locks.facts.graph import Waits

__all__ = ["Look"]


class Look(NamedTuple):
    """What the lock servers have told at one time; see `locks.facts.gather.look`.

    Attributes:
        at: What the observer's clock said, in seconds since 1970.
        known: How many lock servers there are.
        needed: How many of them a lock needs.
        nodes: What each says of itself, those that have answered.
        waits: Who holds, and who waits.
        deadlocks: Those that are remembered, the newest first.
        silent: The lock servers that have not answered, each with why.
        around: What client nodes have told, too; `None` if they were not asked.
    """

    at: float
    known: int = 0
    needed: int = 0
    nodes: tuple[NodeFact, ...] = ()
    waits: Waits = Waits((), ())
    deadlocks: tuple[DeadlockFact, ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    around: Around | None = None

    @property
    def enough(self) -> bool:
        """Whether enough lock servers have answered to take a lock."""
        return bool(self.known) and len(self.nodes) >= self.needed
