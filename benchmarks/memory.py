"""Figure of memory: what one idle agent takes, beside an idle actor with a greenlet.

`python -m benchmarks.memory KIND METER NUMBER` prints the bytes for each of NUMBER agents or actors;
each kind and each way to measure has a process of its own.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import gevent
import gevent.event

import locks
from benchmarks.harness import Figure, Report

__all__ = ["FIGURES"]

KIBI = 1024
STATM = "/proc/self/statm"


class Idle(locks.actors.GeventActor):
    """Has nothing to do."""

    running = 0

    def on_start(self) -> None:
        """Count it: it has run now."""
        Idle.running += 1


def agents(number: int) -> list[Any]:
    """Transactions that have only begun."""
    return [locks.original.begin_transaction()[0] for _ in range(number)]


def holders(number: int) -> list[Any]:
    """Transactions with one lock each."""
    begun = agents(number)
    for i, agent in enumerate(begun):
        locks.original.lock(agent, ("t", i))
    return begun


def clients(number: int) -> list[Any]:
    """Transactions with one lock each, each of a client of its own: a greenlet that waits."""

    def client(i: int) -> None:
        agent, _ = locks.original.begin_transaction()
        locks.original.lock(agent, ("t", i))
        running.append(i)
        asleep.wait()

    running: list[int] = []
    asleep = gevent.event.Event()
    spawned = [gevent.spawn(client, i) for i in range(number)]
    while len(running) < number:
        gevent.sleep(0.01)
    return [spawned, asleep]


def actors(number: int) -> list[Any]:
    """Bare actors that have run once."""
    before = Idle.running
    started = [Idle.start() for _ in range(number)]
    while Idle.running < before + number:
        gevent.sleep(0.01)
    return started


KINDS: dict[str, Callable[[int], list[Any]]] = {
    "agent": agents,
    "agent with a lock": holders,
    "agent with a lock + its client": clients,
    "GeventActor": actors,
}


def resident() -> int:
    """Bytes of this process that are in memory."""
    with open(STATM, encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def weigh(kind: str, meter: str, number: int) -> float:
    """The bytes for each, in this process, in a greenlet."""
    make = KINDS[kind]
    kept = [make(10)]  # with what is made only once
    gc.collect()
    if meter == "tracemalloc":
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
    else:
        before = resident()
    kept.append(_made(make, number))
    gc.collect()
    after = tracemalloc.get_traced_memory()[0] if meter == "tracemalloc" else resident()
    return (after - before) / number


def _made(make: Callable[[int], list[Any]], number: int) -> list[Any]:
    if make is holders or make is clients:
        # The ten that were made before hold the first ids; these get ids of their own.
        locks.stop()
    return make(number)


def memory(report: Report) -> None:
    """Figure 6."""
    number = 200 if report.quick else 10000
    meters = ["RSS", "tracemalloc"]
    if not os.path.exists(STATM):
        meters.remove("RSS")
        report.skipped.append(f"there is no {STATM} here: RSS is left out")
    for meter in meters:
        weights = {}
        for kind in KINDS:
            command = [sys.executable, "-m", "benchmarks.memory", kind, meter, str(number)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            weights[kind] = float(done.stdout) / KIBI
        for kind in list(KINDS)[:-1]:
            yardstick = max(weights["GeventActor"], 0.1)
            report.add(
                f"{kind}, {meter}", weights[kind], "KiB",
                yardstick="idle GeventActor", yardstick_value=yardstick,
                ratio=weights[kind] / yardstick,
                target=report.limit(20) if kind == "agent" else None, target_on="value",
            )  # fmt: skip


FIGURES = [Figure("memory", "of each of 10,000 idle agents", {"processes": memory})]

if __name__ == "__main__":
    name, way, count = sys.argv[1:]
    print(gevent.spawn(weigh, name, way, int(count)).get(), flush=True)
    os._exit(0)  # ending ten thousand actors one by one is not what is measured
