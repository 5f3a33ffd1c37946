"""The budget of each room: how many lines of code it may have, and how many words the pages have.

`python -m tests.repo.budget` prints what each room has and may have; `test_budget.py` fails where a room has more, and names it. Whoever needs more
raises the number here, in a line that says what for, and what went instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.repo.lines import ROOT, count


class Room(NamedTuple):
    """A part of the project with a budget.

    Attributes:
        places: Its files and folders, below the top.
        most: How many lines of code it may have (`tests.repo.lines`); of pages, words.
        why: What the last raise was for, and what went instead.
    """

    places: tuple[str, ...]
    most: int
    why: str = ""


FACE = (
    "__init__",
    "__main__",
    "actors",
    "api",
    "original",
    "primitives",
    "retries",
    "transactions",
    "values",
)
GROUND = ("errors", "lock_ids", "model", "ranges", "version", "words")

ROOMS: dict[str, Room] = {
    "the ground": Room(
        tuple(f"locks/{name}.py" for name in GROUND), 823, "a phrase that four places had"
    ),
    "the face": Room((*(f"locks/{name}.py" for name in FACE), "locks/shapes"), 1_632),
    "core": Room(
        ("locks/core",), 4_143, "the events of the short path to a server, which the node had"
    ),
    "runtime": Room(
        ("locks/runtime",), 2_918, "what is thin has a flag of its own, beside torn turns"
    ),
    "node": Room(("locks/node",), 5_895),
    "the wire": Room(
        ("locks/net",),
        3_235,
        "parts of a value are counted before they are made; letters name their sender",
    ),
    "program": Room(("locks/program",), 1_344),
    "aio": Room(("locks/aio",), 753),
    "commands and pages": Room(("locks/cli", "locks/web", "locks/facts"), 2_996),
    "metrics and traces": Room(("locks/metrics", "locks/tracing"), 430),
    "groups": Room(("locks/groups",), 438),
    "ownership": Room(("locks/ownership",), 1_348),
    "mvcc": Room(("locks/mvcc",), 1_520),
    "engines": Room(("locks/engines",), 1_335),
    "the bench": Room(("locks/testing", "locks_pytest.py"), 2_314),
    "elections": Room(("locks_leader",), 2_981, "letters name their sender"),
    "the laboratory": Room(
        ("locks_lab",), 11_743, "clients of the short path to a server, in all orders"
    ),
    "tests": Room(
        ("tests",),
        53_067,
        "the short path to a server in the explorer, and seventeen faults of it",
    ),
    "benchmarks": Room(("benchmarks",), 5_456),
    "examples": Room(("examples",), 3_822),
}
SHIPPED = 45_848  # lines of code in all packages that are shipped
PAGES = 45
DECISIONS = 49
WORDS = 104_090  # of both


def lines_of(room: Room) -> int:
    """How many lines of code a room has."""
    return sum(count(ROOT / place) for place in room.places)


def shipped() -> int:
    """How many lines of code are shipped."""
    return sum(
        count(ROOT / place) for place in ("locks", "locks_leader", "locks_lab", "locks_pytest.py")
    )


def pages() -> list[Path]:
    """The pages of the documentation, without the decisions."""
    return sorted((ROOT / "docs").glob("*.md"))


def decisions() -> list[Path]:
    """The decisions, without their index."""
    return sorted((ROOT / "docs" / "decisions").glob("0*.md"))


def words() -> int:
    """How many words the pages and the decisions have."""
    texts = [*pages(), *(ROOT / "docs" / "decisions").glob("*.md")]
    return sum(len(path.read_text("utf-8").split()) for path in texts)


def budgets() -> dict[str, tuple[int, int]]:
    """What each room has, and what it may have."""
    found = {name: (lines_of(room), room.most) for name, room in ROOMS.items()}
    return {
        **found,
        "all that is shipped": (shipped(), SHIPPED),
        "pages": (len(pages()), PAGES),
        "decisions": (len(decisions()), DECISIONS),
        "words of pages and decisions": (words(), WORDS),
    }


if __name__ == "__main__":
    for name, (has, most) in budgets().items():
        print(f"{has:8,} of {most:8,}  {name}")
