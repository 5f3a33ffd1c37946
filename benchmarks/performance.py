"""The tables and plots of `docs/performance.md`, from figures that were measured.

    python -m benchmarks --json benchmarks/measured/pure.json        # measures; takes minutes
    python -m benchmarks.performance --write                         # and writes the page anew

`benchmarks/measured` has one file for the interpreted modules (`pure.json`), and one for those of a compiled
wheel (`compiled.json`), measured with the Python in which that wheel is installed. Lines of both are set side by side.
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
MEASURED = ROOT / "benchmarks" / "measured"
FORMS = ("pure", "compiled")

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
HEAD = ("work", "pure", "compiled", "compared with", "pure", "compiled", "target")

Key = tuple[str, str, str]
Measured = dict[str, dict[Key, Row]]


def read(folder: Path = MEASURED) -> Measured:
    """The rows of each form, by figure, case and yardstick."""
    found: Measured = {}
    for form in FORMS:
        rows: dict[Key, Row] = {}
        file = folder / f"{form}.json"
        figures = json.loads(file.read_text(encoding="utf-8"))["figures"] if file.exists() else {}
        for name, figure in figures.items():
            for context in figure["contexts"].values():
                for each in context.get("rows", ()):
                    row = Row(**each)
                    if not row.case.startswith(SKIPPED):
                        rows[name, row.case, row.yardstick] = row
        found[form] = rows
    return found


def lines(measured: Measured, figures: Sequence[str]) -> Iterator[Sequence[str]]:
    """The lines of one table."""
    pure, compiled = (measured[form] for form in FORMS)
    for key in dict.fromkeys((*pure, *compiled)):
        if key[0] not in figures:
            continue
        both = [rows.get(key) for rows in (pure, compiled)]
        row = next(each for each in both if each is not None)
        yield (
            row.case + (f" ({row.note})" if row.note and row.ratio is None else ""),
            *("" if each is None else f"{number(each.value)} {each.unit}" for each in both),
            row.yardstick or "",
            *(
                "" if each is None or each.ratio is None else f"{number(each.ratio)}"
                for each in both
            ),
            "" if row.target is None else f"{row.target:g}"
            + ("" if row.target_on == "ratio" else f" {row.unit}"),
        )  # fmt: skip


def tables(measured: Measured) -> dict[str, str]:
    """The tables of the page, as Markdown."""
    found = {}
    for name, figures in SECTIONS.items():
        found[name] = markdown([HEAD, *lines(measured, figures)], {0, 3})
    return found


def points(
    rows: dict[Key, Row], figure: str, before: str, after: str = "", beside: str | None = None
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


def pictures(measured: Measured) -> dict[str, str]:
    """The plots of the page, by the names of their files."""
    pure, compiled = (measured[form] for form in FORMS)
    other = "gevent.lock.RLock"
    crowds = [
        Line("interpreted", points(pure, "shared", "hub: ", " clients"), 0),
        Line("compiled", points(compiled, "shared", "hub: ", " clients"), 0, dashed=True),
        Line(other, points(pure, "shared", "hub: ", " clients", other), 2),
    ]
    circles = [
        Line("interpreted", points(pure, "rings", "ring of "), 0),
        Line("compiled", points(compiled, "rings", "ring of "), 0, dashed=True),
        Line("no deadlock", points(pure, "rings", "ring of ", "", "chain of "), 1),
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
