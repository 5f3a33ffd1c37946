"""How long locks are waited for and held: what a lock server's actor measures, for the machines have no clock.

After each message the lock server looks at the entries of the table that the message has changed, and puts down in
them when they were asked for and granted. What is over is counted in a histogram. That is all that a lock costs
which is free: two looks at the clock. An entry is noted as often as one likes; what was noted is not noted again. If
a turn is torn, its entries are made anew without their times: these are not known then, and not counted.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from locks.core.server.tree import Entry
from locks.words import HELD_UP, LockId

__all__ = ["BOUNDS", "OTHERS", "Durations", "Histogram", "OnLong", "Times", "TimesStatistics"]

BOUNDS = (
    *(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1),
    *(0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 3600.0),
)
"""Upper bounds of the buckets of all histograms, in seconds; one more has what is above."""

MOST_NAMES = 100  # of which figures of their own are kept
OTHERS = "(others)"


class Durations(NamedTuple):
    """How often something took how long.

    Attributes:
        counts: How often, for each bucket of `BOUNDS`, and for what is above the last one.
        seconds: The sum of all.
    """

    counts: tuple[int, ...]
    seconds: float

    @property
    def total(self) -> int:
        """How often."""
        return sum(self.counts)


class Histogram:
    """Counts durations, in buckets.

    Attributes:
        counts: See `Durations`.
        seconds: Likewise.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def durations(self) -> Durations:
        """What was counted so far."""
        return Durations(tuple(self.counts), self.seconds)


class TimesStatistics(NamedTuple):
    """How long locks of one lock server were waited for and held, since it began.

    Attributes:
        waits: Waits that ended with the lock. What was granted at once did not wait.
        given_up: Waits that ended without it: by a timeout, an abort, an end.
        holds: How long locks were held that were given back, or surrendered.
    """

    waits: Durations
    given_up: Durations
    holds: Durations


class Measured:
    """What `TimesStatistics` is made of."""

    __slots__ = ("given_up", "holds", "waits")

    def __init__(self) -> None:
        self.waits, self.given_up, self.holds = Histogram(), Histogram(), Histogram()

    def statistics(self) -> TimesStatistics:
        """What was counted so far."""
        return TimesStatistics(
            self.waits.durations(), self.given_up.durations(), self.holds.durations()
        )


OnLong = Callable[[Entry, float], object]


def _nothing(*_: object) -> None:
    """What is done with a long wait if nobody wants to know."""


class Times:
    """The times of one lock server. All of it is for the turn.

    Args:
        clock: Tells the time, in seconds.

    Attributes:
        clock: The same.
        all: What was measured.
        by_first: The same by the first element of the lock id, if somebody wants to know.
        long: What counts as a long wait, in seconds.
        on_long: Called with an entry and its time, in the turn, when a long wait is over.
        look_by: Until then somebody will look for long waits.
        on_wait: Called, in the turn, when a wait has begun and nobody will look.
    """

    __slots__ = ("all", "by_first", "clock", "long", "look_by", "on_long", "on_wait")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.all = Measured()
        self.by_first: dict[str, Measured] | None = None
        self.long = inf
        self.on_long: OnLong = _nothing
        self.look_by = inf
        self.on_wait: Callable[[], object] = _nothing

    def note(self, changed: Iterable[Entry]) -> None:
        """These entries have changed, or may have."""
        now = self.clock()
        for entry in changed:
            if entry.gone:
                if entry.got:
                    held = now - entry.got
                    holds = self.all.holds
                    holds.counts[bisect_left(BOUNDS, held)] += 1
                    holds.seconds += held
                    if self.by_first is not None:
                        self._of(entry.slot.lock_id).holds.add(held)
                elif entry.asked:
                    self._over(entry, now - entry.asked)
                entry.asked = entry.got = 0.0
            elif entry.granted:
                if entry.got:
                    continue
                if entry.asked:
                    entry.got = now
                    self._over(entry, now - entry.asked)
                elif entry.slot.lock_id[0] != HELD_UP:
                    entry.asked = entry.got = now
            elif entry.got:  # surrendered
                self.all.holds.add(now - entry.got)
                if self.by_first is not None:
                    self._of(entry.slot.lock_id).holds.add(now - entry.got)
                entry.asked, entry.got = now, 0.0
            elif not entry.asked and entry.slot.lock_id[0] != HELD_UP:
                entry.asked = now
                if now > self.look_by:
                    self.on_wait()

    def _over(self, entry: Entry, waited: float) -> None:
        """A wait is over."""
        measured = self.all
        (measured.waits if entry.got else measured.given_up).add(waited)
        if self.by_first is not None:
            measured = self._of(entry.slot.lock_id)
            (measured.waits if entry.got else measured.given_up).add(waited)
        if waited >= self.long:
            self.on_long(entry, waited)

    def _of(self, lock_id: LockId) -> Measured:
        """What was measured of all ids with the same first element."""
        assert self.by_first is not None
        name = str(lock_id[0])
        measured = self.by_first.get(name)
        if measured is None:
            name = name if len(self.by_first) < MOST_NAMES else OTHERS
            measured = self.by_first.setdefault(name, Measured())
        return measured
