"""Measuring, and showing the results: rows, a plain table, JSON.

The machines that this runs on are noisy, so nothing is judged by its time alone. A subject and its
yardsticks are measured in turns within each round, in an order that alternates, with the garbage
collected before and the collector off meanwhile. The median of the rounds counts, and the ratio is
the median of the ratios of each round.

Where everything happens in one thread, in a hub, the processor time of that thread is measured, so
that other programs on the machine count little (`clock`); it is the time on a machine that has
nothing else to do. Between threads, where one also waits for another to be woken, it is the time on
the wall.
"""

from __future__ import annotations

import gc
import importlib
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any, Literal, NamedTuple

import gevent

__all__ = [
    "Clock",
    "Figure",
    "Report",
    "Row",
    "Runs",
    "clock",
    "interleave",
    "number",
    "repeat",
    "table",
]

Clock = Callable[[], float]

Sample = Callable[[], float]
"""Runs once; returns the seconds that one operation took."""

MICRO = 1e6
MILLI = 1e3


@dataclass
class Row:
    """One line of a table: a subject, perhaps beside a yardstick, perhaps with a target.

    Attributes:
        case: What was measured.
        value: How much it was.
        unit: The unit of the value.
        yardstick: What it is compared with.
        yardstick_value: How much that was, in the same unit.
        ratio: The median of `value / yardstick_value` over the rounds.
        quartiles: The first and the third quartile of that ratio.
        target: What the ratio, or the value, should not exceed.
        target_on: Whether the target is for the ratio or the value.
        note: What else was seen.
    """

    case: str
    value: float
    unit: str
    yardstick: str = ""
    yardstick_value: float | None = None
    ratio: float | None = None
    quartiles: tuple[float, float] | None = None
    target: float | None = None
    target_on: Literal["ratio", "value"] = "ratio"
    note: str = ""

    def verdict(self) -> str:
        """The target, and whether it was met."""
        if self.target is None:
            return ""
        if self.target_on == "ratio":
            reached, unit = self.ratio, "x"
        else:
            reached, unit = self.value, f" {self.unit}"
        met = reached is not None and reached <= self.target
        return f"≤ {self.target:g}{unit} {'ok' if met else 'MISSED'}"


@dataclass
class Report:
    """The results of one figure in one context."""

    quick: bool = False
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, case: str, value: float, unit: str, **more: Any) -> None:
        """Add a row."""
        self.rows.append(Row(case, value, unit, **more))

    def compare(
        self,
        runs: Runs,
        case: str,
        yardstick: str,
        unit: Literal["µs", "ms", "s"] = "µs",
        *,
        label: str | None = None,
        yardstick_label: str | None = None,
        target: float | None = None,
        note: str = "",
    ) -> None:
        """Add a row that sets a subject beside its yardstick."""
        factor = {"µs": MICRO, "ms": MILLI, "s": 1.0}[unit]
        ratios = runs.ratios(case, yardstick)
        self.add(
            label or case,
            runs.median(case) * factor,
            unit,
            yardstick=yardstick_label or yardstick,
            yardstick_value=runs.median(yardstick) * factor,
            ratio=statistics.median(ratios),
            quartiles=quartiles(ratios),
            target=target,
            note=note,
        )

    def limit(self, target: float) -> float | None:
        """A target, unless this is a quick run, which says nothing about speed."""
        return None if self.quick else target

    def optional(self, module: str) -> ModuleType | None:
        """Import the module of a yardstick; when it is absent, say so in the report."""
        try:
            return importlib.import_module(module)
        except ImportError:
            package = module.partition(".")[0]
            self.skipped.append(f"{package} is not installed: its rows are left out")
            return None

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"rows": [asdict(row) for row in self.rows], "skipped": self.skipped}


class Figure(NamedTuple):
    """A group of rows.

    Attributes:
        name: What `--only` calls it.
        title: What the table calls it.
        contexts: The functions that fill a report, each run in a process of its own. The name of
            a context says where: "hub" in a greenlet, anything else where there is no hub.
    """

    name: str
    title: str
    contexts: Mapping[str, Callable[[Report], None]]


def clock(green: bool) -> Clock:
    """The clock to measure with: for greenlets of this one thread, or for more than one thread."""
    return time.thread_time if green else time.perf_counter


class Runs(dict[str, list[float]]):
    """Seconds for one operation, by name, one for each round."""

    def median(self, name: str) -> float:
        """The median of one series."""
        return statistics.median(self[name])

    def ratios(self, name: str, yardstick: str) -> list[float]:
        """One series divided by another, round by round."""
        return [a / b for a, b in zip(self[name], self[yardstick], strict=True)]


def quartiles(values: list[float]) -> tuple[float, float]:
    """The first and the third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def interleave(samples: Mapping[str, Sample], rounds: int) -> Runs:
    """Take each sample once in each round, in an order that is reversed each time."""
    runs = Runs((name, []) for name in samples)
    names = list(samples)
    try:
        for _ in range(rounds):
            for name in names:
                gc.collect()
                gc.disable()
                runs[name].append(samples[name]())
                gc.enable()
            names.reverse()
    finally:
        gc.enable()
    return runs


def run_all(clients: Iterable[Callable[[], object]], green: bool = False) -> None:
    """Have clients do their work at the same time, in threads or greenlets, until all have ended.

    Raises:
        BaseException: What the first client that failed has raised.
    """
    errors: list[BaseException] = []

    def run(client: Callable[[], object]) -> None:
        try:
            client()
        except BaseException as error:
            errors.append(error)

    if green:
        gevent.joinall([gevent.spawn(run, client) for client in clients])
    else:
        threads = [threading.Thread(target=run, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def repeat(function: Callable[[], object], seconds: float, now: Clock) -> Sample:
    """Make a sample of a quick function: call it so often that this takes about so many seconds."""
    times = range(1)

    def sample() -> float:
        begun = now()
        for _ in times:
            function()
        return (now() - begun) / len(times)

    function()
    while (took := sample() * len(times)) < seconds / 2:
        times = range(2 * len(times))
    times = range(max(1, round(len(times) * seconds / took)))
    return sample


# --- The table -------------------------------------------------------------------------------------

HEADS = ("", "measured", "yardstick", "", "ratio", "quartiles", "target", "")


def table(title: str, rows: Iterable[Row], skipped: Iterable[str] = ()) -> str:
    """A plain table."""
    lines = [HEADS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [title, "-" * len(title)]
    for line in lines:
        cells = [
            cell.rjust(width) if place in (1, 3, 4) else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    text += [f"skipped: {reason}" for reason in skipped]
    return "\n".join(text) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    yardstick = row.yardstick_value
    return (
        row.case,
        f"{number(row.value)} {row.unit}",
        row.yardstick,
        "" if yardstick is None else f"{number(yardstick)} {row.unit}",
        "" if row.ratio is None else f"{number(row.ratio)}x",
        "" if row.quartiles is None else " to ".join(map(number, row.quartiles)),
        row.verdict(),
        row.note,
    )


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10 or value == int(value):
        return f"{value:.3g}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
