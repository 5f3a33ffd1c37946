"""The clocks that `locks` reads: one place, and functions that a test which freezes the time does not replace.

freezegun replaces the functions of `time` in all modules, time-machine what they do. A wait that rests on them never ends, and a lock server whose
clock stands still in 2020 fits to no other one. So `locks` takes the time from the system (`clock_gettime`, and the clock of gevent's loop).
What programs see of times are those of the real clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import gevent.core  # type: ignore[import-not-found]

__all__ = ["monotonic", "wall", "wall_ns"]

monotonic = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
"""A time in seconds that never goes back, for waits and measurements."""

# libev's, as the hub has it; libuv has none.
wall: Callable[[], float] = getattr(gevent.core, "time", None) or partial(
    time.clock_gettime, time.CLOCK_REALTIME
)
"""The time in seconds since 1970."""


def wall_ns() -> int:
    """The time in nanoseconds since 1970, exact to microseconds."""
    return int(wall() * 1e6) * 1000
