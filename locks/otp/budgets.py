"""What one other node may have here, and how much of this node's time it may take.

A connected node has the cookie, so it is no stranger; but it may have a fault. What it has here is counted,
and what exceeds the budget is the end of its connection (`OverBudget`): with that, all that it has here is
taken out. The budgets are far above what programs do. How much time it takes is no reason to end
anything: it has to wait (`Pace`).

The table of all limits is in `docs/cluster.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from locks.errors import OperatingError

__all__ = [
    "MOST_AGENTS",
    "MOST_CALLS",
    "MOST_LINKS",
    "MOST_LOCKS",
    "MOST_MONITORS",
    "MOST_WATCHES",
    "OverBudget",
    "Pace",
    "Tally",
    "check_budget",
]

MOST_MONITORS = 20_000  # processes of this node that it monitors
MOST_LINKS = 20_000  # that are linked with its own
MOST_CALLS = 10_000  # of its calls that wait for an answer
MOST_AGENTS = 20_000  # of its agents that have locks here, or wait for some
MOST_LOCKS = 1_000_000  # that these have, or wait for
MOST_WATCHES = 1_000  # lock ids of this node that its processes watch

SLICE = 0.0005  # seconds for the frames of one link, until others are served
ALONE = 0.02  # seconds for those of a link that is alone
BURST = 20  # slices in a row that follow each other at once
BREATH = 0.002  # seconds between slices of a link that has more and more
LONG = 0.005  # seconds of processor time: a message that took longer is followed by a pause
PATIENCE = 100  # times as long as it took
LONGEST_PAUSE = 3.0  # seconds
TOGETHER = 1.0  # seconds: who has sent something within is to be protected


class OverBudget(OperatingError):
    """Another node has more here than it may have."""


def check_budget(number: int, most: int, what: str) -> None:
    """Raise `OverBudget` if a node has more of something than it may have."""
    if number > most:
        raise OverBudget(f"it has more than {most:,} {what} here")


class Tally:
    """Counts what a node has here, where it is not known at once what it has no more.

    What comes is counted; only when that is more than the budget, all is counted anew. So there may be a tenth
    more than the budget.

    Args:
        most: How much it may have.
        what: What is counted.
        count: Counts how much it has.
    """

    __slots__ = ("_count", "_counted", "_most", "_what")

    def __init__(self, most: int, what: str, count: Callable[[], int]) -> None:
        self._most = most
        self._what = what
        self._count = count
        self._counted = 0

    def add(self) -> None:
        """One more comes; raises `OverBudget` if that is one too many."""
        self._counted += 1
        if self._counted > self._most:
            there = self._count() + 1
            check_budget(there, self._most, self._what)
            # So it is counted again after a tenth of the budget at the soonest.
            self._counted = min(there, self._most - self._most // 10)


class Pace:
    """How the links of one node take turns.

    Each link that has frames is served for a moment, then the next one. As long as other links bring something,
    too, a link that goes on and on has to wait between its moments, and one whose message took long, many times
    as long as that. So a flood takes a part of this node's time, and messages that are hard to take in a
    hundredth. A link that is alone never waits.

    What is done in its turn for others, telling those who watch, is not a link's own fault (`for_others`).

    Attributes:
        for_others_took: The processor time of all that, in seconds.
    """

    __slots__ = ("_changed", "_last", "for_others_took")

    def __init__(self) -> None:
        self.for_others_took = 0.0
        self._last: object = None
        self._changed = -TOGETHER

    def for_others(self, act: Callable[..., object], *args: Any) -> None:
        """Do something that whoever has the turn is not to pay for."""
        begin = time.thread_time()
        try:
            act(*args)
        finally:
            self.for_others_took += time.thread_time() - begin

    def moment(self, link: object) -> float:
        """For how many seconds a link may be served at once."""
        alone = self._last is link and time.monotonic() - self._changed > TOGETHER
        return ALONE if alone else SLICE

    def pause(self, link: object, took: float, behind: int, ticktime: float) -> float:
        """How many seconds a link has to wait.

        Args:
            link: The link, which has brought something.
            took: The processor time that it took, in seconds, without what was done for others.
            behind: How many slices in a row have left something waiting.
            ticktime: How long the link may be silent.
        """
        now = time.monotonic()
        if self._last is not link:
            self._last = link
            self._changed = now
        if now - self._changed > TOGETHER:
            return 0.0
        pause = BREATH if behind > BURST else 0.0
        if took > LONG:
            pause = PATIENCE * took
        return min(pause, LONGEST_PAUSE, ticktime / 4)
