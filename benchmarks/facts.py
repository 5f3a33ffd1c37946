"""What it costs to know since when, to measure waits and holds, and to look for long waits: all of it, against none of
it; and what an observer's look at a large lock table costs, and one of who collects metrics, for whom nothing else is done.

    python -m benchmarks --only facts
    python -m benchmarks.facts on 2000       # so many transactions and no more, to count instructions; or `off`

For machines that are noisy, instructions: run the second one with 2,000 and with 4,000, `on` and `off`, each under `valgrind
--tool=cachegrind --cache-sim=no`; the differences are 2,000 transactions.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import locks
from benchmarks.harness import Figure, Report, Sample, interleave, repeat, run_all
from benchmarks.transactions import ONE
from locks.metrics.collecting import Metrics
from locks.node.node import Node
from locks.node.observing.times import Times

__all__ = ["FIGURES"]

CLIENTS = 10


def _transaction() -> None:
    agent, _ = locks.original.begin_transaction()
    locks.original.lock(agent, ONE)
    locks.original.end_transaction(agent)


def _contended(times: int) -> Callable[[], None]:
    def client() -> None:
        for _ in range(times):
            _transaction()

    return lambda: run_all([client] * CLIENTS, green=True)


class _Nothing:
    """Puts nothing down."""

    def note(self, changed: Any) -> None:
        """Nothing."""


def _switch(node: Node, times: Times, on: bool) -> None:
    """Have the lock server put down what happens when, or not; then nobody knows of long waits, either."""
    node.server.times = times if on else _Nothing()  # type: ignore[assignment]


def facts(report: Report) -> None:
    """One client, and ten of one lock; with all of it and with nothing."""
    seconds, rounds = (0.001, 3) if report.quick else (0.05, 61)
    node = locks.start()
    node.thin.close()  # thin locks put down next to nothing
    times = node.server.times
    has_client = report.optional("prometheus_client") is not None
    metrics = Metrics(False, lambda: node)

    def switched(on: bool, work: Callable[[], None]) -> Sample:
        sample = repeat(work, seconds, time.thread_time)

        def run() -> float:
            _switch(node, times, on)
            try:
                return sample()
            finally:
                _switch(node, times, True)

        return run

    many = _contended(5 if report.quick else 20)
    samples = {
        "begin, lock, end": switched(True, _transaction),
        "with nothing": switched(False, _transaction),
        "10 clients, 20 transactions each": switched(True, many),
        "the same with nothing": switched(False, many),
    }
    runs = interleave(samples, rounds)
    names = list(samples)
    report.compare(runs, names[0], names[1], target=report.limit(1.05))
    report.compare(runs, names[2], names[3], target=report.limit(1.05))
    number = 100 if report.quick else 10_000
    with locks.transaction() as tx:
        tx.lock_all([(("row", each), "write") for each in range(number)])
        begun = time.thread_time()
        assert len(locks.facts.waits().requests) >= number
        report.add(f"waits() of {number:,} requests", (time.thread_time() - begun) * 1000, "ms")
        if has_client:
            begun = time.thread_time()
            list(metrics.collect())
            spent = (time.thread_time() - begun) * 1000
            report.add(f"metrics with {number:,} requests", spent, "ms")
    locks.stop()


FIGURES = [Figure("facts", "facts, log of waits, metrics", {"hub": facts})]

if __name__ == "__main__":
    _node = locks.start()
    _node.thin.close()
    _switch(_node, _node.server.times, sys.argv[1] == "on")
    for _ in range(int(sys.argv[2])):
        _transaction()
    locks.stop()
