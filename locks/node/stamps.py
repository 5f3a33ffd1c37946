"""When a lock table was changed: its versions, held against the clock.

The machines have no clock. But each change of a lock table has a version, and so has each request: its number is the
version at which it was asked for, its `since` the one at which it was granted. So it is enough to put down, now and
then, what the version is and what time it is. A step that comes within a moment of the one before is not put down:
what is looked up is early by that moment at most. Stamps that no request needs any more are dropped, so their
number is bounded by that of the requests.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

__all__ = ["Stamps"]

MOMENT = 10_000_000  # nanoseconds
FEW = 1000  # stamps that are worth nothing

Stamp = tuple[int, int]
"""A version, and when the first change after it was made, in microseconds since 1970."""


class Stamps:
    """When the changes of one lock table were made. For the node's turn.

    Args:
        now: The clock, in nanoseconds since 1970.
        needed: The versions that may be looked up.
    """

    __slots__ = ("_clock", "_due", "_last", "_needed", "_room", "_stamps")

    def __init__(self, now: Callable[[], int], needed: Callable[[], Iterable[int]]) -> None:
        self._clock = now
        self._needed = needed
        self._stamps: list[Stamp] = []
        self._due = 0
        self._last = 0
        self._room = FEW

    def step(self, version: int) -> None:
        """A step begins, at this version of the lock table."""
        now = self._clock()
        if self._last <= now < self._due:
            return
        self._put_down(version, now)

    def _put_down(self, version: int, now: int) -> None:
        stamps = self._stamps
        while stamps and stamps[-1][0] >= version:  # nothing has changed since, or that was undone
            stamps.pop()
        stamps.append((version, now // 1000))
        self._due, self._last = now + MOMENT, now
        if len(stamps) > self._room:
            self._tidy_up()

    def _tidy_up(self) -> None:
        """Drop the stamps that no request needs; those that are left can double before this is done again."""
        stamps = self._stamps
        used = {bisect_left(stamps, (version,)) - 1 for version in self._needed()}
        used.add(len(stamps) - 1)
        self._stamps = [stamps[at] for at in sorted(used) if at >= 0]
        self._room = FEW + 2 * len(self._stamps)

    def when(self, version: int) -> int:
        """When the change with this version was made, in microseconds since 1970; 0 if that is not known."""
        at = bisect_left(self._stamps, (version,)) - 1
        return self._stamps[at][1] if at >= 0 else 0
