"""Clocks that differ by days: the program says so, whoever's clock is ahead, and nobody else is harmed."""

from __future__ import annotations

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import Servers

SKEWED = """
import locks.runtime.clock
real = locks.runtime.clock.wall
locks.runtime.clock.wall = lambda: real() + {days} * 86_400
import locks
node = locks.start()
print(sorted(set(node.refusals.values())), flush=True)
try:
    with locks.Lock(("a",), timeout=30):
        print("locked")
except locks.LocksError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("days", [3, -3])
def test_a_program_whose_clock_differs_by_days_is_told_so(days: int) -> None:
    """`start` knows why the server does not serve it, and so does the error of the first lock."""
    with World() as world:
        servers = Servers(world, ("a@127.0.0.1",))
        first, *rest = servers.run(SKEWED.format(days=days)).splitlines()
        assert "differ by 3.0 days; correct them" in first
        (error,) = (line for line in rest if line.startswith("CannotServe"))
        assert "does not serve this program" in error
        assert "differ by 3.0 days; correct them" in error
        assert "locked" in servers.run(SKEWED.format(days=0))
