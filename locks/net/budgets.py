"""Budgets: what one other node may keep here.

A connected node has the cookie, so it is no stranger. But it may have a fault. So its monitors,
calls and so on are counted. If they exceed the budget, its connection ends (`OverBudget`), and with
it everything that it keeps here. The budgets are far above what programs need. Its requests and watches
have limits that an operator can set (`locks.net.messages.Limits`); what goes beyond is refused.

The table of all limits is in `docs/bounds.md`.
"""

from __future__ import annotations

from collections.abc import Callable

from locks.errors import OperatingError

__all__ = [
    "MOST_CALLS",
    "MOST_LINKS",
    "MOST_MEMBERSHIPS",
    "MOST_MONITORS",
    "OverBudget",
    "Tally",
    "check_budget",
]

MOST_MONITORS = 20_000  # monitors of this node's processes
MOST_LINKS = 20_000  # links with this node's processes
MOST_CALLS = 10_000  # calls that wait for an answer
MOST_MEMBERSHIPS = 100_000  # of its processes in process groups, in one scope


class OverBudget(OperatingError):
    """Another node keeps more here than its budget allows."""


def check_budget(number: int, most: int, what: str) -> None:
    """Raise `OverBudget` if a number exceeds the budget."""
    if number > most:
        raise OverBudget(f"it has more than {most:,} {what} here")


class Tally:
    """Counts things of a node whose removal is not noticed at once.

    Additions are counted. Only when they exceed the budget, everything is counted again. So there
    may be a tenth more than the budget.

    Args:
        most: The budget.
        what: What is counted.
        count: Counts everything.
    """

    __slots__ = ("_count", "_counted", "_most", "_what")

    def __init__(self, most: int, what: str, count: Callable[[], int]) -> None:
        self._most = most
        self._what = what
        self._count = count
        self._counted = 0

    def add(self, more: int = 1) -> None:
        """Count additions, one by default; raises `OverBudget` if these are too many."""
        self._counted += more
        if self._counted > self._most:
            there = self._count() + more
            check_budget(there, self._most, self._what)
            # The next full count is due after a tenth of the budget at the soonest.
            self._counted = min(there, self._most - self._most // 10)
