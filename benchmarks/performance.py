"""The tables and plots of `docs/performance.md`, from figures that were measured.

python -m benchmarks --json benchmarks/measured/bench.json        # measures; takes minutes
python -m benchmarks.performance --write                          # and writes the page anew
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness import Row, number
from benchmarks.messages import markdown, rewritten
from benchmarks.plot import Line, plot

__all__ = ["PAGE", "main", "pictures", "tables"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "img"
MEASURED = ROOT / "benchmarks" / "measured" / "bench.json"

SECTIONS: dict[str, Sequence[str]] = {
    "one client": ("transaction", "handover", "task"),
    "the original": ("beam", "starts"),
    "many clients": ("shared", "rings", "table", "nth", "memory"),
    "one machine": ("machine", "neighbours"),
    "several nodes": ("remote", "quorum", "crowd", "crowd_nodes"),
    "elections": ("candidates", "leader", "takeover"),
    "operating": ("facts", "page", "loop", "tasks"),
    "client nodes": ("clients", "spokes", "scale"),
    "tables and tasks": ("mvcc", "store", "owned", "owners"),
    "engines": ("dask", "ray"),
}
"""The tables of the page, and the figures in each of them."""

SKIPPED = ("threads: two cores", "threads: one core")  # as hubs do; `make bench` shows them
HEAD = ("work", "time", "compared with", "ratio", "target")

Rows = dict[tuple[str, str, str], Row]


def read(file: Path = MEASURED) -> Rows:
    """What was measured, by figure, case and yardstick."""
    found: Rows = {}
    for name, figure in json.loads(file.read_text(encoding="utf-8"))["figures"].items():
        for context in figure["contexts"].values():
            for each in context.get("rows", ()):
                row = Row(**each)
                if not row.case.startswith(SKIPPED):
                    found[name, row.case, row.yardstick] = row
    return found


def lines(measured: Rows, figures: Sequence[str]) -> Iterator[Sequence[str]]:
    """The lines of one table."""
    for (figure, _, _), row in measured.items():
        if figure in figures:
            yield (
                row.case + (f" ({row.note})" if row.note and row.ratio is None else ""),
                f"{number(row.value)} {row.unit}",
                row.yardstick or "",
                "" if row.ratio is None else number(row.ratio),
                "" if row.target is None else f"{row.target:g}"
                + ("" if row.target_on == "ratio" else f" {row.unit}"),
            )  # fmt: skip


def tables(measured: Rows) -> dict[str, str]:
    """The tables of the page, as Markdown."""
    return {
        name: markdown([HEAD, *lines(measured, figures)], {0, 2})
        for name, figures in SECTIONS.items()
    }


def points(
    rows: Rows, figure: str, before: str, after: str = "", beside: str | None = None
) -> list[tuple[float, float]]:
    """Of cases like `ring of 5`, the number and what was measured: of it, or of what it is compared with."""
    found = {}
    for (name, case, yardstick), row in rows.items():
        if name == figure and case.startswith(before) and case.endswith(after):
            size = case.removeprefix(before).removesuffix(after).replace(",", "")
            if size.isdigit() and (beside is None or yardstick.startswith(beside)):
                value = row.value if beside is None else row.yardstick_value
                found[float(size)] = value or 0.0
    return sorted(found.items())


def pictures(measured: Rows) -> dict[str, str]:
    """The plots of the page, by the names of their files."""
    other = "gevent.lock.RLock"
    crowds = [
        Line("locks", points(measured, "shared", "hub: ", " clients"), 0),
        Line(other, points(measured, "shared", "hub: ", " clients", other), 2),
    ]
    circles = [
        Line("locks", points(measured, "rings", "ring of "), 0),
        Line("no deadlock", points(measured, "rings", "ring of ", "", "chain of "), 1),
    ]
    return {
        "performance-shared.svg": plot(
            [line for line in crowds if line.points],
            "clients that want one lock",
            "µs for each transaction",
            "Microseconds for a transaction, against the number of clients that want the same lock",
        ),
        "performance-rings.svg": plot(
            [line for line in circles if line.points],
            "agents in the ring",
            "µs until all are done",
            "Microseconds until a ring of agents is resolved and all are done, against its size",
        ),
    }


def main() -> int:
    """Print the tables; with `--write`, write them and the plots into the documents."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page and its plots")
    write = parser.parse_args().write
    measured = read()
    if not write:
        for name, text in tables(measured).items():
            print(name, text, "", sep="\n")
        return 0
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(rewritten(page, tables(measured)), encoding="utf-8")
    for name, text in pictures(measured).items():
        (IMAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
