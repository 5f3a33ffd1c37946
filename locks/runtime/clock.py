"""The clocks that `locks` reads: one place, and functions that a test which freezes the time does not replace.

freezegun replaces the functions of `time` in all modules, time-machine what they do. A wait that rests on them never ends, and a lock server whose
clock stands still in 2020 fits to no other one. So `locks` takes the time from the system (`clock_gettime`, and the clock of gevent's loop).
What programs see of times are those of the real clock.
"""

from __future__ import annotations

import time
from functools import partial

import gevent.core  # type: ignore[import-not-found]

__all__ = ["monotonic", "wall", "wall_ns"]

monotonic = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
"""A time in seconds that never goes back, for waits and measurements."""

_of_loop = getattr(gevent.core, "time", None)  # libev's; libuv has none


def wall() -> float:
    """The time in seconds since 1970."""
    return time.clock_gettime(time.CLOCK_REALTIME) if _of_loop is None else float(_of_loop())


def wall_ns() -> int:
    """The time in nanoseconds since 1970, exact to microseconds."""
    return int(wall() * 1e6) * 1000
