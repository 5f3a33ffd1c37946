"""The times of a lock server's requests and grants, and histograms of finished waits and holds.

The machines have no clock. After the commit of a turn, the lock server goes through the changed
entries, and records the times of their requests and grants, by the numbers of the requests. This is
the only record of times, for observers, logs and metrics. Finished waits and holds go into
histograms. So a free lock costs two readings of the clock, and an entry in a dictionary. A turn
that is undone records nothing, and a rebuilt machine has the same numbers. Recording again has no
effect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from math import inf

from locks.core.server.tree import Entry
from locks.core.statistics import BOUNDS, Durations, TimesStatistics
from locks.lock_ids import shown
from locks.node.observing.elections import is_contest
from locks.runtime.clock import monotonic
from locks.words import HELD_UP, LockId

__all__ = ["MOST_NAMES", "OTHERS", "Histogram", "OnLong", "Times", "first_name"]

MOST_NAMES = 100  # names with their own figures
LONGEST_NAME = 100  # characters
OTHERS = "(others)"


class Histogram:
    """Counts durations, in buckets."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def durations(self) -> Durations:
        """The histogram so far."""
        return Durations(tuple(self.counts), int(self.seconds * 1e6))


class Measured:
    """The histograms of `TimesStatistics`."""

    __slots__ = ("given_up", "holds", "waits")

    def __init__(self) -> None:
        self.waits, self.given_up, self.holds = Histogram(), Histogram(), Histogram()

    def statistics(self) -> TimesStatistics:
        """The histograms so far."""
        return TimesStatistics(
            self.waits.durations(), self.given_up.durations(), self.holds.durations()
        )


OnLong = Callable[[Entry, float, bool], object]


def _nothing(*_: object) -> None:
    """Ignore a long wait."""


def first_name(lock_id: LockId) -> str:
    """The first element of an id as a label of metrics: short, and whatever it is, it can be written down."""
    first = lock_id[0]
    try:
        text = str(first)[:LONGEST_NAME]
    except ValueError:  # an integer of more digits than Python writes
        text = shown(first)
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


class Times:
    """The times of one lock server. Everything is for the turn.

    Args:
        clock: Returns the time, in seconds; it never goes back.

    Attributes:
        clock: The same.
        asked: When requests that were not granted at once were made, or were surrendered, by
            number.
        got: When granted requests were granted, by number.
        all: The histograms.
        by_first: Likewise by the first element of the lock id, if this is switched on.
        handed_on: How many locks of elections were granted to candidates that waited.
        long: The duration from which a wait is long, in seconds.
        on_long: Called with an entry, its time, and whether it is granted, in the turn, when a long
            wait is over.
        look_by: The time of the next planned check for long waits.
        on_wait: Called, in the turn, when a wait has begun and no check is planned.
    """

    __slots__ = (
        *("all", "asked", "by_first", "clock", "got", "handed_on"),
        *("long", "look_by", "on_long", "on_wait"),
    )

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.asked: dict[int, float] = {}
        self.got: dict[int, float] = {}
        self.all = Measured()
        self.by_first: dict[str, Measured] | None = None
        self.handed_on = 0
        self.long = inf
        self.on_long: OnLong = _nothing
        self.look_by = inf
        self.on_wait: Callable[[], object] = _nothing

    def note(self, changed: Iterable[Entry]) -> None:
        """A turn is committed that has changed these entries, or may have."""
        now = self.clock()
        asked, got = self.asked, self.got
        for entry in changed:
            number = entry.number
            if entry.gone:
                since = got.pop(number, None)
                begun = asked.pop(number, None) if asked else None
                if since is not None:
                    if entry.slot.lock_id[0] == HELD_UP:
                        continue
                    held = now - since
                    holds = self.all.holds
                    holds.counts[bisect_left(BOUNDS, held)] += 1
                    holds.seconds += held
                    if self.by_first is not None:
                        self._of(entry.slot.lock_id).holds.add(held)
                elif begun is not None:
                    self._waited(entry, now - begun, False)
            elif entry.granted:
                if number not in got:
                    got[number] = now
                    if number in asked:
                        self._waited(entry, now - asked[number], True)
            elif number in got:  # surrendered
                asked[number] = now
                self.add_hold(entry.slot.lock_id, now - got.pop(number))
            elif entry.spare:
                asked.pop(number, None)
            elif number not in asked:
                asked[number] = now
                if now > self.look_by and entry.slot.lock_id[0] != HELD_UP:
                    self.on_wait()

    def add_hold(self, lock_id: LockId, seconds: float) -> None:
        """A lock was surrendered, or was thin and was released."""
        if lock_id[0] == HELD_UP:
            return
        holds = self.all.holds  # as in `note`, without a call
        holds.counts[bisect_left(BOUNDS, seconds)] += 1
        holds.seconds += seconds
        if self.by_first is not None:
            self._of(lock_id).holds.add(seconds)

    def _waited(self, entry: Entry, seconds: float, granted: bool) -> None:
        """A wait is over."""
        lock_id = entry.slot.lock_id
        if lock_id[0] == HELD_UP:
            return
        self.handed_on += granted and is_contest(lock_id)
        measured = self.all
        (measured.waits if granted else measured.given_up).add(seconds)
        if self.by_first is not None:
            measured = self._of(lock_id)
            (measured.waits if granted else measured.given_up).add(seconds)
        if seconds >= self.long:
            self.on_long(entry, seconds, granted)

    def _of(self, lock_id: LockId) -> Measured:
        """The histograms of all ids with the same first element."""
        assert self.by_first is not None
        name = first_name(lock_id)
        measured = self.by_first.get(name)
        if measured is None:
            name = name if len(self.by_first) < MOST_NAMES else OTHERS
            measured = self.by_first.setdefault(name, Measured())
        return measured
