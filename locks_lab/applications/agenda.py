"""The planned events of a simulated application, and the choice of the next one.

There are two agendas. In an `Agenda` the earliest event happens first, and a strategy decides when
clients are due. In a `Chosen` agenda the caller chooses at each point which client continues. In
this way it runs a schedule again, makes it shorter, or tries each schedule in turn.

In a `Chosen` agenda only clients take time; messages, for example, take none. A client that sleeps,
or waits with a time limit, may be chosen before others that can continue, as if the others were
that slow. But timers fire in their order.

The schedule of a drawn run is *exact*: it also has a step for each event that is no client's, such as
a message that arrives (`m2` is the second of those that are planned), and says why a client continues
if there are several reasons: `3.2` if its time limit came before the answer that it was about to
take. `@0.002` is the time of the next step, `~0.002` how late a timer of asyncio is. While such a schedule lasts, nothing else happens, and
any planned event may be next. So the run comes about again, whatever was drawn.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from locks_lab.applications.strategies import Resumable, Step, Strategy

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = [
    "EVENT",
    "TIME",
    "Agenda",
    "Breaking",
    "Chosen",
    "Entry",
    "State",
]

EVENT = re.compile(r"(?:m|([1-9]\d*)\.)([1-9]\d*)")
TIME = re.compile(r"([@~])(\d+(?:\.\d+)?(?:e-\d+)?)")


class Breaking(Protocol):
    """The faults that may happen, but never need to."""

    def possible(self) -> list[str]:
        """The faults and repairs that are possible now, as steps."""

    def happen(self, step: str) -> None:
        """It does."""


class Entry(NamedTuple):
    """A planned event.

    Attributes:
        due: When it happens, in seconds of virtual time.
        rank: Decides between events that are due at the same time: the smallest rank is first.
        planned: Its number.
        function: The function to call.
        args: Its arguments.
        client: The client that continues, if one does.
        resumed: How often that client had been resumed when this was planned.
    """

    due: float
    rank: float
    planned: int
    function: Callable[..., object]
    args: tuple[Any, ...]
    client: Resumable | None
    resumed: int


@dataclass
class State:
    """A point where a step was chosen.

    Attributes:
        options: The steps that were possible.
        taken: The step that was taken.
    """

    options: Sequence[Step]
    taken: Step


class Agenda:
    """An agenda on which the earliest event happens first.

    Args:
        strategy: Decides when each client is due.

    Attributes:
        taken: The steps that were taken, in order.
        faults: The faults that may happen.
        draws_faults: Whether the caller should draw the faults.
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
        function: Callable[[Unpack[Ts]], object],
        args: tuple[Unpack[Ts]],
        client: Resumable | None = None,
    ) -> None:
        """Plan an event."""
        self._planned += 1
        resumed = 0 if client is None else client.resumed
        entry = Entry(due, rank, self._planned, function, args, client, resumed)
        heapq.heappush(self._entries, entry)

    def take(self, now: float) -> Entry | None:
        """Take the next event, or None if there is none."""
        entries = self._entries
        while entries:
            entry = heapq.heappop(entries)
            client = entry.client
            if client is None:
                self._note(entry, now)
                return entry
            if client.resumed == entry.resumed:
                if self.strategy.passes(client):
                    self.plan(max(entry.due, now), client.rank, entry.function, entry.args, client)
                    continue
                self._note(entry, now)
                return entry
        return None

    def _note(self, entry: Entry, now: float) -> None:
        """Note a planned event that is next, with the time until then."""
        self._note_time(entry, now)
        self.taken.append(self._event(entry))

    def _note_time(self, entry: Entry, now: float) -> None:
        if entry.due > now:
            self.taken.append(f"@{entry.due!r}")

    def _event(self, entry: Entry) -> Step:
        """A planned event as a step: its number among those of the same client, or of none."""
        client = entry.client
        others = (e for e in self._entries if e.client is client and _is_due_still(e))
        number = 1 + sum(each.planned < entry.planned for each in others)
        if client is None:
            return f"m{number}"
        return client.number if number == 1 else f"{client.number}.{number}"

    def fault(self, step: str) -> None:
        """Note a fault that was drawn; it happens before the event that was just taken."""
        self.taken.insert(-1, step)

    def draw(self, number: int, rng: random.Random) -> int:
        """Draw a number from 0 to `number - 1`: which of several tasks continues."""
        drawn = rng.randrange(number)
        if number > 1:
            self.taken.append(-1 - drawn)
        return drawn

    def later(self, mean: float) -> float:
        """Draw how late something is that is not planned here, in seconds."""
        drawn = self.strategy.later(mean)
        if drawn:
            self.taken.append(f"~{drawn!r}")
        return drawn

    def clear(self) -> None:
        """Remove all events."""
        self._entries.clear()


class Chosen(Agenda):
    """An agenda on which a script chooses which client continues, and which faults happen.

    Args:
        strategy: Not used to choose; its messages must take no time.
        script: The steps to take, in order. A step that is not possible is left out. After the last
            step, the same client continues for as long as it can, and then the first client that
            can; no faults happen then.
        exact: Whether the script has all events.

    Attributes:
        states: The points where a step was chosen.
    """

    draws_faults = False

    def __init__(self, strategy: Strategy, script: Sequence[Step], exact: bool = False) -> None:
        super().__init__(strategy)
        self.states: list[State] = []
        self._script = script
        self._exact = exact
        self._at = 0

    def take(self, now: float) -> Entry | None:
        """Take the next event, or None if there is none."""
        self._entries = [entry for entry in self._entries if _is_due_still(entry)]
        entry = self._scripted(now) if self._exact else None
        if entry is not None:
            return entry
        soon = [entry for entry in self._entries if entry.client is None and entry.due <= now]
        if soon:
            return self._happens(min(soon))
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
            return None if timer is None else self._happens(timer)
        taken = self._choose([*options, *faults])
        if isinstance(taken, str) and taken in faults:
            assert self.faults is not None
            return Entry(now, 0.0, 0, self.faults.happen, (taken,), None, 0)
        if taken in ready or timer is None:
            return self._remove(ready[taken])
        return self._remove(timer)

    def _scripted(self, now: float) -> Entry | None:
        """The next event of an exact script; `None` at its end. What is not possible is left out."""
        due = now
        while self._at < len(self._script):
            step = self._script[self._at]
            self._at += 1
            if isinstance(step, str) and (time := TIME.fullmatch(step)) is not None:
                due = float(time[2]) if time[1] == "@" else due
                continue
            event = EVENT.fullmatch(step) if isinstance(step, str) else None
            number, at = (step, 1) if event is None else (int(event[1] or 0), int(event[2]))
            planned = [e for e in self._entries if _number(e) == number]
            found = sorted(planned, key=_planned)[at - 1 : at]
            if found:
                entry = self._remove(found[0])
                if entry.client is not None:
                    due = max(due, entry.due)  # nobody wakes too early
                entry = entry._replace(due=due)
                self._note_time(entry, now)
                self.taken.append(step)
                return entry
            if isinstance(step, str) and self.faults is not None and step in self.faults.possible():
                entry = Entry(due, 0.0, 0, self.faults.happen, (step,), None, 0)
                self._note_time(entry, now)
                self.taken.append(step)
                return entry
        return None

    def _happens(self, entry: Entry) -> Entry:
        """Something that is no client's; an exact script says so."""
        self._remove(entry)
        if self._exact and entry.client is None:
            self.taken.append(self._event(entry))
        return entry

    def _wants_one_of(self, faults: Sequence[str]) -> bool:
        return self._at < len(self._script) and self._script[self._at] in faults

    def draw(self, number: int, rng: random.Random) -> int:
        """Choose a number from 0 to `number - 1`: which of several tasks continues."""
        if number == 1:
            return 0
        taken = self._choose([-1 - each for each in range(number)])
        assert isinstance(taken, int)
        return -taken - 1

    def later(self, mean: float) -> float:
        """How late it was in the run that the script is of."""
        step = self._script[self._at] if self._at < len(self._script) else 0
        time = TIME.fullmatch(step) if self._exact and isinstance(step, str) else None
        if time is None or time[1] != "~":
            return 0.0
        self._at += 1
        self.taken.append(step)
        return float(time[2])

    def _ready(self, now: float) -> dict[Step, Entry]:
        """The clients that can continue now, by number, each with its earliest entry."""
        found: dict[Step, Entry] = {}
        for entry in self._entries:
            if entry.client is not None and entry.due <= now:
                number = entry.client.number
                if number not in found or entry < found[number]:
                    found[number] = entry
        return found

    def _choose(self, options: Sequence[Step]) -> Step:
        """The next possible step of the script. Choices of tasks are separate from all others."""
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
        self.states.append(State(options, taken))
        self.taken.append(taken)
        return taken

    def _remove(self, entry: Entry) -> Entry:
        self._entries.remove(entry)
        return entry


def _number(entry: Entry) -> Step:
    """The number of its client; 0 if it is no client's."""
    return 0 if entry.client is None else entry.client.number


def _planned(entry: Entry) -> int:
    return entry.planned


def _is_due_still(entry: Entry) -> bool:
    return entry.client is None or entry.client.resumed == entry.resumed


def _is_task(step: Step) -> bool:
    return isinstance(step, int) and step < 0


def _in_order(step: Step) -> tuple[bool, int, str]:
    """Clients come first."""
    return (True, 0, step) if isinstance(step, str) else (False, step, "")
