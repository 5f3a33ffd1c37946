"""The tale's drafts of a lock, as programs of a worker, and one that is right.

A program yields the actions of its worker on the store, one after the other, and gets the answers. The
numbers are those of the tale's steps. It ends by returning the step in which the worker moves on to
another data set, or `None` when it has processed this one.

A program is run anew from its beginning for each state that is explored, with the answers that it got
so far (`next_action`). So it is plain Python, and the search can still go back to every state.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from typing import Any, NamedTuple

from locks.errors import InvalidOption

__all__ = [
    "DRAFTS",
    "FIRST",
    "FOURTH",
    "FOURTH_BY_ID",
    "REGISTER",
    "SECOND",
    "THIRD",
    "Action",
    "Create",
    "Draft",
    "Ended",
    "Lock",
    "Process",
    "Read",
    "Remove",
    "Value",
    "Write",
    "first_by_id",
    "first_by_time",
    "next_action",
]


class Read(NamedTuple):
    """Read the lock with `pr=quorum`; the answer is a `Lock`."""

    step: int


class Write(NamedTuple):
    """Write the worker's ID to the lock with `pw=quorum`."""

    step: int
    with_timestamp: bool = False


class Create(NamedTuple):
    """Write the worker's ID if there is no lock, in one step of one server; answers whether it did."""

    step: int


class Process(NamedTuple):
    """Process the data set to completion."""

    step: int


class Remove(NamedTuple):
    """Remove the lock."""

    step: int


class Ended(NamedTuple):
    """The worker has nothing more to do.

    Attributes:
        step: The step in which it moves on to another data set; None if it has processed this one.
    """

    step: int | None


Action = Read | Write | Create | Process | Remove


class Value(NamedTuple):
    """What a worker has written to the lock.

    Attributes:
        worker: The worker's ID; 0 stands for a deletion that is in conflict with what others wrote.
        timestamp: When it began to write, by a clock that is always right.
    """

    worker: int
    timestamp: int = 0


class Lock(NamedTuple):
    """The lock as a worker reads it: no value, one, or several that are in conflict (siblings)."""

    values: tuple[Value, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether there is any value."""
        return bool(self.values)

    @property
    def siblings(self) -> bool:
        """Whether there are values in conflict."""
        return len(self.values) > 1

    def of_another(self, me: int) -> bool:
        """Whether there is one value, and it is another worker's ID."""
        return len(self.values) == 1 and self.values[0].worker != me


Program = Generator[Action, Any, int | None]


class Draft(NamedTuple):
    """A way to lock a data set.

    Attributes:
        name: Its name.
        program: The program of a worker with a given ID.
        allow_mult: Whether the store keeps values that are in conflict; if not, the last write wins.
        about: What is new in it.
    """

    name: str
    program: Callable[[int], Program]
    allow_mult: bool
    about: str


@cache
def next_action(draft: Draft, me: int, answers: tuple[Any, ...]) -> Action | Ended:
    """What a worker does after it got these answers.

    Raises:
        InvalidOption: Its program yields something else.
    """
    program = draft.program(me)
    try:
        action = next(program)
        for answer in answers:
            action = program.send(answer)
    except StopIteration as end:
        return Ended(end.value)
    if not isinstance(action, (Read, Write, Create, Process, Remove)):
        raise InvalidOption(
            f"draft {draft.name!r} yields {action!r}: yield Read, Write, Create, Process or Remove, "
            "each with the number of its step"
        )
    return action


# --- The drafts ---------------------------------------------------------------------------------


def first(me: int) -> Program:
    """Look whether there is a lock, and write one."""
    lock = yield Read(1)
    if lock.exists:
        return 2
    yield Write(3)
    yield Process(4)
    yield Remove(5)
    return None


def second(me: int) -> Program:
    """After writing, look again whether the lock is still one's own."""
    lock = yield Read(1)
    if lock.exists:
        return 2
    yield Write(3)
    lock = yield Read(4)
    if lock.of_another(me):
        return 5
    yield Process(6)
    yield Remove(7)
    return None


def third(me: int) -> Program:
    """Keep values that are in conflict, and then give way."""
    lock = yield Read(1)
    if lock.exists:
        return 2
    yield Write(3)
    lock = yield Read(4)
    if lock.of_another(me) or lock.siblings:
        return 5
    yield Process(6)
    yield Remove(7)
    return None


def fourth(me: int) -> Program:
    """Of several, the one with the earliest timestamp goes ahead."""
    lock = yield Read(1)
    if lock.exists:
        return 2
    yield Write(3, with_timestamp=True)
    lock = yield Read(4)
    if lock.of_another(me) or (lock.siblings and first_by_time(lock).worker != me):
        return 5
    yield Process(6)
    yield Remove(7)
    return None


def fourth_by_id(me: int) -> Program:
    """Of several, the one with the lowest ID goes ahead."""
    lock = yield Read(1)
    if lock.exists:
        return 2
    yield Write(3)
    lock = yield Read(4)
    if lock.of_another(me) or (lock.siblings and first_by_id(lock).worker != me):
        return 5
    yield Process(6)
    yield Remove(7)
    return None


def register(me: int) -> Program:
    """Look and write in one step, which only a store that agrees with itself can do."""
    created = yield Create(1)
    if not created:
        return 2
    yield Process(3)
    yield Remove(4)
    return None


def first_by_time(lock: Lock) -> Value:
    """The value with the earliest timestamp; deletions have none."""
    return min((value for value in lock.values if value.worker), key=lambda value: value.timestamp)


def first_by_id(lock: Lock) -> Value:
    """The value with the lowest ID."""
    return min(value for value in lock.values if value.worker)


FIRST = Draft("1", first, False, "read, write")
SECOND = Draft("2", second, False, "read, write, read again")
THIRD = Draft("3", third, True, "the same, with siblings; who sees some moves on")
FOURTH = Draft("4", fourth, True, "the same; the earliest timestamp goes ahead")
FOURTH_BY_ID = Draft("4 by ID", fourth_by_id, True, "the same; the lowest ID goes ahead")
REGISTER = Draft("register", register, False, "look and write in one step, on one server")

DRAFTS = (FIRST, SECOND, THIRD, FOURTH, FOURTH_BY_ID)
