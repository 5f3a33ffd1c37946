"""What variants of the original's rules cost, and what they break: a table of `docs/differences.md`.

    python -m benchmarks.original            # prints it
    python -m benchmarks.original --write    # and writes it into the page

Counted in the model of the original (`locks_lab.original`), not timed: the same on each computer.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.messages import markdown, rewritten
from locks_lab.original.runs import contended, outcome, rings
from locks_lab.original.variants import VARIANTS, Variant, variant_of
from locks_lab.schedules.schedule import Policy

PAGE = Path(__file__).parents[1] / "docs" / "differences.md"
NAMES = (*VARIANTS, "mended+forward")  # of the table on the page
WORLDS = 200
POLICIES: Sequence[Policy] = ("any", "skewed", "oldest")
HEAD = (
    "rule",
    "rings of 3",
    "rings of 4",
    "messages",
    "fine",
    "stuck",
    "exclusion",
    "no end",
    "each",
)


def row(variant: Variant, worlds: int = WORLDS) -> Sequence[str]:
    """What becomes of rings and of random worlds under a variant."""
    three, four = ([*rings(size, variant)] for size in (3, 4))
    resolved = [
        f"{sum(o.kind == 'fine' for o in found)} of {len(found)}" for found in (three, four)
    ]
    messages = sum(found.messages for found in three) / len(three)
    ended = [outcome(contended(seed, variant), seed, POLICIES[seed % 3]) for seed in range(worlds)]
    kinds = Counter(found.kind for found in ended)
    fine = [found.messages for found in ended if found.kind == "fine"]
    return (
        f"`{variant.name}`",
        *resolved,
        f"{messages:.1f}",
        *(str(kinds[kind]) for kind in ("fine", "stuck", "exclusion", "no end")),
        f"{sum(fine) / len(fine):.0f}" if fine else "",
    )


def table(names: Iterable[str] = NAMES, worlds: int = WORLDS) -> str:
    """The table for these variants, as Markdown."""
    return markdown([HEAD, *(row(variant_of(name), worlds) for name in names)], {0})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and write it into the page."""
    parser = argparse.ArgumentParser(description="What variants of the original's rules cost.")
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}")
    options = parser.parse_args(arguments)
    text = table()
    print(text)
    if options.write:
        page = rewritten(PAGE.read_text(encoding="utf-8"), {"other rules": text})
        PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
