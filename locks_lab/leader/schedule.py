"""Schedules of a world of elections: random ones, and one that is always the same.

any      any choice
skewed   some links are many times as slow as others
oldest   usually: first events within nodes, then messages in the order of sending, then the rest
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
FAULT_RATE = 0.02  # the probability that the next event is one that never needs to happen
LOCAL = ("local", "settle", "news", "take")


def chooser(rng: random.Random, order: Order) -> Chooser:
    """A chooser of the next event, for an order."""
    return Chooser(rng, order, in_order)


def in_order(world: ElectionWorld, choices: list[Choice]) -> Choice:
    """Choose events within nodes first, then the oldest message, then other events."""
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
    """Continue until nothing needs to happen any more; then make the final checks.

    Returns:
        The number of events.

    Raises:
        Violation: A check failed, or the run does not end.
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
    """Continue until nothing can happen any more, and all faults are repaired.

    Args:
        world: The world.
        rng: The source of all choices.
        order: How choices are made.
        limit: The largest number of events.
        fault_rate: The probability that the next event is one that never needs to happen.
        schedule: The events are added here, for a replay.

    Raises:
        Violation: A check failed.
    """
    fault = now_and_then(rng, fault_rate, lambda quiet: world.free_choices())
    carry_on(world, chooser(rng, order), limit, schedule, fault)
