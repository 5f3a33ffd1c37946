"""What is going to happen in a simulated application, and which of it happens next.

There are two agendas. In the one, `Agenda`, what is due first happens first, and a strategy says when clients are due. In the other
one, `Chosen`, somebody chooses at each point which client goes on: so a schedule is run again, made shorter, or each
schedule is tried in turn. There all that is no client's, messages above all, takes no time. A client that sleeps, or waits for so many
seconds at most, may be chosen before others that can go on, as if these took so long; but timers go off in their order.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from locks_lab.applications.strategies import Strategy

__all__ = ["Agenda", "Breaking", "Choice", "Chosen", "Entry", "Resumable", "Step"]

Step = int | str
"""A client goes on, by its number; a task, by a negative one; or something breaks (`locks_lab.applications.breaking`)."""


class Resumable(Protocol):
    """A client, or what else goes on sooner or later.

    Attributes:
        number: Its number, from 1 on, or what it is as a step.
        resumed: How often it was resumed: what was to resume it before that is outdated.
    """

    resumed: int
    pace: float
    rank: float

    @property
    def number(self) -> Step:
        """Its number, from 1 on, or what it is as a step."""


class Breaking(Protocol):
    """What may break, and never needs to."""

    def possible(self) -> list[str]:
        """What may break now, and be mended, as steps."""

    def happen(self, step: str) -> None:
        """It does."""


class Entry(NamedTuple):
    """Something that is going to happen.

    Attributes:
        due: When, in seconds of virtual time.
        rank: What goes first of what is due at the same moment: the smaller one.
        planned: Its number.
        function: What is called then.
        args: With what.
        client: The client that goes on, if one does.
        resumed: How often that one was resumed when this was planned.
    """

    due: float
    rank: float
    planned: int
    function: Callable[..., object]
    args: tuple[Any, ...]
    client: Resumable | None
    resumed: int


class Choice(NamedTuple):
    """A choice among several.

    Attributes:
        at: How many choices have been before, those of one among one counted.
        taken: Which step was taken.
        options: Which could have been.
    """

    at: int
    taken: Step
    options: tuple[Step, ...]


class Agenda:
    """What is due first happens first.

    Args:
        strategy: Says which client is due when.

    Attributes:
        taken: The steps that were taken, in order.
        faults: What may break.
        draws_faults: Whether somebody else is to draw what breaks when.
    """

    draws_faults: ClassVar[bool] = True

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.faults: Breaking | None = None
        self.taken: list[Step] = []
        self._entries: list[Entry] = []
        self._planned = 0

    def plan(
        self,
        due: float,
        rank: float,
        function: Callable[..., object],
        args: tuple[Any, ...],
        client: Resumable | None = None,
    ) -> None:
        """Something is to happen."""
        self._planned += 1
        resumed = 0 if client is None else client.resumed
        entry = Entry(due, rank, self._planned, function, args, client, resumed)
        heapq.heappush(self._entries, entry)

    def take(self, now: float) -> Entry | None:
        """What happens next, if anything does."""
        entries = self._entries
        while entries:
            entry = heapq.heappop(entries)
            client = entry.client
            if client is None:
                return entry
            if client.resumed == entry.resumed:
                if self.strategy.passes(client):
                    self.plan(max(entry.due, now), client.rank, entry.function, entry.args, client)
                    continue
                self.taken.append(client.number)
                return entry
        return None

    def draw(self, number: int, rng: random.Random) -> int:
        """One of so many numbers, from 0 on: which of several tasks goes on."""
        drawn = rng.randrange(number)
        self.taken.append(-1 - drawn)
        return drawn

    def clear(self) -> None:
        """Nothing happens any more."""
        self._entries.clear()


class Chosen(Agenda):
    """Somebody chooses which client goes on, and what breaks.

    Args:
        strategy: Not asked; it is one whose messages take no time.
        script: The steps that are to be taken, in order. One that can't is left out. After the last one, the client
            that has gone on before does so for as long as it can, and then the first one that can; nothing breaks then.

    Attributes:
        choices: What was chosen where there was a choice.
    """

    draws_faults = False

    def __init__(self, strategy: Strategy, script: Sequence[Step]) -> None:
        super().__init__(strategy)
        self.choices: list[Choice] = []
        self._script = script
        self._at = 0

    def take(self, now: float) -> Entry | None:
        """What happens next, if anything does."""
        self._entries = [entry for entry in self._entries if _is_due_still(entry)]
        soon = [entry for entry in self._entries if entry.client is None and entry.due <= now]
        if soon:
            return self._remove(min(soon))
        ready = self._ready(now)
        later = [entry for entry in self._entries if entry not in ready.values()]
        timer = min((entry for entry in later if entry.due > now), default=None)
        options = sorted(ready, key=_in_order)
        last = next(
            (step for step in reversed(self.taken) if isinstance(step, int) and step > 0), 0
        )
        if last in ready:
            options.remove(last)
            options.insert(0, last)
        if timer is not None and timer.client is not None and timer.client.number not in ready:
            options.append(timer.client.number)
        faults = [] if self.faults is None else self.faults.possible()
        if not options and not self._wants_one_of(faults):
            return None if timer is None else self._remove(timer)
        taken = self._choose([*options, *faults])
        if isinstance(taken, str) and taken in faults:
            assert self.faults is not None
            return Entry(now, 0.0, 0, self.faults.happen, (taken,), None, 0)
        if taken in ready or timer is None:
            return self._remove(ready[taken])
        return self._remove(timer)

    def _wants_one_of(self, faults: Sequence[str]) -> bool:
        return self._at < len(self._script) and self._script[self._at] in faults

    def draw(self, number: int, rng: random.Random) -> int:
        """One of so many numbers, from 0 on: which of several tasks goes on."""
        if number == 1:
            return 0
        taken = self._choose([-1 - each for each in range(number)])
        assert isinstance(taken, int)
        return -taken - 1

    def _ready(self, now: float) -> dict[Step, Entry]:
        """What can go on now, by its number; each with what is due first."""
        found: dict[Step, Entry] = {}
        for entry in self._entries:
            if entry.client is not None and entry.due <= now:
                number = entry.client.number
                if number not in found or entry < found[number]:
                    found[number] = entry
        return found

    def _choose(self, options: Sequence[Step]) -> Step:
        """The next one that is wanted and can be had. Which of several tasks goes on is chosen apart from all else."""
        taken = options[0]
        while self._at < len(self._script):
            wanted = self._script[self._at]
            if _is_task(wanted) != _is_task(taken):
                if _is_task(taken):
                    break
            elif wanted in options:
                taken = wanted
                self._at += 1
                break
            self._at += 1
        if len(options) > 1:
            self.choices.append(Choice(len(self.taken), taken, tuple(options)))
        self.taken.append(taken)
        return taken

    def _remove(self, entry: Entry) -> Entry:
        self._entries.remove(entry)
        return entry


def _is_due_still(entry: Entry) -> bool:
    return entry.client is None or entry.client.resumed == entry.resumed


def _is_task(step: Step) -> bool:
    return isinstance(step, int) and step < 0


def _in_order(step: Step) -> tuple[bool, int, str]:
    """Clients come first."""
    return (True, 0, step) if isinstance(step, str) else (False, step, "")
