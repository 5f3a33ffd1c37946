"""What has happened in a simulation, for people, as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from locks.sim.greenlets import Note

__all__ = ["Summary", "story"]

LONGEST = 40  # so many lines of a story are told
COUNTED = ("deadlocks", "aborts", "waits", "timeouts", "deaths")


@dataclass(frozen=True)
class Summary:
    """What has happened in how many schedules.

    Attributes:
        schedules: How many there were.
        deadlocks: How many deadlocks were resolved.
        aborts: How many transactions were aborted for that.
        waits: How many requests found a lock that was not free.
        timeouts: How many waits were given up.
        deaths: How many clients were killed.
        all: Whether these are all schedules that there are.
    """

    schedules: int = 0
    deadlocks: int = 0
    aborts: int = 0
    waits: int = 0
    timeouts: int = 0
    deaths: int = 0
    all: bool = False

    def __add__(self, other: Summary) -> Summary:
        names = ("schedules", *COUNTED)
        return Summary(*(getattr(self, name) + getattr(other, name) for name in names))

    def __str__(self) -> str:
        number = self.schedules
        first = f"{number} schedule{'' if number == 1 else 's'}"
        if self.all:
            first = f"all {first}"
        each = [(getattr(self, name), name) for name in COUNTED]
        said = [f"{count} {name[:-1] if count == 1 else name}" for count, name in each if count]
        return ", ".join([first, *(said or ["nobody ever waited"])])

    def missing(self, expected: Iterable[str]) -> list[str]:
        """What was expected and has not happened."""
        return [name for name in expected if not getattr(self, f"{name}s")]

    @staticmethod
    def of(seen: Counter[str], aborts: int, timeouts: int) -> Summary:
        """What has happened in one run."""
        return Summary(1, seen["deadlocks"], aborts, seen["waits"], timeouts, seen["deaths"])


def story(notes: Sequence[Note]) -> list[str]:
    """The notes as lines, with the user's lines; of many those that matter, and the last ones."""
    lines: list[str] = []
    timed = any(note.time for note in notes)  # in a schedule that is chosen only sleep takes time
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
