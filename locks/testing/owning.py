"""Checks that no two workers of a simulation work on the same group of resources."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from locks.ownership.part import Part, Task
from locks_lab.worlds.host import Violation

__all__ = ["GroupAtHand", "at_hand", "two_at_work"]


class GroupAtHand(NamedTuple):
    """A group of resources in which a worker does a task.

    Attributes:
        name: The name of the ownership.
        group: The group.
    """

    name: Hashable
    group: int

    def __str__(self) -> str:
        return f"group {self.group} of {self.name!r}"


def at_hand(parts: Iterable[object], client: object) -> list[GroupAtHand]:
    """The groups that a client works on.

    Args:
        parts: The parts of all workers that have joined.
        client: The client.
    """
    return [found for part, found, _ in _all(parts) if part.client is client]


def two_at_work(parts: Iterable[object]) -> Violation | None:
    """The violation if two workers work on the same group."""
    seen: dict[GroupAtHand, tuple[Part, int]] = {}
    for part, found, token in _all(parts):
        other, before = seen.setdefault(found, (part, token))
        if other is not part:
            return Violation(
                f"{found} is worked on by two at once, with the tokens {before} and {token}"
            )
    return None


def _all(parts: Iterable[object]) -> Iterator[tuple[Part, GroupAtHand, int]]:
    for part in parts:
        if isinstance(part, Part) and not part.over.is_open:
            for task in part.member.tasks_at_hand():
                if isinstance(task, Task) and task.token is not None:
                    yield part, GroupAtHand(part.name, task.group), task.token
