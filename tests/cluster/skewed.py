"""A program whose clock is wrong: `python -m tests.cluster.skewed SECONDS MODULE ARGUMENT...`.

It runs a module as `python -m` does, with the time of day that many seconds ahead. Clocks that measure
how long something takes (`time.monotonic`) are right.
"""

from __future__ import annotations

import runpy
import sys
import time

SECONDS = float(sys.argv[1]) if len(sys.argv) > 2 else 0.0
_time, _time_ns = time.time, time.time_ns


def skewed_time() -> float:
    """As `time.time`."""
    return _time() + SECONDS


def skewed_time_ns() -> int:
    """As `time.time_ns`."""
    return _time_ns() + int(SECONDS * 1e9)


if __name__ == "__main__":
    time.time = skewed_time
    time.time_ns = skewed_time_ns
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
