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
from heapq import heappop, heappush
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
ALONE: Final = 0.002  # seconds for those of a link while nobody else has sent anything lately
LONG: Final = 0.001  # seconds: who causes longer work by one large frame is to blame for it
SAVED: Final = (
    2.0  # seconds of pauses that a node does not have to make, if it has made none for a while
)
FORGIVEN: Final = SAVED / 2  # who has that much left is not made to wait by one frame at all
LONGEST_PAUSE: Final = 3.0  # seconds
TOGETHER: Final = 5.0  # seconds: who has sent something within is to be protected from long work
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
        used: Where it stands in the line: the processor time that it has used, in seconds, and what it did not use
            while it had no input.
        left: How many seconds of pauses it need not make; negative if it has to pause.
        at: When that was true.
    """

    __slots__ = ("at", "left", "used")

    def __init__(self, now: float, used: float) -> None:
        self.used = used
        self.left = SAVED
        self.at = now


class Pace:
    """How the nodes that are connected with this one take turns.

    Whoever has input that was not taken in stands in a line, and whoever has used the least processor time is the
    next one; this is start-time fair queueing (Goyal, Vin and Cheng 1996). Each is served for a *slice*, so two that always have input
    get the same time, and one with little input waits for one slice of each other one. Nobody saves up time while it has no input, and nobody
    pays for time that no other one wanted. So somebody is served as long as anybody has input, whatever that costs.

    Some work can't be divided: to hand over a large frame, for one. While others have sent something lately, who causes
    more than a millisecond of it by one frame has to pause, the longer, the longer that took. So whoever comes at any
    moment waits for such work for half a millisecond on average, whatever is sent. That is the only pause; it is never
    made for small frames.

    Args:
        clock: Tells the time, in seconds; it is never set back.

    Attributes:
        elsewhere: Processor time that was charged to others than whoever has the turn, in seconds.
    """

    __slots__ = (
        *("_before", "_clock", "_last", "_last_at", "_line", "_reached", "_serial", "_shares"),
        *("_standing", "elsewhere"),
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.elsewhere = 0.0
        self._shares: dict[str, Share] = {}
        # Who stands in the line: a heap by what they had used, and by when they came. Who has left may still be in it.
        self._line: list[tuple[float, int, object]] = []
        self._standing: dict[object, tuple[int, Callable[[], object]]] = {}
        self._serial = 0
        self._reached = 0.0  # what the one that was served last had used before
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
                    if each.used <= self._reached and self._grown(each, now) >= SAVED:
                        del self._shares[name]
            found = self._shares[node] = Share(now, self._reached)
        return found

    # --- The line -------------------------------------------------------------------------------

    @property
    def is_free(self) -> bool:
        """Whether nobody stands in the line."""
        return not self._standing

    def enter(self, who: object, share: Share, go: Callable[[], object]) -> None:
        """Somebody has input; `next` returns `go` when it is served. Who stands in the line already keeps its place."""
        if who not in self._standing:
            self._serial += 1
            self._standing[who] = (self._serial, go)
            heappush(self._line, (max(self._reached, share.used), self._serial, who))

    def leave(self, who: object) -> None:
        """Somebody has no input any more."""
        self._standing.pop(who, None)

    def next(self) -> Callable[[], object] | None:
        """Take the next one out of the line; `None` if there is nobody."""
        while self._line:
            used, serial, who = heappop(self._line)
            found = self._standing.get(who)
            if found is not None and found[0] == serial:
                del self._standing[who]
                self._reached = max(self._reached, used)
                return found[1]
        return None

    def is_ahead(self, share: Share) -> bool:
        """Whether a node would be the next one if it stood in the line: it need not stand in it then."""
        while self._line:
            used, serial, who = self._line[0]
            found = self._standing.get(who)
            if found is not None and found[0] == serial:
                return share.used <= used
            heappop(self._line)
        return True

    # --- What is used ---------------------------------------------------------------------------

    def served(self, share: Share, took: float, whole: float = 0.0, sent: bool = True) -> None:
        """A node has used processor time, in seconds.

        Args:
            share: Its share.
            took: How much.
            whole: How much of it could not be divided, and was caused by one large frame.
            sent: Whether it has sent something. Then others' long work must not keep it waiting for a while.
        """
        now = self._clock()
        if sent:
            if self._last is not share:
                self._last = share
                self._before = self._last_at
            self._last_at = now
        begun = max(self._reached, share.used)
        share.used = begun + took
        if sent and not self._standing:
            self._reached = begun  # it was served out of the line
        if whole > LONG:
            left = self._grown(share, now)
            price = whole * whole / LONG
            # Once in a while anything may take long: to collect garbage, for one.
            left = max(0.0, left - price) if left >= FORGIVEN else left - price
            share.left = max(-LONGEST_PAUSE if self._others(share, now) else 0.0, left)
            share.at = now

    def served_elsewhere(self, share: Share, took: float) -> None:
        """Processor time was used for a node, in a turn that it has not begun."""
        self.elsewhere += took
        self.served(share, took, sent=False)

    def slice(self, share: Share) -> float:
        """For how many seconds a node is served until others are."""
        alone = not (self._standing or self._others(share, self._clock()))
        return ALONE if alone else SLICE

    def pause(self, share: Share) -> float:
        """For how many seconds nothing that a node sends is to be read, because of its large frames."""
        if share.left >= 0:
            return 0.0
        now = self._clock()
        left = self._grown(share, now)
        return -left if left < 0 and self._others(share, now) else 0.0

    def _grown(self, share: Share, now: float) -> float:
        return min(SAVED, share.left + now - share.at)

    def _others(self, share: Share, now: float) -> bool:
        """Whether somebody else has sent something lately."""
        others_at = self._before if self._last is share else self._last_at
        return now - others_at < TOGETHER


class Traffic:
    """What was sent and received over all links of a node: messages, and their bytes before TLS."""

    __slots__ = ("bytes_received", "bytes_sent", "received", "sent")

    def __init__(self) -> None:
        self.sent = self.received = self.bytes_sent = self.bytes_received = 0
