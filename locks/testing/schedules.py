"""Schedules as text: the order in which clients run, `1*3 2 1*2`; or `without 3: 1*3 2`.

The second form leaves clients out. Clients are numbered from 1, in the order in which they were
added. `t2` is the second of several tasks of asyncio that can continue. Faults, and what nodes
notice of them, are as in `locks_lab.applications.breaking`: `1*3 cut:n1,n2 2 notice:n2,n1`.

The schedule of a drawn run begins with `exact`: `exact: 1*3 m1 @0.002 2`. It also says when everything else happens
(`locks_lab.applications.agenda`). After `exact late`, messages took time in that run; after `exact soon` they took none, but a call
returned before they arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from locks.errors import InvalidOption
from locks_lab.applications.agenda import EVENT, TIME
from locks_lab.applications.breaking import death_of, read_change
from locks_lab.applications.strategies import Step

__all__ = ["EXACT", "LATE", "SOON", "Script", "parse"]

WITHOUT = "without "
HEAD = re.compile(r"(exact(?: soon| late)?)? ?(?:without ([\d,]+))?")
EXACT, SOON, LATE = "exact", "exact soon", "exact late"


class Script(NamedTuple):
    """A schedule.

    Attributes:
        steps: The numbers of the clients that run, in order; negative ones are tasks, and texts are
            faults.
        without: The numbers of clients that are left out.
        exact: `EXACT`, `SOON` or `LATE` if it has all events; otherwise empty.
    """

    steps: Sequence[Step]
    without: tuple[int, ...] = ()
    exact: str = ""

    def __str__(self) -> str:
        words = []
        for number, same in groupby(self.steps):
            times = len(list(same))
            if isinstance(number, str) and EVENT.fullmatch(number) is None:
                words += [number] * times
                continue
            word = f"t{-number}" if isinstance(number, int) and number < 0 else str(number)
            words.append(word if times == 1 else f"{word}*{times}")
        without = f"{WITHOUT}{','.join(map(str, self.without))}" if self.without else ""
        head = " ".join(filter(None, (self.exact, without)))
        return (f"{head}: " if head else "") + " ".join(words)

    @property
    def plain(self) -> Script:
        """It without the events that are no client's: they happen at once."""
        steps = [each for step in self.steps for each in _plain(step)]
        return Script(steps, self.without)

    @property
    def switches(self) -> int:
        """How often the running client changes."""
        clients = [step for step in self.steps if isinstance(step, int) and step > 0]
        return sum(a != b for a, b in pairwise(clients))

    @property
    def dead(self) -> frozenset[int]:
        """The clients that are killed, by their numbers."""
        killed = [death_of(step) for step in self.steps if isinstance(step, str)]
        return frozenset(number for number in killed if number is not None)

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
        head, colon, rest = text.partition(": ")
        exact, without = HEAD.fullmatch(head).groups("") if colon else ("", "")  # type: ignore[union-attr]
        steps = [number for word in (rest if colon else text).split() for number in _steps(word)]
        left_out = tuple(_positive(each) for each in without.split(",") if each)
        return Script(steps, left_out, exact)
    except (ValueError, AttributeError) as error:
        raise InvalidOption(
            f"schedule={text!r} is no schedule; one looks like '1*3 2 1*2', 'without 3: 1*3 2' or '1*3 cut:n1,n2 2'",
            value=repr(text),
        ) from error


def _plain(step: Step) -> list[Step]:
    if isinstance(step, int):
        return [step]
    event = EVENT.fullmatch(step)
    if event is None:
        return [] if TIME.fullmatch(step) else [step]
    return [int(event[1])] if event[1] else []


def _steps(word: str) -> Iterable[Step]:
    if ":" in word or death_of(word) is not None or TIME.fullmatch(word) is not None:
        if ":" in word:
            read_change(word)
        return [word]
    who, star, times = word.partition("*")
    step: Step = who
    if EVENT.fullmatch(who) is None:
        step = -_positive(who[1:]) if who.startswith("t") else _positive(who)
    return [step] * (_positive(times) if star else 1)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
