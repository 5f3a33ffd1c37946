"""Deadlocks of clients in programs of their own, whose nodes are connected with lock servers alone.

Each program has several nodes, and there is a mesh beside them (`benchmarks.spokes`): with `LOCKS_EXPLORE=1` 50
rings of each size, else a few.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator

import pytest

import locks
from benchmarks.spokes import SPOKES, Outcome, Spokes
from tests.helpers import EXPLORE

RUNS = 50 if EXPLORE else 5
KILLS = 10 if EXPLORE else 3
SIZES = (2, 3, 10, 50)


@pytest.fixture(scope="module")
def spokes() -> Iterator[Spokes]:
    """Programs with client nodes of one server and of three, and a mesh."""
    with Spokes(programs=10) as made:
        for world, servers in SPOKES.items():
            made.begin(world, servers, max(SIZES))
        made.begin("mesh", 3, max(SIZES), mesh=True)
        made.look()
        yield made


@pytest.mark.explore
@pytest.mark.parametrize("world", SPOKES)
@pytest.mark.parametrize("size", SIZES)
def test_rings_of_programs(spokes: Spokes, size: int, world: str) -> None:
    """All are resolved, by one surrender each; it prints how long that takes beside the mesh."""
    servers = SPOKES[world]
    ours: list[Outcome] = []
    mesh: list[Outcome] = []
    for _ in range(RUNS):
        ours.append(spokes.ring(world, size, servers))
        mesh.append(spokes.ring("mesh", size, servers))
    ratio = statistics.median(a.took / b.took for a, b in zip(ours, mesh, strict=True))
    print(f"{RUNS} rings of {size}, {servers} servers: {ratio:.2f} times the mesh's time")
    assert [outcome.yielded for outcome in ours] == [1] * RUNS


@pytest.mark.explore
@pytest.mark.parametrize("size", SIZES)
def test_rings_of_which_a_server_is_killed(spokes: Spokes, size: int) -> None:
    """Of three servers that grant by majority one is killed when the ring is closed: it is resolved."""
    for _ in range(KILLS):
        outcome = spokes.ring("three", size, 3, kill=True, majority=True)
        assert outcome.yielded >= 1


@pytest.mark.explore
def test_a_program_that_is_stopped(spokes: Spokes) -> None:
    """All others get locks while it is stopped, though it has a request that they wait for, and are told of."""
    server = spokes.servers["three"][0].name
    node = locks.start()
    agent = node.spawn_agent()
    locks.original.lock(agent, ("toil", "stopped"), "write", [server])
    stopped, *others = spokes.programs
    number = {"number": 0, "index": 0}
    place = ("toil", "stopped"), [server], "all"
    own = ("own",), [server], "all"
    stopped.ask("hold", world="three", members=[(*number.values(), own, place)])
    assert "held" in stopped.line()
    stopped.ask("go", numbers=[0])
    for program in others:
        program.ask("toil", world="three", server=server, pause=0.1, ids=20, most=2)
    slowest: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(3):
        for is_stopped in (False, True):
            os.kill(stopped.pid, signal.SIGSTOP if is_stopped else signal.SIGCONT)
            time.sleep(0.5)
            for program in others:
                program.ask("times")
            time.sleep(3)
            each = [program.ask("times")["took"] for program in others]
            assert all(each), "a program got no lock"
            took = sorted(t for times in each for t in times)
            slowest[is_stopped].append(took[int(0.99 * len(took))])
    os.kill(stopped.pid, signal.SIGCONT)
    for program in others:
        program.ask("rest")
    locks.original.end_transaction(agent)
    stopped.ask("forget")
    print(f"99th percentiles, in seconds: {slowest}")
