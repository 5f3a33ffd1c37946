"""What it costs that a lock server knows since when: with its record of times, and without; and what it tells observers."""

from __future__ import annotations

import time
from collections.abc import Callable

import locks
from benchmarks.harness import Figure, Report, Sample, interleave, repeat, run_all
from benchmarks.transactions import ONE

__all__ = ["FIGURES"]

CLIENTS = 10


def _transaction() -> None:
    agent, _ = locks.begin_transaction()
    locks.lock(agent, ONE)
    locks.end_transaction(agent)


def _contended(times: int) -> Callable[[], None]:
    def client() -> None:
        for _ in range(times):
            _transaction()

    return lambda: run_all([client] * CLIENTS, green=True)


def facts(report: Report) -> None:
    """One client, and ten of one lock; each with the record and without."""
    seconds, rounds = (0.001, 3) if report.quick else (0.05, 61)
    record = locks.start().server.record
    step = record.step

    def switched(on: bool, sample: Sample) -> Sample:
        def run() -> float:
            record.step = step if on else lambda version: None
            return sample()

        return run

    alone = repeat(_transaction, seconds, time.thread_time)
    many = repeat(_contended(5 if report.quick else 20), seconds, time.thread_time)
    samples = {
        "begin, lock, end": switched(True, alone),
        "without the record": switched(False, alone),
        "10 clients, 20 transactions each": switched(True, many),
        "the same without the record": switched(False, many),
    }
    runs = interleave(samples, rounds)
    names = list(samples)
    report.compare(runs, names[0], names[1], target=report.limit(1.05))
    report.compare(runs, names[2], names[3], target=report.limit(1.05))
    record.step = step
    number = 100 if report.quick else 10_000
    with locks.transaction() as tx:
        tx.lock_all([(("row", each), "write") for each in range(number)])
        begun = time.thread_time()
        assert len(locks.waits().requests) >= number
        report.add(f"waits() of {number:,} requests", (time.thread_time() - begun) * 1000, "ms")
    locks.stop()


FIGURES = [Figure("facts", "facts for observers", {"hub": facts})]
