"""What one other node may have here, and how much of this node's time it may take.

A connected node has the cookie, so it is no stranger; but it may have a fault. What it has here is counted,
and what exceeds the budget is the end of its connection (`OverBudget`): with that, all that it has here is
taken out. The budgets are far above what programs do. How much time it takes is no reason to end
anything: it has to wait (`Pace`).

The table of all limits is in `docs/network.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from locks.errors import OperatingError

__all__ = [
    "MOST_AGENTS",
    "MOST_CALLS",
    "MOST_LINKS",
    "MOST_LOCKS",
    "MOST_MEMBERSHIPS",
    "MOST_MONITORS",
    "MOST_WATCHES",
    "OverBudget",
    "Pace",
    "Tally",
    "Traffic",
    "check_budget",
]

MOST_MONITORS = 20_000  # processes of this node that it monitors
MOST_LINKS = 20_000  # that are linked with its own
MOST_CALLS = 10_000  # of its calls that wait for an answer
MOST_AGENTS = 20_000  # of its agents that have locks here, or wait for some
MOST_LOCKS = 1_000_000  # that these have, or wait for
MOST_WATCHES = 1_000  # lock ids of this node that its processes watch
MOST_MEMBERSHIPS = 100_000  # of its processes in process groups, in one scope

SLICE: Final = 0.00025  # seconds for the messages of one link, until others are served
ALONE: Final = 0.002  # seconds for those of a link while nobody else wants to be served
PART: Final = 1 / 4  # of the time is what a node may use, while others want to be served
SAVED: Final = 0.5  # seconds that it may use at once, if it has used none for a while
FORGIVEN: Final = SAVED / 2  # who has that much left is not made to wait by one message at all
LONG: Final = 0.004  # seconds: what takes twice, three times as long without a break costs twice, three times as much
LONGEST_PAUSE: Final = 3.0  # seconds
TOGETHER: Final = 5.0  # seconds: who has sent something within is to be protected
KEPT: Final = 1000  # nodes whose use of time is remembered


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

    def add(self, more: int = 1) -> None:
        """Some more come, one by default; raises `OverBudget` if that is too many."""
        self._counted += more
        if self._counted > self._most:
            there = self._count() + more
            check_budget(there, self._most, self._what)
            # So it is counted again after a tenth of the budget at the soonest.
            self._counted = min(there, self._most - self._most // 10)


class Share:
    """What one node has used of this node's time, whether it is connected or not.

    Attributes:
        left: How many seconds it may use; negative if it has used too many.
        at: When that was true.
        moment: For how many seconds it is served until others are.
    """

    __slots__ = ("at", "left", "moment")

    def __init__(self, now: float) -> None:
        self.left = SAVED
        self.at = now
        self.moment = SLICE


class Pace:
    """How the nodes that are connected with this one take turns.

    The messages of each are taken in for a moment, a *slice*, then those of the next one. What a node uses of this
    node's time, by its messages or for what it watches, is taken from its *share*, which grows by a quarter
    of the time that passes. Who has used it up waits until some is there again; but only while others want
    to be served: time that nobody else wants costs nothing. So a flood takes a quarter of the time, in short
    slices. What can't be divided costs more, the longer it takes: who comes at any moment finds this node busy
    with it the more seldom, so he waits for it half a millisecond on average, whatever is sent. A price that
    rises suddenly would let honest nodes wait for each other, with idle processors: in a crowd, what follows from
    a message may take some milliseconds.

    Args:
        clock: Tells the time, in seconds; it is never set back.

    Attributes:
        elsewhere: Processor time that was charged to others than whoever has the turn, in seconds.
    """

    __slots__ = ("_before", "_clock", "_last", "_last_at", "_shares", "elsewhere")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.elsewhere = 0.0
        self._shares: dict[str, Share] = {}
        # Who has sent something, when, and when somebody else did before.
        self._last: Share | None = None
        self._last_at = self._before = -TOGETHER

    def share(self, node: str) -> Share:
        """The share of a node; it outlives its connections."""
        found = self._shares.get(node)
        if found is None:
            now = self._clock()
            if len(self._shares) >= KEPT:
                for name, each in list(self._shares.items()):
                    if self._grown(each, now) >= SAVED:
                        del self._shares[name]
            found = self._shares[node] = Share(now)
        return found

    def served(self, share: Share, took: float, sent: bool = True) -> None:
        """A node has used processor time, in seconds, without a break.

        Args:
            share: Its share.
            took: How much.
            sent: Whether it has sent something. Then others must not keep it waiting for a while.
        """
        now = self._clock()
        if sent:
            if self._last is not share:
                self._last = share
                self._before = self._last_at
            self._last_at = now
        price = took * max(1.0, took / LONG)
        left = self._grown(share, now)
        # Once in a while anything may take long: to collect garbage, for one.
        left = max(0.0, left - price) if left >= FORGIVEN else left - price
        share.at = now
        if self._others(share, now):
            share.left = max(-PART * LONGEST_PAUSE, left)
            share.moment = SLICE
        else:
            share.left = max(0.0, left)
            share.moment = ALONE

    def served_elsewhere(self, share: Share, took: float) -> None:
        """Processor time was used for a node, in a turn that it has not begun."""
        self.elsewhere += took
        self.served(share, took, False)

    def pause(self, share: Share) -> float:
        """For how many seconds a node has to wait now."""
        if share.left >= 0:
            return 0.0
        now = self._clock()
        left = self._grown(share, now)
        return -left / PART if left < 0 and self._others(share, now) else 0.0

    def _grown(self, share: Share, now: float) -> float:
        return min(SAVED, share.left + PART * (now - share.at))

    def _others(self, share: Share, now: float) -> bool:
        """Whether somebody else has wanted something lately."""
        others_at = self._before if self._last is share else self._last_at
        return now - others_at < TOGETHER


class Traffic:
    """What was sent and received over all links of a node: messages, and their bytes before TLS."""

    __slots__ = ("bytes_received", "bytes_sent", "received", "sent")

    def __init__(self) -> None:
        self.sent = self.received = self.bytes_sent = self.bytes_received = 0
