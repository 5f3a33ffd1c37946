"""Schedules as text: the order in which clients run, `1*3 2 1*2`; or `without 3: 1*3 2`.

The second form leaves clients out. Clients are numbered from 1, in the order in which they were
added. `t2` is the second of several tasks of asyncio that can continue. Faults, and what nodes
notice of them, are as in `locks_lab.applications.breaking`: `1*3 cut:n1,n2 2 notice:n2,n1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from locks.errors import InvalidOption
from locks_lab.applications.agenda import Step
from locks_lab.applications.breaking import death_of, read_change

__all__ = ["Script", "parse"]

WITHOUT = "without "


class Script(NamedTuple):
    """A schedule.

    Attributes:
        steps: The numbers of the clients that run, in order; negative ones are tasks, and texts are
            faults.
        without: The numbers of clients that are left out.
    """

    steps: Sequence[Step]
    without: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = []
        for number, same in groupby(self.steps):
            times = len(list(same))
            if isinstance(number, str):
                words += [number] * times
                continue
            word = str(number) if number > 0 else f"t{-number}"
            words.append(word if times == 1 else f"{word}*{times}")
        head = f"{WITHOUT}{','.join(map(str, self.without))}: " if self.without else ""
        return head + " ".join(words)

    @property
    def switches(self) -> int:
        """How often the running client changes."""
        clients = [step for step in self.steps if isinstance(step, int) and step > 0]
        return sum(a != b for a, b in pairwise(clients))

    @property
    def dead(self) -> frozenset[int]:
        """The clients that are killed, by their numbers."""
        killed = [step[1:] for step in self.steps if isinstance(step, str)]
        return frozenset(int(number) for number in killed if number.isdecimal())

    @property
    def faults(self) -> int:
        """How much breaks."""
        broken = [step for step in self.steps if isinstance(step, str)]
        return sum(step.startswith(("d", "cut:", "crash:")) for step in broken)


def parse(text: str) -> Script:
    """A schedule that was written as text.

    Raises:
        InvalidOption: It is none.
    """
    try:
        without, rest = "", text
        if text.startswith(WITHOUT):
            without, colon, rest = text[len(WITHOUT) :].partition(":")
            if not colon:
                raise ValueError(text)
        steps = [number for word in rest.split() for number in _steps(word)]
        return Script(steps, tuple(_positive(each) for each in without.split(",") if each))
    except (ValueError, AttributeError) as error:
        raise InvalidOption(
            f"schedule={text!r} is no schedule; one looks like '1*3 2 1*2', 'without 3: 1*3 2' or '1*3 cut:n1,n2 2'",
            value=repr(text),
        ) from error


def _steps(word: str) -> Iterable[Step]:
    if ":" in word or death_of(word) is not None:
        if ":" in word:
            read_change(word)
        return [word]
    who, star, times = word.partition("*")
    number = -_positive(who[1:]) if who.startswith("t") else _positive(who)
    return [number] * (_positive(times) if star else 1)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
