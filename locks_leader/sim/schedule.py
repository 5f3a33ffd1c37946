"""How a world of elections runs: schedules that are chosen at random, or always in the same way.

any      any choice
skewed   some links are many times as slow as others
oldest   messages in the order in which they were sent, as a rule; the rest first
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal, get_args

from locks.sim.host import Violation
from locks.sim.world import Choice
from locks_leader.sim.world import ElectionWorld

__all__ = ["ORDERS", "Chooser", "Order", "in_order", "run", "settle"]

Order = Literal["any", "skewed", "oldest"]
ORDERS: tuple[Order, ...] = get_args(Order)
FAULT_RATE = 0.02  # how likely the next event is one that never needs to happen
LOCAL = ("local", "settle", "news", "take")


class Chooser:
    """Chooses what happens next, by an order.

    Args:
        rng: Where its choices come from.
        order: See this module.
    """

    def __init__(self, rng: random.Random, order: Order) -> None:
        self.rng = rng
        self.order = order
        self.pace: dict[Choice, float] = {}

    def __call__(self, world: ElectionWorld, choices: list[Choice]) -> Choice:
        """One of the choices."""
        rng = self.rng
        if self.order == "skewed":
            return rng.choices(choices, [self._weight(choice) for choice in choices])[0]
        if self.order == "oldest" and rng.random() < 0.9:
            return in_order(world, choices)
        return rng.choice(choices)

    def _weight(self, choice: Choice) -> float:
        if choice[0] != "deliver":
            return 0.2
        if choice not in self.pace:
            self.pace[choice] = 10 ** self.rng.uniform(-2.5, 0)
        return self.pace[choice]


def in_order(world: ElectionWorld, choices: list[Choice]) -> Choice:
    """What happens within nodes first, then the oldest message, then the rest."""
    for choice in choices:
        if choice[0] in LOCAL:
            return choice
    links = [what for kind, what in choices if kind == "deliver"]
    return ("deliver", world.network.oldest(links)) if links else choices[0]


def settle(
    world: ElectionWorld,
    choose: Callable[[ElectionWorld, list[Choice]], Choice] = in_order,
    limit: int = 100_000,
    schedule: list[Choice] | None = None,
) -> int:
    """Carry on until nothing needs to happen any more; then all must be as it must be.

    Returns:
        How many events it took.

    Raises:
        Violation: Something is not as it must be, or there is no end.
    """
    for number in range(limit):
        choices = world.choices(free=False)
        if not choices:
            world.check_quiet()
            return number
        choice = choose(world, choices)
        if schedule is not None:
            schedule.append(choice)
        world.do(choice)
    raise Violation(f"no end after {limit} events")


def run(
    world: ElectionWorld,
    rng: random.Random,
    order: Order = "any",
    limit: int = 100_000,
    fault_rate: float = FAULT_RATE,
    schedule: list[Choice] | None = None,
) -> None:
    """Carry on until nothing can happen any more, and all that was broken is mended.

    Args:
        world: The world.
        rng: Where all choices come from.
        order: How they are made.
        limit: The most events.
        fault_rate: How likely each next event is one that never needs to happen.
        schedule: Where what happens is kept, to be replayed.

    Raises:
        Violation: Something is not as it must be.
    """
    choose = Chooser(rng, order)
    done = [] if schedule is None else schedule
    for _ in range(limit):
        choices = world.choices(free=False)
        free = world.free_choices()
        if not choices:
            world.check_quiet()
            if not free:
                return
        if free and (not choices or rng.random() < fault_rate):
            choice = rng.choice(free)
        else:
            choice = choose(world, choices)
        done.append(choice)
        world.do(choice)
    raise Violation(f"no end after {limit} events")
