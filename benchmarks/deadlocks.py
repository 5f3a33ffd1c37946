"""Figures of deadlocks: rings of clients, each waiting for the lock of the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
import gevent.event

import locks
from benchmarks.harness import Figure, Report, clock, interleave

__all__ = ["FIGURES"]


class Ring:
    """Clients 0 to n - 1; each has its own id and wants the next one's.

    Args:
        size: How many clients.
        closed: Whether the last one wants the first one's id. If not, there is no deadlock: the
            last one just ends, and one after the other gets what it waits for.
    """

    def __init__(self, size: int, closed: bool) -> None:
        self.size, self.closed = size, closed
        self.knowledge = self.surrenders = self.deadlocks = 0

    def run(self) -> float:
        """Seconds from the last request (or the last one's end) until all are done."""
        now = clock(green=True)
        ready: list[None] = []
        go = [gevent.event.Event() for _ in range(self.size)]
        clients = [gevent.spawn(self._client, i, ready, go[i]) for i in range(self.size)]
        while len(ready) < self.size:
            gevent.sleep(0)
        *first, last = go
        for event in first:
            event.set()
            gevent.sleep(0)
        while locks.statistics().table.waiting < self.size - 1:
            gevent.sleep(0)
        before = locks.statistics()
        begun = now()
        last.set()
        gevent.joinall(clients, raise_error=True)
        took = now() - begun
        after = locks.statistics()
        self.knowledge = after.knowledge - before.knowledge
        self.surrenders = after.table.surrenders - before.table.surrenders
        self.deadlocks = after.deadlocks - before.deadlocks
        return took

    def _client(self, i: int, ready: list[None], go: Any) -> None:
        agent, _ = locks.original.begin_transaction()
        locks.original.lock(agent, ("ring", i))
        ready.append(None)
        go.wait()
        if self.closed or i < self.size - 1:
            locks.original.lock(agent, ("ring", (i + 1) % self.size))
        locks.original.end_transaction(agent)


def rings(report: Report) -> None:
    """Figure 4."""
    sizes, rounds = ([2, 3, 5], 2) if report.quick else ([2, 3, 5, 10, 20, 50], 41)
    closed = {size: Ring(size, True) for size in sizes}
    opened = {size: Ring(size, False) for size in sizes}
    samples: dict[str, Callable[[], float]] = {}
    most: dict[int, tuple[int, int]] = dict.fromkeys(sizes, (0, 0))

    def watched(size: int) -> Callable[[], float]:
        def run() -> float:
            ring = closed[size]
            took = ring.run()
            knowledge, surrenders = most[size]
            most[size] = max(knowledge, ring.knowledge), max(surrenders, ring.surrenders)
            return took

        return run

    for size in sizes:
        samples[f"ring of {size}"] = watched(size)
        samples[f"chain of {size}"] = opened[size].run
    runs = interleave(samples, rounds)
    for size in sizes:
        note = "knowledge messages {}, surrenders {}".format(*most[size])
        report.compare(runs, f"ring of {size}", f"chain of {size}", note=note)
    if not report.quick:
        report.compare(
            runs, "ring of 50", "ring of 5", yardstick_label="ring of 5", target=report.limit(11)
        )
    most_surrenders = max(surrenders for _, surrenders in most.values())
    report.add(
        "surrenders to resolve a ring", most_surrenders, "at most", target=1, target_on="value"
    )
    locks.stop()


FIGURES = [
    Figure(
        "rings",
        "from the last request of a ring until all clients are done",
        {"hub": rings},
    )
]
