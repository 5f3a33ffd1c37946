"""Budgets: what one other node may keep here, and how much of this node's time it may use.

A connected node has the cookie, so it is no stranger. But it may have a fault. So its monitors,
calls and so on are counted. If they exceed the budget, its connection ends (`OverBudget`), and with
it everything that it keeps here. The budgets are far above what programs need. Its requests and watches
have limits that an operator can set (`Limits`); what goes beyond is refused. A node that uses
much time is not disconnected, but has to wait (`Pace`).

The table of all limits is in `docs/bounds.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from locks.net.exchange import check_budget
from locks.runtime.clock import monotonic

__all__ = [
    "MOST_LINKS",
    "MOST_MEMBERSHIPS",
    "MOST_MONITORS",
    "Pace",
    "Tally",
    "Traffic",
]

MOST_MONITORS = 20_000  # monitors of this node's processes
MOST_LINKS = 20_000  # links with this node's processes
MOST_MEMBERSHIPS = 100_000  # of its processes in process groups, in one scope
SLICE: Final = 0.00025  # seconds for the messages of one link, until others are served
ALONE: Final = 0.002  # seconds for them while no other link has sent anything lately
LONG: Final = 0.001  # seconds; a node pays for longer work that one large frame causes
SAVED: Final = 2.0  # seconds of pauses that a node is spared, after a while without pauses
FORGIVEN: Final = SAVED / 2  # with that much left, a node does not pause for one frame
LONGEST_PAUSE: Final = 3.0  # seconds
TOGETHER: Final = 5.0  # seconds; nodes that have sent something within are protected from long work
KEPT: Final = 1000  # nodes whose use of time is remembered


class Tally:
    """Counts things of a node whose removal is not noticed at once.

    Additions are counted. Only when they exceed the budget, everything is counted again. So there
    may be a tenth more than the budget.

    Args:
        most: The budget.
        what: What is counted.
        count: Counts everything.
    """

    __slots__ = ("_count", "_counted", "_most", "_what")

    def __init__(self, most: int, what: str, count: Callable[[], int]) -> None:
        self._most = most
        self._what = what
        self._count = count
        self._counted = 0

    def add(self, more: int = 1) -> None:
        """Count additions, one by default; raises `OverBudget` if these are too many."""
        self._counted += more
        if self._counted > self._most:
            there = self._count() + more
            check_budget(there, self._most, self._what)
            # The next full count is due after a tenth of the budget at the soonest.
            self._counted = min(there, self._most - self._most // 10)


class Share:
    """One node's use of this node's time; it outlives its connections.

    Attributes:
        used: Its position in the line: the processor time that it has used, in seconds, plus the
            time that it did not use because it had no input.
        left: How many seconds of pauses it is spared; negative if it has to pause.
        at: When `left` was computed.
    """

    __slots__ = ("at", "left", "used")

    def __init__(self, now: float, used: float) -> None:
        self.used = used
        self.left = SAVED
        self.at = now


class Pace:
    """Shares this node's processor time between the connected nodes.

    Links with input that was not taken in form a line. The one whose node has used the least
    processor time is next; this is start-time fair queueing (Goyal, Vin and Cheng 1996). Each is
    served for a *slice*. So two links that always have input get the same time, and a link with
    little input waits for one slice of each other link. No node saves up time while it has no
    input, and no node pays for time that no other node needed. So as long as any link has input, a
    link is served.

    Some work can't be divided, such as handing over a large frame. If one frame causes more than a
    millisecond of such work while others have sent something lately, its node has to pause. The
    longer the work took, the longer is the pause. So a message that arrives at any time waits for
    such work half a millisecond on average. This is the only pause. Small frames never cause it.

    Args:
        clock: Returns the time, in seconds; it never goes back.

    Attributes:
        elsewhere: Processor time that was charged to other nodes than the one that is served, in
            seconds.
    """

    __slots__ = (
        *("_before", "_clock", "_last", "_last_at", "_line", "_reached", "_serial", "_shares"),
        *("_standing", "elsewhere"),
    )

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.elsewhere = 0.0
        self._shares: dict[str, Share] = {}
        # The line: a heap by used time and by arrival. Links that have left may still be in it.
        self._line: list[tuple[float, int, object]] = []
        self._standing: dict[object, tuple[int, Callable[[], object]]] = {}
        self._serial = 0
        self._reached = 0.0  # the used time of the link served last, before its slice
        # The last sender, when it sent, and when another one sent before.
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
        """Whether the line is empty."""
        return not self._standing

    def enter(self, who: object, share: Share, go: Callable[[], object]) -> None:
        """Put `who`, which has input, into the line; `next` returns `go` when it is served.

        If it is in the line already, it keeps its place.
        """
        if who not in self._standing:
            self._serial += 1
            self._standing[who] = (self._serial, go)
            heappush(self._line, (max(self._reached, share.used), self._serial, who))

    def leave(self, who: object) -> None:
        """Take `who`, which has no more input, out of the line."""
        self._standing.pop(who, None)

    def next(self) -> Callable[[], object] | None:
        """Take the next one out of the line; `None` if the line is empty."""
        while self._line:
            used, serial, who = heappop(self._line)
            found = self._standing.get(who)
            if found is not None and found[0] == serial:
                del self._standing[who]
                self._reached = max(self._reached, used)
                return found[1]
        return None

    def is_ahead(self, share: Share) -> bool:
        """Whether a node would be the next one in the line, so that it need not enter it."""
        while self._line:
            used, serial, who = self._line[0]
            found = self._standing.get(who)
            if found is not None and found[0] == serial:
                return share.used <= used
            heappop(self._line)
        return True

    # --- The use of time ------------------------------------------------------------------------

    def served(self, share: Share, took: float, whole: float = 0.0, sent: bool = True) -> None:
        """Charge a node for processor time, in seconds.

        Args:
            share: Its share.
            took: How much.
            whole: How much of it could not be divided, and was caused by one large frame.
            sent: Whether it has sent something, so that it is protected from others' long work for
                a while.
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
            self._reached = begun  # it was served without the line
        if whole > LONG:
            left = self._grown(share, now)
            price = whole * whole / LONG
            # Now and then any work may take long, for example because garbage is collected.
            left = max(0.0, left - price) if left >= FORGIVEN else left - price
            share.left = max(-LONGEST_PAUSE if self._others(share, now) else 0.0, left)
            share.at = now

    def served_elsewhere(self, share: Share, took: float) -> None:
        """Charge a node for processor time in a turn that another node has begun."""
        self.elsewhere += took
        self.served(share, took, sent=False)

    def slice(self, share: Share) -> float:
        """How many seconds a node is served before others are."""
        alone = not (self._standing or self._others(share, self._clock()))
        return ALONE if alone else SLICE

    def pause(self, share: Share) -> float:
        """How many seconds to pause reading from a node, because of its large frames."""
        if share.left >= 0:
            return 0.0
        now = self._clock()
        left = self._grown(share, now)
        return -left if left < 0 and self._others(share, now) else 0.0

    def _grown(self, share: Share, now: float) -> float:
        return min(SAVED, share.left + now - share.at)

    def _others(self, share: Share, now: float) -> bool:
        """Whether another node has sent something lately."""
        others_at = self._before if self._last is share else self._last_at
        return now - others_at < TOGETHER


class Traffic:
    """Counts the messages over all links of a node, and their bytes before TLS."""

    __slots__ = ("bytes_received", "bytes_sent", "received", "sent")

    def __init__(self) -> None:
        self.sent = self.received = self.bytes_sent = self.bytes_received = 0
