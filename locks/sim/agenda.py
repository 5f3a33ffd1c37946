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
from typing import Any, NamedTuple, Protocol

from locks.sim.strategies import Strategy

__all__ = ["Agenda", "Choice", "Chosen", "Entry", "Resumable"]


class Resumable(Protocol):
    """A client.

    Attributes:
        number: Its number, from 1 on.
        resumed: How often it was resumed: what was to resume it before that is outdated.
    """

    number: int
    resumed: int
    pace: float
    rank: float


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
        taken: Which client went on, or task.
        options: Which could have.
    """

    at: int
    taken: int
    options: tuple[int, ...]


class Agenda:
    """What is due first happens first.

    Args:
        strategy: Says which client is due when.

    Attributes:
        taken: The numbers of the clients that went on, in order.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.taken: list[int] = []
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
    """Somebody chooses which client goes on.

    Args:
        strategy: Not asked; it is one whose messages take no time.
        script: The numbers of the clients that are to go on, in order. One that can't is left out. After the last one, the client
            that has gone on before does so for as long as it can, and then the first one that can. Which of several tasks goes on
            is a negative number.

    Attributes:
        choices: What was chosen where there was a choice.
    """

    def __init__(self, strategy: Strategy, script: Sequence[int]) -> None:
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
        if not ready and (timer is None or timer.client is None):
            return None if timer is None else self._remove(timer)
        options = sorted(ready)
        last = next((number for number in reversed(self.taken) if number > 0), 0)
        if last in ready:
            options.remove(last)
            options.insert(0, last)
        if timer is not None and timer.client is not None and timer.client.number not in ready:
            options.append(timer.client.number)
        number = self._choose(options)
        if number in ready or timer is None:
            return self._remove(ready[number])
        return self._remove(timer)

    def draw(self, number: int, rng: random.Random) -> int:
        """One of so many numbers, from 0 on: which of several tasks goes on."""
        if number == 1:
            return 0
        return -self._choose([-1 - each for each in range(number)]) - 1

    def _ready(self, now: float) -> dict[int, Entry]:
        """The clients that can go on now, by their numbers; each with what is due first."""
        found: dict[int, Entry] = {}
        for entry in self._entries:
            if entry.client is not None and entry.due <= now:
                number = entry.client.number
                if number not in found or entry < found[number]:
                    found[number] = entry
        return found

    def _choose(self, options: Sequence[int]) -> int:
        """The next one that is wanted and can be had. Clients have positive numbers, tasks negative ones."""
        taken = options[0]
        while self._at < len(self._script):
            wanted = self._script[self._at]
            if (wanted < 0) != (taken < 0):
                if taken < 0:
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
