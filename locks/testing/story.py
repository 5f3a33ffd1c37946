"""The story of a simulation, as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locks_lab.applications.greenlets import Note

__all__ = ["Summary", "story"]

LONGEST = 40  # lines of a story that are shown
COUNTED = {
    **{"deadlock": "deadlocks", "abort": "aborts", "wait": "waits", "timeout": "timeouts"},
    **{
        "death": "deaths",
        "cut": "cuts",
        "crash": "crashes",
        "loss": "losses",
        "election": "elections",
    },
}
"""The names of counted events: for one, and for several."""


@dataclass(frozen=True)
class Summary:
    """The events in a number of schedules.

    Attributes:
        schedules: How many schedules there were.
        deadlocks: How many deadlocks were resolved.
        aborts: How many transactions were aborted for that.
        waits: How many requests found a lock that was not free.
        timeouts: How many waits were given up.
        deaths: How many clients were killed.
        cuts: How many connections were cut.
        crashes: How many nodes have crashed.
        losses: How often clients were notified that they lost locks with a node.
        elections: How many leaders were elected.
        all: Whether these are all schedules that there are.
    """

    schedules: int = 0
    deadlocks: int = 0
    aborts: int = 0
    waits: int = 0
    timeouts: int = 0
    deaths: int = 0
    cuts: int = 0
    crashes: int = 0
    losses: int = 0
    elections: int = 0
    all: bool = False

    def __add__(self, other: Summary) -> Summary:
        names = ("schedules", *COUNTED.values())
        return Summary(*(getattr(self, name) + getattr(other, name) for name in names))

    def __str__(self) -> str:
        number = self.schedules
        first = f"{number} schedule{'' if number == 1 else 's'}"
        if self.all:
            first = f"all {first}"
        each = [(getattr(self, several), one, several) for one, several in COUNTED.items()]
        said = [
            f"{count} {one if count == 1 else several}" for count, one, several in each if count
        ]
        return ", ".join([first, *(said or ["nobody ever waited"])])

    def missing(self, expected: Iterable[str]) -> list[str]:
        """The expected events that have not happened."""
        return [name for name in expected if not getattr(self, COUNTED[name])]

    @staticmethod
    def of(seen: Counter[str], aborts: int, timeouts: int) -> Summary:
        """The events in one run."""
        known = {"aborts": aborts, "timeouts": timeouts}
        counts: dict[str, Any] = {name: known.get(name, seen[name]) for name in COUNTED.values()}
        return Summary(1, **counts)


def story(notes: Sequence[Note], homes: Mapping[str, str]) -> list[str]:
    """The notes as lines, with the user's lines; of many, the important and the last ones.

    Args:
        notes: The events.
        homes: The clients, and their nodes if there are several.
    """
    lines = [f"  {name} runs on {node}" for name, node in homes.items() if node]
    timed = any(note.time for note in notes)  # in a chosen schedule, only sleep takes time
    left_out = 0
    matter = sum(note.matters for note in notes)
    first = len(notes) - max(LONGEST - matter, LONGEST // 2)
    for number, note in enumerate(notes):
        if not note.matters and number < first:
            left_out += 1
            continue
        if left_out:
            lines.append(f"  ... {left_out} more")
            left_out = 0
        where = "" if note.place is None else f"  [{note.place}]"
        said = str(note) if timed else f"{note.who} {note.what}"
        lines.append(f"  {said}{where}")
        lines += [f"      {detail}" for detail in note.details]
    return lines
