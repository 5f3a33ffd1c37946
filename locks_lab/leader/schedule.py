"""How a world of elections runs: schedules that are chosen at random, or always in the same way.

any      any choice
skewed   some links are many times as slow as others
oldest   messages in the order in which they were sent, as a rule; the rest first
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal, get_args

from locks_lab.leader.world import ElectionWorld
from locks_lab.schedules.schedule import AnyChoice as Choice
from locks_lab.schedules.schedule import Chooser, carry_on, now_and_then

__all__ = ["ORDERS", "Order", "chooser", "in_order", "run", "settle"]

Order = Literal["any", "skewed", "oldest"]
ORDERS: tuple[Order, ...] = get_args(Order)
FAULT_RATE = 0.02  # how likely the next event is one that never needs to happen
LOCAL = ("local", "settle", "news", "take")


def chooser(rng: random.Random, order: Order) -> Chooser:
    """Chooses what happens next, by an order."""
    return Chooser(rng, order, in_order)


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
    return carry_on(world, choose, limit, schedule)


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
    fault = now_and_then(rng, fault_rate, lambda quiet: world.free_choices())
    carry_on(world, chooser(rng, order), limit, schedule, fault)
