"""The figure of programs that want one hot lock all the time, with a lock server, a Redis and a PostgreSQL.

Each program has the lock for a millisecond, and wants it again at once. redis-py's `Lock` asks again and again (ten times a
second by default) and its waiters have no order; PostgreSQL's advisory locks have a queue, like ours.
"""

from __future__ import annotations

import statistics
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.cluster import on_linux
from benchmarks.crowd_hot_program import HELD
from benchmarks.crowd_servers import Program, ask_all, postgres, servers, told
from benchmarks.harness import Figure, Report
from benchmarks.lab import Lab

__all__ = ["FIGURES"]

PROGRAMS = 8
ROUNDS = 3
OURS = "locks, one server"


class Kind(NamedTuple):
    """One kind of lock: the programs that use it, what it is, and what came of it."""

    programs: list[Program]
    about: str
    rounds: list[list[tuple[int, float, float]]]


def hot(report: Report) -> None:
    """Programs that want one lock all the time: turns in a second, and who waits for how long."""
    if not on_linux(report):
        return
    seconds, rounds, number = (0.3, 1, 2) if report.quick else (2.0, ROUNDS, PROGRAMS)
    with TemporaryDirectory() as folder, Lab(report, False) as lab, postgres(report) as database:
        places: dict[str, tuple[str, Any, str]] = {
            OURS: ("locks", servers(lab, 1, folder).given, ""),
            "locks, a majority of three": ("locks", servers(lab, 3, folder).given, ""),
        }
        redis = lab.start_redis()
        if redis is not None:
            places["redis-py's Lock"] = ("redis", redis.port, redis.about)
        if database is not None:
            places["PostgreSQL's advisory lock"] = ("postgres", database.address, database.about)
        kinds = {}
        for name, (kind, place, about) in places.items():
            programs = [
                Program(lab, "hot", module="crowd_hot_program", kind=kind, place=place)
                for _ in range(number)
            ]
            kinds[name] = Kind(programs, about, [])
        for each in kinds.values():
            told(each.programs)
        for _ in range(rounds):
            for each in kinds.values():
                each.rounds.append(ask_all(each.programs, seconds=seconds))
        for name, each in kinds.items():
            _add(report, name, each, kinds[OURS], seconds)


def _add(report: Report, name: str, kind: Kind, ours: Kind, seconds: float) -> None:
    """The rows of one kind: its own figures, and ours beside them."""
    each, longest = _each(kind, seconds), _longest(kind)
    last = kind.rounds[-1]
    turns = [turns for turns, _, _ in last]
    unfair = [most / mean for _, most, mean in last if mean]
    report.add(
        f"{len(kind.programs)} programs, {HELD * 1000:g} ms each, {name}: a turn", each, "ms",
        note=f"{1000 / each:,.0f} turns/s; longest wait {longest:.3f} s; a program had from {min(turns)} "
        f"to {max(turns)} turns; longest/mean wait by program {min(unfair):.1f} to {max(unfair):.1f}"
        + (f"; {kind.about}" if kind.about else ""),
    )  # fmt: skip
    if name.startswith("locks"):
        return
    for what, mine, other, unit in (
        ("a turn", _each(ours, seconds), each, "ms"),
        ("longest wait", _longest(ours), longest, "s"),
    ):
        report.add(
            f"{OURS}: {what}", mine, unit, yardstick=name, yardstick_value=other,
            ratio=mine / other, target=report.limit(1),
        )  # fmt: skip


def _each(kind: Kind, seconds: float) -> float:
    """Milliseconds for a turn."""
    rounds = [sum(turns for turns, _, _ in programs) for programs in kind.rounds]
    return 1000 * seconds / statistics.median(rounds)


def _longest(kind: Kind) -> float:
    """The longest wait: the median of the rounds."""
    return statistics.median(max(most for _, most, _ in programs) for programs in kind.rounds)


FIGURES = [
    Figure("crowd_hot", "programs that want one lock all the time", {"two cores": hot}),
]
