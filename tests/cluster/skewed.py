"""A program whose clock is wrong: `python -m tests.cluster.skewed SECONDS MODULE ARGUMENT...`.

It runs a module as `python -m` does, with the time of day that `locks` reads that many seconds ahead. Clocks that measure
how long something takes are right.
"""

from __future__ import annotations

import runpy
import sys

from locks.runtime import clock

SECONDS = float(sys.argv[1]) if len(sys.argv) > 2 else 0.0
_wall = clock.wall


def skewed_wall() -> float:
    """As `locks.runtime.clock.wall`."""
    return _wall() + SECONDS


if __name__ == "__main__":
    clock.wall = skewed_wall
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
