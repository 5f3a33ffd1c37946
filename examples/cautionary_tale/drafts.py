"""The tale's drafts of a lock, as programs of a worker, and one that is right.

A program yields the actions of its worker on the store, one after the other, and gets the answers. The
numbers are those of the tale's steps. It ends by returning the step in which the worker moves on to
another data set, or `None` when it has processed this one.

A program runs again from its beginning for each state that is explored, with the answers that it got
so far (`next_action`). So it is plain Python, and the search can still go back to every state. That takes a program
that does the same each time, and that ends; others are refused, for what the search said of them would be worth nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from functools import cache
from types import FrameType
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


MOST_ANSWERS = 16
"""How many answers a worker gets at most. The tale's own drafts need four; states grow fast with their number."""
MOST_LINES = 100_000
"""How many lines a program runs at most until its next action."""


@cache
def next_action(draft: Draft, me: int, answers: tuple[Any, ...]) -> Action | Ended:
    """What a worker does after it got these answers.

    Raises:
        InvalidOption: Its program yields something else, does something else when it is run again with the same answers, or
            does not end.
    """
    if len(answers) > MOST_ANSWERS:
        raise InvalidOption(
            f"draft {draft.name!r} does not end, or takes too long to be searched: worker #{me} has got {len(answers)} answers, "
            f"the last of them {answers[-1]!r}, and goes on. Give each loop of its program a number of turns"
        )
    action = _run(draft, me, answers)
    _check_same(draft, me, answers, action, _run(draft, me, answers))
    if not isinstance(action, (Read, Write, Create, Process, Remove, Ended)):
        raise InvalidOption(
            f"draft {draft.name!r} yields {action!r}: yield Read, Write, Create, Process or Remove, "
            "each with the number of its step"
        )
    return action


def _run(draft: Draft, me: int, answers: tuple[Any, ...]) -> Any:
    """What a program yields after some answers; on the way there it has to do what it has done before."""
    program = _Bounded(draft, me)
    action = program.go_on(None)
    for number, answer in enumerate(answers):
        before = answers[:number]
        _check_same(draft, me, before, next_action(draft, me, before), action)
        action = program.go_on(answer)
    return action


def _check_same(draft: Draft, me: int, answers: tuple[Any, ...], one: Any, other: Any) -> None:
    if (type(one), one) != (type(other), other):  # named tuples of two classes can be equal
        raise InvalidOption(
            f"draft {draft.name!r} is not deterministic: after the answers {answers!r} worker #{me} does {one!r} in one run "
            f"of its program, and {other!r} in another. Let it depend on its ID and the answers alone, not on chance, "
            "time, or what other runs have left"
        )


class _Bounded:
    """A run of a program, of which no step is endless."""

    def __init__(self, draft: Draft, me: int) -> None:
        self._draft = draft
        self._me = me
        self._program = draft.program(me)
        self._lines = 0

    def go_on(self, answer: Any) -> Any:
        """Its next action, or that it has ended."""
        self._lines = 0
        before = sys.gettrace()
        sys.settrace(self._count)
        try:
            return self._program.send(answer)
        except StopIteration as end:
            return Ended(end.value)
        finally:
            sys.settrace(before)

    def _count(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._lines += event == "line"
        if self._lines > MOST_LINES:
            raise InvalidOption(
                f"draft {self._draft.name!r} does not end: worker #{self._me} has run {MOST_LINES:,} lines of its program, the last "
                f"one in line {frame.f_lineno} of {frame.f_code.co_filename}, and has not yielded an action"
            )
        return self._count


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
