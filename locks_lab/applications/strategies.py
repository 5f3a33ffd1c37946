"""Strategies: which client of a simulated application continues next, drawn from a seed.

Each client that can continue does so after some virtual time, which a strategy draws. The earliest
is first, and of what is due at the same moment what has the smaller rank.

- `Uniform`: all clients have the same pace, except one in ten, which is 30 times as slow. So each
  client that can continue is about equally likely to be next.
- `Bursts`: now and then a client gets a new pace, over four orders of magnitude. So one client does
  much while others stand still, wherever they are.
- `Pct`, for *probabilistic concurrency testing* (Burckhardt, Kothari, Musuvathi, Nagarakatte: A
  Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, ASPLOS 2010): no time passes
  while any client can continue, and the one with the highest priority continues. Priorities are
  drawn. At `depth - 1` steps the client that is next gets one of the lowest priorities. Messages
  take no time. A bug has depth d if d steps must come in a certain order for it to show. With n
  clients and k steps, PCT finds it with a probability of at least 1 / (n * k ** (d - 1)). Neither d
  nor k is known here: d is drawn from 2 to 4, and k from the powers of two from 8 to 128.

A client that polls for an event would keep clients with a lower priority from ever causing it. So
in `Pct` a client that sleeps, or has taken many steps in a row, gets the lowest priority.
"""

from __future__ import annotations

import random
from typing import Literal, Protocol, get_args

from locks.errors import InvalidOption, assert_never

__all__ = [
    "CLIENTS",
    "STEP",
    "Named",
    "Resumable",
    "Step",
    "Strategy",
    "Unhurried",
    "check_strategy",
    "strategy_for",
]

Named = Literal["mixed", "uniform", "bursts", "pct"]

# Mean times, in seconds of virtual time.
STEP = 0.001  # seconds until a client continues, on average
SLOW, SLOW_SHARE = 30.0, 0.1  # how much slower slow clients are, and their share
PROMPT_SHARE = 0.3  # in this share of all runs messages take no time
BURST_SHARE, PACES = 0.15, 2.0  # how often a pace is new, and from and to which power of 10
DEPTHS, LENGTHS = range(2, 5), range(3, 8)  # of bugs; of runs, as powers of 2
IN_A_ROW = 100  # steps of one client

CLIENTS = 2.0  # the rank of clients: after messages and their consequences


Step = int | str
"""A client (by number), a task (by a negative number), a fault (`locks_lab.applications.breaking`), an event (`m1`, `3.2`), or a time (`@0.002`)."""


class Resumable(Protocol):
    """A client, or something else that can be resumed.

    Attributes:
        number: Its number, from 1, or its name as a step.
        pace: How many times as long as others it takes, for strategies that use this.
        rank: Decides between events that are due at the same time: the smallest rank is first.
        resumed: How often it was resumed. Entries that were planned before the last time are
            outdated.
    """

    pace: float
    rank: float
    resumed: int

    @property
    def number(self) -> Step:
        """Its number, from 1, or its name as a step."""


class Strategy:
    """The strategy with one pace for all: `Uniform`.

    Attributes:
        prompt: Whether messages take no time.
        at_once: Whether, in addition, everything that follows from a call has happened when it
            returns.
    """

    at_once: bool = False

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.prompt = rng.random() < PROMPT_SHARE

    def begin(self, client: Resumable) -> None:
        """A client begins."""
        client.pace = SLOW if self._rng.random() < SLOW_SHARE else 1.0
        client.rank = CLIENTS

    def delay(self, client: Resumable) -> float:
        """How long a client takes that can continue now, in seconds."""
        return self._rng.expovariate(1 / (STEP * client.pace))

    def later(self, mean: float) -> float:
        """How late something is that is no client's, in seconds."""
        return self._rng.expovariate(1 / mean)

    def slept(self, client: Resumable) -> None:
        """A client lets others go first."""

    def passes(self, client: Resumable) -> bool:
        """Whether the next client has got another rank, so that the choice must be made again."""
        return False


class Bursts(Strategy):
    """Clients change their paces."""

    def delay(self, client: Resumable) -> float:
        """How long a client takes that can continue now, in seconds."""
        if self._rng.random() < BURST_SHARE:
            client.pace = 10 ** self._rng.uniform(-PACES, PACES)
        return super().delay(client)


class Unhurried(Strategy):
    """Nothing takes time: the agenda chooses (`locks_lab.applications.agenda.Chosen`).

    Args:
        prompt: Whether messages take no time. In the exact schedule of a run in which they did, it
            says when they arrive.
        at_once: Whether, in addition, everything that follows from a call happens at once.
    """

    def __init__(self, rng: random.Random, prompt: bool = True, at_once: bool = True) -> None:
        super().__init__(rng)
        self.prompt = prompt
        self.at_once = at_once

    def begin(self, client: Resumable) -> None:
        """A client begins."""
        client.rank = CLIENTS

    def delay(self, client: Resumable) -> float:
        """At once."""
        return 0.0

    def later(self, mean: float) -> float:
        """At once."""
        return 0.0


class Pct(Unhurried):
    """The client with the highest priority, that is the smallest rank, continues."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        depth = rng.choice(DEPTHS)
        steps = 2 ** rng.choice(LENGTHS)
        self._changes = {rng.randrange(steps): 1.0 + number for number in range(depth - 1)}
        self._taken = self._row = 0
        self._last = 1.0 + DEPTHS.stop
        self._before: Resumable | None = None

    def begin(self, client: Resumable) -> None:
        """A client begins, with a priority of its own."""
        client.rank = CLIENTS + self._rng.random()

    def delay(self, client: Resumable) -> float:
        """No time, except for a client that has taken many steps in a row."""
        if self._row < IN_A_ROW:
            return 0.0
        self.slept(client)
        return STEP

    def slept(self, client: Resumable) -> None:
        """A client lets all others go first."""
        self._row = 0
        self._last += 1
        client.rank = CLIENTS + self._last

    def passes(self, client: Resumable) -> bool:
        """Whether priorities change at this step."""
        rank = self._changes.pop(self._taken, None)
        if rank is not None:
            client.rank = CLIENTS + rank
            return True
        self._taken += 1
        self._row = self._row + 1 if client is self._before else 0
        self._before = client
        return False


MIX: tuple[type[Strategy], ...] = (Strategy, Strategy, Bursts, Pct)


def check_strategy(name: object) -> None:
    """Check the name of a strategy.

    Raises:
        InvalidOption: There is no such strategy.
    """
    names = get_args(Named)
    if name not in names:
        raise InvalidOption(
            f"strategy={name!r} is unknown; use one of {', '.join(map(repr, names))}",
            value=repr(name),
        )


def strategy_for(name: Named, seed: int, rng: random.Random) -> Strategy:
    """The strategy of a name. With `mixed`, the seed decides which strategy it is."""
    match name:
        case "mixed":
            return MIX[seed % len(MIX)](rng)
        case "uniform":
            return Strategy(rng)
        case "bursts":
            return Bursts(rng)
        case "pct":
            return Pct(rng)
        case _:
            assert_never(name)
