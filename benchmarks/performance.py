"""The tables and plots that pages have of figures that were measured, most of them in `docs/performance.md`.

    python -m benchmarks --json benchmarks/measured/bench.json        # measures; takes minutes
    python -m benchmarks.performance --write                          # and writes the pages anew

A page has a table where it says `<!-- table: NAME -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness import Row, number
from benchmarks.messages import markdown, rewritten
from benchmarks.plot import Line, plot

__all__ = ["main", "pictures", "tables"]

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MEASURED = ROOT / "benchmarks" / "measured"

SECTIONS: dict[str, Sequence[str]] = {
    "one client": ("transaction", "handover", "task"),
    "the original": ("beam", "starts"),
    "many clients": ("shared", "rings", "table", "nth", "memory"),
    "one machine": ("machine", "neighbours"),
    "several nodes": ("remote", "quorum", "crowd_nodes"),
    "crowd: one hot lock": ("crowd_hot",),
    "elections": ("candidates", "leader", "takeover"),
    "operating": ("facts", "page", "loop", "tasks"),
    "client nodes": ("clients", "spokes"),
    "tables and tasks": ("mvcc", "store", "owned", "owners"),
    "engines": ("dask", "ray"),
}
"""The tables, and the figures in each of them."""

SKIPPED = ("threads: two cores", "threads: one core")  # as hubs do; `make bench` shows them
LEFT_OUT = re.compile(
    r"5 nodes|with the own one|hub: .*\b(10 clients,|(2|16|60) who)"  # of several nodes
    r"|one core: \d processes|candidates: (echo|one that)|processes: echo|is stopped"  # of elections
    r"|hub: (10|50|100|200) clients|threads: 10 clients|ring of (3|20)$|^(ask|grant) over|tracemalloc|lock (100|1,000)$"  # of many clients
    r"|10000 clients|that listen|more that|when these|2000 connected|ring of (2|3)( over|,)|one is killed"  # of client nodes
    r"|with transaction\(\) \+ write_lock"  # of one machine
    r"|(64|256) workers,|backlog filled|found$|wait="  # of ownership and MVCC
)
"""Cases that pages leave out, because others beside them show the same; `make bench` shows them."""
HEAD = ("work", "time", "compared with", "ratio", "target")

WAYS = ("same order", "all at once", "any order, surrender", "any order")
"""How a crowd takes two locks; their places are those of their colours."""

Rows = dict[tuple[str, str, str], Row]


def read() -> Rows:
    """What was measured, by figure, case and yardstick."""
    found: Rows = {}
    measured = json.loads((MEASURED / "bench.json").read_text(encoding="utf-8"))
    for name, figure in measured["figures"].items():
        for context in figure["contexts"].values():
            for each in context.get("rows", ()):
                row = Row(**each)
                if not row.case.startswith(SKIPPED):
                    found[name, row.case, row.yardstick] = row
    return found


def lines(measured: Rows, figures: Sequence[str]) -> Iterator[Sequence[str]]:
    """The lines of one table."""
    for (figure, _, _), row in measured.items():
        if figure in figures and not LEFT_OUT.search(row.case):
            yield (
                row.case + (f" ({row.note})" if row.note and row.ratio is None else ""),
                f"{number(row.value)} {row.unit}",
                row.yardstick or "",
                "" if row.ratio is None else number(row.ratio),
                "" if row.target is None else f"{row.target:g}"
                + ("" if row.target_on == "ratio" else f" {row.unit}"),
            )  # fmt: skip


def tables(measured: Rows) -> dict[str, str]:
    """The tables, as Markdown."""
    made = {
        name: markdown([HEAD, *lines(measured, figures)], {0, 2})
        for name, figures in SECTIONS.items()
    }
    ways = {way: dict(by_clients(measured, way)) for way in WAYS}
    costs = [
        (f"{size:g}", *(f"{number(ways[way][size])} ms" for way in WAYS)) for size in ways[WAYS[0]]
    ]
    return made | {"crowd: two locks": markdown([("clients", *WAYS), *costs])}


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


def by_clients(measured: Rows, way: str) -> list[tuple[float, float]]:
    """The milliseconds of a transaction with two locks, by the number of clients."""
    sizes = ("a few: ", "more: ", "many: ")
    return sorted(
        point
        for size in sizes
        for point in points(measured, "crowd_order", size, f" clients, {way}")
    )


def pictures(measured: Rows) -> dict[str, str]:
    """The plots, by the names of their files."""
    other = "gevent.lock.RLock"
    crowds = [
        Line("locks", points(measured, "shared", "hub: ", " clients"), 0),
        Line(other, points(measured, "shared", "hub: ", " clients", other), 2),
    ]
    circles = [
        Line("locks", points(measured, "rings", "ring of "), 0),
        Line("no deadlock", points(measured, "rings", "ring of ", "", "chain of "), 1),
    ]
    orders = [Line(way, by_clients(measured, way), kind) for kind, way in enumerate(WAYS)]
    return {
        "crowd_order.svg": plot(
            orders,
            "clients that want the same two locks",
            "ms for each transaction",
            "Milliseconds for a transaction, against the number of clients that want the same two locks",
        ),
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
    parser.add_argument("--write", action="store_true", help="write the pages and their plots")
    write = parser.parse_args().write
    measured = read()
    made = tables(measured)
    if not write:
        for name, text in made.items():
            print(name, text, "", sep="\n")
        return 0
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        there = {name: each for name, each in made.items() if f"<!-- table: {name} -->" in text}
        if there:
            page.write_text(rewritten(text, there), encoding="utf-8")
    for name, text in pictures(measured).items():
        (DOCS / "img" / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
