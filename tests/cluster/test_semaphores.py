"""`Semaphore` of programs that share servers: a killed holder's unit, deadlocks, and who disagrees on the number."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.servers import LIMIT, Servers, hear, tell
from tests.warm import Program

HOLDER = """
import sys, locks
pool = locks.Semaphore(("pool",), 2{more})
with pool:
    print(pool.unit(), pool.token(), flush=True)
    sys.stdin.readline()
"""
KNOT = """
import sys, time, locks
node = locks.start()
while len(node.alive) < 4:  # or x could be asked for at different servers first, which is a circle of its own
    time.sleep(0.01)
pool, x = locks.Semaphore(("knot",), 2), locks.Lock(("x",))
first, second = {order}
try:
    with first:
        print("first", flush=True)
        sys.stdin.readline()
        with second:
            print("done", flush=True)
except locks.DeadlockAborted as error:
    print("aborted", repr(str(error)), flush=True)
"""
OTHER = """
import locks
try:
    locks.Semaphore(("pool",), 3).acquire()
except locks.errors.ConflictingRequest as error:
    print(error)
"""

Start = Callable[[str], Program]


@pytest.fixture
def start(processes: Servers) -> Iterator[Start]:
    """Start a program; all of them are killed at the end."""
    programs = []

    def begin(code: str) -> Program:
        programs.append(processes.program(code))
        return programs[-1]

    yield begin
    for program in programs:
        program.kill()
        program.communicate(timeout=LIMIT)


@pytest.mark.parametrize("more", ["", ", nodes=['a@127.0.0.1']"], ids=["all servers", "one"])
def test_the_unit_of_a_killed_holder_is_free(start: Start, more: str) -> None:
    """The next in line has it, with a larger token of the same unit; who names another number is refused."""
    holders = [start(HOLDER.format(more=more)) for _ in range(2)]
    had = dict(tuple(map(int, hear(holder).split())) for holder in holders)
    assert sorted(had) == [0, 1]
    refused = start(OTHER)
    assert "with 2 units" in hear(refused)
    waiting = start(HOLDER.format(more=more))
    holders[0].kill()
    unit, token = map(int, hear(waiting).split())
    assert token > had[unit]
    tell(holders[1])
    assert holders[1].wait(LIMIT) == 0


def test_a_knot_of_three_programs(start: Start) -> None:
    """Two have the units and want x; the third has x and wants a unit: one of them is aborted."""
    programs = [start(KNOT.format(order=order)) for order in ("pool, x", "pool, x", "x, pool")]
    assert [hear(program) for program in programs] == ["first"] * 3
    for program in programs:
        tell(program)
    aborted, *others = sorted(hear(program) for program in programs)
    assert others == ["done", "done"]
    assert aborted.startswith("aborted")
    assert "a unit of knot*2" in aborted  # and no circle of x alone: it has x by a majority
