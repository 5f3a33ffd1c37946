"""The order and length of turns among the groups of one worker.

A group that gets tasks is put at the end of the order, once. Its turn is a *slice*. The slice ends
with the first task that ends a millisecond or more after the slice began, or with the last task
that waited then. If there are tasks left, the group moves to the end. Nothing is carried over from
one slice to the next.

Reading the clock costs as much as a very short task. So if tasks take less than 5 µs, the clock is
read only after every eighth task. If slow tasks follow such short ones in a slice, the slice may
have up to seven tasks more. This gives a bound for a worker with N groups that have tasks: a group
begins its next slice after at most N slices. Each of them takes a millisecond and one task, or a
millisecond and eight tasks if some tasks of its group take less than 5 µs.

Callers that add tasks, in any thread, and the background report groups with tasks. Only the
worker's thread takes turns. Both do so in atomic steps that may be repeated without harm.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["BATCH", "QUICK", "SLICE", "RoundRobin"]

SLICE = 0.001
"""Seconds after which it is the next group's turn."""
QUICK = 0.000005
"""If the clock was read less than these seconds ago, the next reading comes after `BATCH` tasks."""
BATCH = 8


class RoundRobin:
    """The groups that may have tasks, in the order of their turns.

    Args:
        clock: Tells seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ready: OrderedDict[int, None] = OrderedDict()  # its methods are atomic
        # Only for the worker's thread: a heap, and its content.
        self._later: list[tuple[float, int]] = []
        self._put_off: dict[int, float] = {}

    def __bool__(self) -> bool:
        """Whether it is the turn of some group by now."""
        return bool(self._ready)

    def add(self, group: int) -> None:
        """Add a group that has tasks, from any thread; if it is added already, it keeps its place."""
        self._ready[group] = None

    def put_off(self, group: int, until: float) -> None:
        """It is not a group's turn before that time."""
        if self._put_off.get(group) != until:
            self._put_off[group] = until
            heapq.heappush(self._later, (until, group))

    def take_group(self) -> int | None:
        """Take the group whose turn it is out of the order."""
        while self._later and self._later[0][0] <= self._clock():
            _, group = heapq.heappop(self._later)
            self._put_off.pop(group, None)
            self.add(group)
        return self._ready.popitem(last=False)[0] if self._ready else None

    def seconds(self) -> float | None:
        """Seconds until the turn of the first postponed group; None if there is none."""
        return max(0.0, self._later[0][0] - self._clock()) if self._later else None
