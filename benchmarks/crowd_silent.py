"""The figure of a server that is silent: one of three is stopped, each in turn, and nobody is to notice.

Before each kind of work the server is stopped anew, so that it surprises. The 99th percentile is set beside that of
the same work while all three are up; the server whose stop costs most counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory

import locks
from benchmarks.cluster import on_linux
from benchmarks.crowd_servers import (
    Program,
    fresh,
    percentile,
    servers,
    stopped,
    told,
    until_all_answer,
)
from benchmarks.harness import Figure, Report
from benchmarks.lab import Lab, now

__all__ = ["FIGURES"]

BUDGET = 1.5  # seconds for one kind of work while a server is stopped
STOPPED = 2.5  # seconds for which a server is stopped; one that speaks again sooner was busy, and is given more time (0015)
LIMIT = 6.0  # seconds for one piece of work
ADDED = 100.0  # milliseconds that a stopped server may add
Work = Callable[[], float]


def timed(operation: Callable[[], object]) -> Work:
    """The seconds that something takes, also if it fails."""

    def work() -> float:
        begun = now()
        try:
            operation()
        except locks.LocksError:
            return LIMIT
        return now() - begun

    return work


def new_lock() -> None:
    """A lock that nobody has had."""
    with locks.transaction(timeout=LIMIT) as tx:
        tx.write_lock(fresh())


def attempt() -> None:
    """A try at a free lock, which has to succeed."""
    lock = locks.Lock(fresh())
    if not lock.acquire(blocking=False):
        raise locks.LockTimeout("a free lock was refused")
    lock.release()


def question() -> None:
    """Who holds a lock."""
    locks.holders(fresh(), timeout=LIMIT)


def silent(report: Report) -> None:
    """One of three servers stopped, each in turn."""
    if not on_linux(report):
        return
    most, few = (5, 1) if report.quick else (60, 5)
    with TemporaryDirectory() as folder, Lab(report, False) as lab:
        found = servers(lab, 3, folder)
        starter = Program(lab, "start", **found.given)
        stands = Program(lab, "election", **found.given)
        told([starter, stands])
        locks.start(**found.given)

        def starts() -> float:
            starter.begin(name=fresh())
            return float(starter.end())

        def elections() -> float:
            stands.begin(resource=str(fresh()), limit=LIMIT)
            return float(stands.end())

        kinds: dict[str, tuple[Work, int]] = {
            "a new lock": (timed(new_lock), most),
            "a try at a free lock": (timed(attempt), most),
            "a question": (timed(question), most),
            "a start and a lock": (starts, few),
            "an election": (elections, few),
        }
        for name, (work, times) in kinds.items():
            up = _do(work, 2 * times)
            down: list[list[float]] = []
            for process in found.processes:
                until = time.monotonic() + STOPPED
                with stopped(process.pid):
                    down.append(_do(work, times))
                    time.sleep(max(0.0, until - time.monotonic()))
                until_all_answer(found.names)
            _add(report, name, up, down)
        locks.stop()


def _do(work: Work, times: int) -> list[float]:
    """Do it so often, or for as long as it may take."""
    until = time.monotonic() + BUDGET
    taken = [work()]
    while len(taken) < times and time.monotonic() < until:
        taken.append(work())
    return taken


def _add(report: Report, name: str, up: list[float], down: list[list[float]]) -> None:
    """What a stopped server adds to the 99th percentile: the one that adds most."""
    usual = percentile(up, 99) * 1e3
    taken = [seconds for each in down for seconds in each]
    late = max(percentile(each, 99) for each in down) * 1e3
    first = ", ".join(f"{each[0] * 1e3:,.0f}" for each in down)
    report.add(
        f"one of three servers stopped: added to {name}", max(0.0, late - usual), "ms",
        yardstick="p99, all up", yardstick_value=usual,
        target=report.limit(ADDED), target_on="value",
        note=f"p99 {late:,.1f} ms of the worst one, median {statistics.median(taken) * 1e3:,.1f} ms; "
        f"the first one after each stop {first} ms; {len(taken)} times",
    )  # fmt: skip


FIGURES = [
    Figure("crowd_silent", "one of three servers is silent", {"threads": silent}),
]
