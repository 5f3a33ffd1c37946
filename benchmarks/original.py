"""What variants of the original's rules cost, and what they break: the tables of `docs/original_rules.md`.

    python -m benchmarks.original            # prints it
    python -m benchmarks.original --write    # and writes it into the page

Counted in the model of the original (`locks_lab.original`), not timed: the same on each computer.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.messages import markdown, rewritten
from locks_lab.original.runs import contended, outcome, rings
from locks_lab.original.variants import ORIGINAL, VARIANTS, Variant, variant_of
from locks_lab.schedules.schedule import Policy

PAGE = Path(__file__).parents[1] / "docs" / "original_rules.md"
WORLDS = 200
POLICIES: Sequence[Policy] = ("any", "skewed", "oldest")
ALONE = ("reopens", "keeps", "mended")
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


def table(names: Iterable[str], worlds: int = WORLDS) -> Iterator[Sequence[str]]:
    """The table for these variants."""
    yield HEAD
    for name in names:
        yield row(variant_of(name), worlds)


def names() -> dict[str, list[str]]:
    """The variants of each table on the page."""
    others = [name for name in VARIANTS if name not in (ORIGINAL.name, *ALONE)]
    return {
        "as it is": [*VARIANTS],
        "mended": ["mended", *(f"mended+{name}" for name in others)],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, and write them into the page."""
    parser = argparse.ArgumentParser(description="What variants of the original's rules cost.")
    parser.add_argument("--write", action="store_true", help=f"write them into {PAGE.name}")
    options = parser.parse_args(arguments)
    tables = {name: markdown(table(variants), {0}) for name, variants in names().items()}
    for name, text in tables.items():
        print(f"{name}\n\n{text}\n")
    if options.write:
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
