"""Figures beside the original on the BEAM: the same work, in turns, on the same machine.

    LOCKS_ORIGINAL=.../_build/default/lib/locks/ebin python -m benchmarks --only beam

needs `erl` and `erlc` (Debian: erlang-base) and the folder with the original's compiled modules. The
original's program is `beam.erl`. Of ours the processor time is measured, as in all figures of a hub (it has
one thread); of the original the time on the wall, as it has a thread for each core.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Literal

import gevent

import locks
from benchmarks.contention import Crew, Transactions
from benchmarks.deadlocks import Ring
from benchmarks.harness import MICRO, MILLI, Figure, Report, Runs, Sample, clock, interleave
from benchmarks.table_lock import lock_table
from benchmarks.transactions import begin_lock_end

__all__ = ["ENDLESS", "FIGURES", "FOLDER", "MISSING", "ORIGINAL", "OURS", "add", "is_there"]

FOLDER = os.environ.get("LOCKS_ORIGINAL", "")
MISSING = "no original: this needs `erl`, `erlc`, and LOCKS_ORIGINAL=the folder with its modules"
ENDLESS = float("inf")
OURS, ORIGINAL = "ours: ", "original: "
now = clock(green=True)

Work = dict[str, tuple[Sample, Sample, "float | None"]]
"""By name: ours, the original's, and what the ratio should not exceed."""


class Beam:
    """A node with the original, which does what it is told."""

    def __init__(self, folder: Path) -> None:
        source = Path(__file__).with_name("beam.erl")
        subprocess.run(["erlc", "-o", str(folder), str(source)], check=True)
        self._folder = str(folder)
        self._begin()

    def _begin(self) -> None:
        self._process = subprocess.Popen(
            ["erl", "-noshell", "-pa", FOLDER, self._folder, "-s", "beam"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._await("ready")

    def _await(self, wanted: str) -> None:
        while (line := self._line()) != wanted:
            print(line)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError("the node with the original has ended")
        return line.strip()

    def seconds(self, work: str, *sizes: int) -> float:
        """What one operation takes; infinity if it does not come to an end, or its node does."""
        assert self._process.stdin is not None
        print(work, *sizes, file=self._process.stdin, flush=True)
        while True:
            try:
                line = self._line()
            except EOFError:
                self.close()
                self._begin()
                return ENDLESS
            if line == "never":
                return ENDLESS
            if line.isdigit():
                return int(line) / 1e9

    def sample(self, work: str, *sizes: int) -> Sample:
        """The same, to be done again and again."""
        return lambda: self.seconds(work, *sizes)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def original() -> Iterator[Beam]:
    """A node with the original, as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        beam = Beam(Path(folder))
        try:
            yield beam
        finally:
            beam.close()


def in_turns(work: Work, rounds: int) -> Runs:
    """Each by ours and by the original."""
    samples: dict[str, Sample] = {}
    for name, (ours, theirs, _) in work.items():
        samples[OURS + name], samples[ORIGINAL + name] = ours, theirs
    return interleave(samples, rounds)


def times(count: int, work: Callable[[], object]) -> Sample:
    """So many, one after the other."""

    def sample() -> float:
        begun = now()
        for _ in range(count):
            work()
        return (now() - begun) / count

    return sample


def whole_table(rows: int) -> Sample:
    """To ask for a table over so many rows, and to get it when their agents end."""

    def sample() -> float:
        return sum(lock_table(rows))

    return sample


def fresh() -> None:
    """A transaction of a new client."""
    gevent.spawn(begin_lock_end).join()


def is_there() -> bool:
    """Whether there is the original, and what runs it."""
    programs = shutil.which("erl") and shutil.which("erlc")
    return bool(programs) and (Path(FOLDER) / "locks.beam").exists()


def beside_the_original(report: Report) -> None:
    """Each work by ours and by the original, in turns."""
    if not is_there():
        report.skipped.append(MISSING)
        return
    count, rounds, few = (50, 2, 2) if report.quick else (2000, 15, 5)
    crowds, sizes, rows = [2, 20, 200], [2, 3, 5, 10], [100, 1000]
    if report.quick:
        crowds, sizes, rows = [2], [2], [10]
    with original() as beam:
        quick: Work = {
            "begin + lock + end, a new client each": (
                times(count, fresh), beam.sample("fresh", count), 1.0,
            ),
            "begin + lock + end, one client": (
                times(count, begin_lock_end), beam.sample("same", count), 0.7,
            ),
        }  # fmt: skip
        slow: Work = {}
        for clients in crowds:
            each = max(1, count // clients // 10)
            crew = Crew(True, clients, each, Transactions)
            shared = beam.sample("shared", clients, each)
            slow[f"{clients} clients that want one lock"] = (crew.run, shared, 1.0)
        for size in sizes:
            slow[f"ring of {size}"] = (Ring(size, True).run, beam.sample("ring", size), None)
        for many in rows:
            name = f"a table over {many:,} rows"
            slow[name] = (whole_table(many), beam.sample("table", many), None)
        runs = in_turns(quick, rounds)
        runs.update(in_turns(slow, few))
    locks.stop()
    for name, (_, _, target) in (quick | slow).items():
        add(report, runs, name, report.limit(target) if target else None)


def add(
    report: Report, runs: Runs, name: str, target: float | None, unit: Literal["µs", "ms"] = "µs"
) -> None:
    """Add a row; where the original does not always come to an end, say how often it did."""
    theirs = runs[ORIGINAL + name]
    ended = [seconds for seconds in theirs if seconds != ENDLESS]
    if len(ended) == len(theirs):
        report.compare(
            runs, OURS + name, ORIGINAL + name, unit, label=name, yardstick_label="the original",
            target=target,
        )  # fmt: skip
        return
    note = f"the original came to an end in {len(ended)} of {len(theirs)}"
    factor = MICRO if unit == "µs" else MILLI
    if ended:
        note += f", then after {median(ended) * factor:,.0f} {unit}"
    report.add(name, runs.median(OURS + name) * factor, unit, note=note)


FIGURES = [
    Figure(
        "beam",
        "the same work by ours and by the original on the BEAM, in turns",
        {"hub": beside_the_original},
    )
]
