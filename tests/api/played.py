"""A worker whose participant is played: it owns what the test says, at once, and needs no node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from locks.ownership import Ownership
from locks.ownership.messages import FromWorker, Gone, Grant
from locks.ownership.part import Part

__all__ = ["Played"]

TOKEN = 7


class Played(Ownership):
    """A worker that is granted some groups as soon as it joins, and is gone as soon as it says so.

    Args:
        groups: How many groups there are; the group of a task is its first element.
        mine: The groups that it gets.
    """

    part: Part

    def __init__(self, groups: int, mine: Iterable[int] | None = None, **options: Any) -> None:
        super().__init__("played", groups, **options)
        self._mine = tuple(range(groups) if mine is None else mine)

    def _start(self, part: Part) -> None:
        self.part = part
        part.took_part(self._tell)
        part.told(Grant("me", self._mine, TOKEN))

    def _tell(self, message: FromWorker) -> None:
        if isinstance(message, Gone) and not self.part.over.is_open:
            self.part.left()
