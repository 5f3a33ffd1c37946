"""Whose turn it is among the groups of one worker, and how long a turn is.

A group that has got tasks stands last, once. Its turn is a *slice*: it ends with the first task that ends a
millisecond or more after the slice began, or with the last task that waited then. If there are tasks left, it stands last
again. Nothing is carried over from one slice to the next.

A look at the clock costs as much as a very short task. So where tasks take less than 5 µs it is looked at after each eighth: a slice
in which slow tasks come after such ones may have up to seven tasks more. Hence the bound, for a worker with N groups that have tasks: a group
begins its next slice after N slices at most, each of a millisecond and a task; or and eight tasks, where some of the group take
less than 5 µs.

Who adds tasks, in any thread, and the background say which groups have some; the worker's thread alone takes turns. What both do
is one step each, that is not torn, and twice is as good as once.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["BATCH", "QUICK", "SLICE", "Turns"]

SLICE = 0.001
"""Seconds after which it is the next group's turn."""
QUICK = 0.000005
"""If the last look at the clock is less than these seconds ago, the next one comes after `BATCH` tasks; else after each task."""
BATCH = 8


class Turns:
    """The groups that may have tasks, in the order of their turns.

    Args:
        clock: Tells seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ready: OrderedDict[int, None] = OrderedDict()  # its methods are one step each
        # Of the worker's thread alone: a heap, and what is in it.
        self._later: list[tuple[float, int]] = []
        self._put_off: dict[int, float] = {}

    def __bool__(self) -> bool:
        """Whether it is the turn of some group by now."""
        return bool(self._ready)

    def add(self, group: int) -> None:
        """A group has tasks; from any thread. It keeps its place if it stands already."""
        self._ready[group] = None

    def put_off(self, group: int, until: float) -> None:
        """It is not a group's turn before that time."""
        if self._put_off.get(group) != until:
            self._put_off[group] = until
            heapq.heappush(self._later, (until, group))

    def take(self) -> int | None:
        """The group whose turn it is; it does not stand any more."""
        while self._later and self._later[0][0] <= self._clock():
            _, group = heapq.heappop(self._later)
            self._put_off.pop(group, None)
            self.add(group)
        return self._ready.popitem(last=False)[0] if self._ready else None

    def seconds(self) -> float | None:
        """How long it takes until a group's turn comes that was put off; None if there is none."""
        return max(0.0, self._later[0][0] - self._clock()) if self._later else None
