"""The tables and plots that pages have of crowds, from figures that were measured.

    python -m benchmarks --only crowd --json benchmarks/measured/crowd.json    # measures; takes minutes
    python -m benchmarks.crowd_pages --write                                   # and writes pages and plots anew

`benchmarks/measured/crowd_before.json` has the figures from before crowds were cared for. It is not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.harness import Row, number
from benchmarks.messages import rewritten
from benchmarks.performance import IMAGES, MEASURED, ROOT
from benchmarks.plot import Line, plot

__all__ = ["PAGES", "main", "pictures", "read", "tables"]

PAGES = {
    "crowd: two locks": ROOT / "docs" / "deadlocks.md",
    "crowd: one hot lock": ROOT / "docs" / "cluster.md",
    "crowd: hand-overs": ROOT / "docs" / "cluster.md",
}
"""The tables, and the page of each."""

AGAIN, SAME = "any order", "same order"
WAYS = (SAME, "all at once", "any order, surrender", AGAIN)
"""How a crowd locks; their places are those of their colours."""

Rows = dict[str, list[Row]]


def read(name: str, folder: Path = MEASURED) -> Rows:
    """The rows of a file, by figure."""
    figures = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["figures"]
    return {
        name: [
            Row(**row) for context in figure["contexts"].values() for row in context.get("rows", ())
        ]
        for name, figure in figures.items()
    }


def by_clients(rows: Rows, way: str) -> dict[int, Row]:
    """The rows of one way to lock, by the number of clients."""
    found = {}
    for row in rows["crowd_order"]:
        clients, _, which = row.case.rpartition(": ")[2].partition(" clients, ")
        if which == way:
            found[int(clients)] = row
    return dict(sorted(found.items()))


def waiting(rows: Rows) -> list[tuple[float, float]]:
    """How many tasks waited, and the microseconds of a hand-over."""
    return [
        (float(row.case.split()[0].replace(",", "")), row.value * 1000)
        for row in rows["crowd_handover"]
    ]


def pictures() -> dict[str, str]:
    """The plots, by the names of their files."""
    now, before = read("crowd"), read("crowd_before")

    def line(rows: Rows, way: str, label: str, dashed: bool = False) -> Line:
        points = [(float(n), row.value) for n, row in by_clients(rows, way).items()]
        return Line(label, points, WAYS.index(way), dashed)

    names = {AGAIN: "any order, run again", "any order, surrender": "any order, surrender"}
    return {
        "crowd_order.svg": plot(
            [
                *(line(now, way, names.get(way, way)) for way in WAYS),
                line(before, AGAIN, "run again, before", dashed=True),
            ],
            "clients that want the same two locks",
            "ms for each transaction",
            "Milliseconds for a transaction, against the number of clients that want the same two locks",
        ),
        "crowd_handover.svg": plot(
            [
                Line("now", waiting(now), 0),
                Line("before", waiting(before), 0, dashed=True),
            ],
            "tasks that wait for one majority lock",
            "µs for each hand-over",
            "Microseconds for a hand-over, against the number of tasks that wait for the lock",
            least=100,
        ),
    }


def tables() -> dict[str, str]:
    """The tables, as Markdown."""
    rows = read("crowd")
    hot = [row for row in rows["crowd_hot"] if not row.yardstick]
    return {
        "crowd: two locks": _costs(rows),
        "crowd: one hot lock": _table(
            ("programs", "a turn", "seen"),
            [
                (row.case.removesuffix(": a turn"), f"{number(row.value)} ms", row.note)
                for row in hot
            ],
        ),
        "crowd: hand-overs": _table(
            ("waiting", "a hand-over", "seen"),
            [
                (row.case.removesuffix(": a hand-over"), f"{number(row.value)} ms", row.note)
                for row in rows["crowd_handover"]
            ],
        ),
    }


def _costs(rows: Rows) -> str:
    """What each way costs, by the number of clients."""
    ways = {way: by_clients(rows, way) for way in WAYS}
    lines = []
    for clients in ways[SAME]:
        cells = [str(clients)]
        for way in WAYS:
            row = ways[way][clients]
            gave_up = " *" if "GAVE UP" in row.note else ""
            beside = "" if way == SAME or row.ratio is None else f" ({number(row.ratio)} x)"
            cells.append(f"{number(row.value)} ms{beside}{gave_up}")
        lines.append(tuple(cells))
    return _table(("clients", *WAYS), lines)


def _table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    rule = ("---",) * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def main() -> int:
    """Print the tables; with `--write`, write them and the plots into the documents."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowd_pages", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the pages and their plots")
    write = parser.parse_args().write
    for name, table in tables().items():
        if write:
            page = PAGES[name].read_text(encoding="utf-8")
            PAGES[name].write_text(rewritten(page, {name: table}), encoding="utf-8")
        else:
            print(name, table, "", sep="\n")
    if write:
        for name, picture in pictures().items():
            (IMAGES / name).write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
