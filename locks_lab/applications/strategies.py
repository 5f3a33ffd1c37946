"""Who goes on next in a simulated application, drawn from a seed: strategies.

Each client that can go on does so after a while, in virtual time; a strategy says after which. What is due first goes first,
and of what is due at the same moment what has the smaller rank.

- `Uniform`: all go on at the same pace, but for one of ten, which is 30 times as slow. So each one that can go on is about
  as likely to be the next one.
- `Bursts`: now and then a client gets a new pace, over four orders of magnitude. So one of them does much while others
  stand still, wherever they are.
- `Pct`, for *probabilistic concurrency testing* (Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with
  Probabilistic Guarantees of Finding Bugs, ASPLOS 2010): no time passes while anybody can go on, and of those it is always the
  one with the highest priority. Priorities are drawn, and at `depth - 1` steps the one that is next becomes one of the last.
  Messages take no time. A bug is of depth d if there are d steps that have to come in a certain order for it to show. Among n clients
  and k steps, PCT finds it with a chance of at least 1 / (n * k ** (d - 1)). Neither d nor k is known here: d is drawn from 2 to
  4, and k from the powers of two from 8 to 128.

A client that looks again and again whether something has happened would keep others with a lower priority from ever doing it.
So one that sleeps, or has taken many steps in a row, becomes the last one (`Pct`).
"""

from __future__ import annotations

import random
from typing import ClassVar, Literal, Protocol, get_args

from locks.errors import InvalidOption, assert_never

__all__ = [
    "CLIENTS",
    "STEP",
    "Named",
    "Party",
    "Strategy",
    "Unhurried",
    "check_strategy",
    "strategy_for",
]

Named = Literal["mixed", "uniform", "bursts", "pct"]

# Mean times, in seconds of virtual time.
STEP = 0.001  # until a client that can go on does so
SLOW, SLOW_SHARE = 30.0, 0.1  # so many times as long take this share of clients
PROMPT_SHARE = 0.3  # in this share of all runs messages take no time
BURST_SHARE, PACES = 0.15, 2.0  # how often a pace is new, and from and to which power of 10
DEPTHS, LENGTHS = range(2, 5), range(3, 8)  # of bugs; of runs, as powers of 2
IN_A_ROW = 100  # steps of one client

CLIENTS = 2.0  # the rank of clients, after messages and what follows from them


class Party(Protocol):
    """A client, as a strategy sees it.

    Attributes:
        pace: How many times as long as others it takes, where that matters.
        rank: Who goes first of what is due at the same moment: the smaller one.
    """

    pace: float
    rank: float


class Strategy:
    """All go on at the same pace: `Uniform`.

    Attributes:
        name: What it is called.
        prompt: Whether messages take no time.
        at_once: Whether all that follows from a call has happened when it returns, too.
    """

    name: ClassVar[str] = "uniform"
    at_once: ClassVar[bool] = False

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.prompt = rng.random() < PROMPT_SHARE

    def begin(self, client: Party) -> None:
        """A client begins."""
        client.pace = SLOW if self._rng.random() < SLOW_SHARE else 1.0
        client.rank = CLIENTS

    def delay(self, client: Party) -> float:
        """After how long a client goes on that can go on now."""
        return self._rng.expovariate(1 / (STEP * client.pace))

    def later(self, mean: float) -> float:
        """How late something is that is no client's, in seconds."""
        return self._rng.expovariate(1 / mean)

    def slept(self, client: Party) -> None:
        """A client lets others go first."""

    def passes(self, client: Party) -> bool:
        """Whether the client that is next has got another rank, so that it has to be looked again who is."""
        return False


class Bursts(Strategy):
    """Clients change their paces."""

    name = "bursts"

    def delay(self, client: Party) -> float:
        """After how long a client goes on that can go on now."""
        if self._rng.random() < BURST_SHARE:
            client.pace = 10 ** self._rng.uniform(-PACES, PACES)
        return super().delay(client)


class Unhurried(Strategy):
    """Nothing takes any time: somebody else chooses who goes on (`locks_lab.applications.agenda.Chosen`)."""

    name = "chosen"
    at_once = True

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.prompt = True

    def begin(self, client: Party) -> None:
        """A client begins."""
        client.rank = CLIENTS

    def delay(self, client: Party) -> float:
        """At once."""
        return 0.0

    def later(self, mean: float) -> float:
        """At once."""
        return 0.0


class Pct(Unhurried):
    """The client with the highest priority goes on; its rank is the smallest."""

    name = "pct"

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        depth = rng.choice(DEPTHS)
        steps = 2 ** rng.choice(LENGTHS)
        self._changes = {rng.randrange(steps): 1.0 + number for number in range(depth - 1)}
        self._taken = self._row = 0
        self._last = 1.0 + DEPTHS.stop
        self._before: Party | None = None

    def begin(self, client: Party) -> None:
        """A client begins, with a priority of its own."""
        client.rank = CLIENTS + self._rng.random()

    def delay(self, client: Party) -> float:
        """At once; but time passes for those who go round in circles."""
        if self._row < IN_A_ROW:
            return 0.0
        self.slept(client)
        return STEP

    def slept(self, client: Party) -> None:
        """A client lets others go first: all others."""
        self._row = 0
        self._last += 1
        client.rank = CLIENTS + self._last

    def passes(self, client: Party) -> bool:
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
    """Refuse what is no strategy.

    Raises:
        InvalidOption: It is none.
    """
    names = get_args(Named)
    if name not in names:
        raise InvalidOption(
            f"strategy={name!r} is unknown; use one of {', '.join(map(repr, names))}",
            value=repr(name),
        )


def strategy_for(name: Named, seed: int, rng: random.Random) -> Strategy:
    """The strategy of a name; mixed ones take turns, by the seed."""
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
