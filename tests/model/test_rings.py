"""Rings of agents, each of which holds one lock and asks for the next one's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from locks_lab.explorer.small_worlds import ring
from locks_lab.schedules.schedule import calm, run
from locks_lab.worlds.rules import OURS, RULES, Rule
from locks_lab.worlds.world import World
from tests.helpers import EXPLORE


class Outcome(NamedTuple):
    """What became of a ring: messages between agents until the first surrender, and in all."""

    until_surrender: int
    knowledge: int
    messages: int


def run_ring(
    order: tuple[int, ...], at_once: bool, abort: bool, seed: int = 0, rule: Rule = OURS
) -> Outcome:
    """Let a ring form and resolve itself, and check all that is promised of it."""
    rng = random.Random(seed)
    world = World(ring(order), abort_on_deadlock=abort, rule=rule)
    for client in world.clients:
        world.step(client.number)
        calm(world, rng)
    numbers = [client.number for client in world.clients]
    rng.shuffle(numbers)
    for number in numbers:
        world.step(number)
        if not at_once:
            calm(world, rng, quiet=True)
    run(world, rng)
    case = f"ring {order}, at once: {at_once}, abort: {abort}, seed {seed}"
    assert len(world.carried_out) == 1, f"{case}: {len(world.carried_out)} surrenders"
    (report,) = world.carried_out
    assert not world.superfluous, f"{case}: {report} was no deadlock"
    assert not world.outdated, f"{case}: {report} has an outdated edge"
    assert len(report.cycle) == len(order), case
    assert report.action == ("aborted" if abort else "surrendered"), case
    youngest = max(edge.waiter.agent for edge in report.cycle)
    assert report.agent == youngest, f"{case}: {report.agent} yielded"
    for client in world.clients:
        assert client.reports == [report], f"{case}: client {client.number} was not told"
    assert world.aborts == abort, case
    assert world.before_surrender is not None
    return Outcome(world.before_surrender["Knowledge"], world.sent["Knowledge"], world.sent.total())


def orders(size: int) -> Iterator[tuple[int, ...]]:
    """Every order of references in a ring; where one begins to count makes no difference."""
    for rest in itertools.permutations(range(1, size)):
        yield (0, *rest)


@pytest.mark.parametrize("abort", [False, True], ids=["surrender", "abort"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
@pytest.mark.parametrize("size", [2, 3, 4, 5, pytest.param(6, marks=pytest.mark.explore)])
def test_small_rings_in_every_order(size: int, at_once: bool, abort: bool) -> None:
    """Each ring costs one surrender (or abort) by its youngest agent, and all are told of it.

    When it forms one by one and all messages arrive before agents look at what they know, at most
    one message between agents less than there are agents is sent until then.
    """
    for order in orders(size):
        for seed in range((20 if EXPLORE else 2) if size < 6 else (10 if EXPLORE else 1)):
            outcome = run_ring(order, at_once, abort, seed)
            if not at_once:
                assert outcome.until_surrender <= size - 1, (order, seed, outcome)


@pytest.mark.parametrize("abort", [False, True], ids=["surrender", "abort"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
@pytest.mark.parametrize("size", [10, 20, pytest.param(50, marks=pytest.mark.explore)])
def test_large_rings_in_random_orders(size: int, at_once: bool, abort: bool) -> None:
    """The same for 10, 20 and 50 agents, in some of their orders, if lock servers leave it to them."""
    for seed in range(50 if EXPLORE else 8):
        order = list(range(size))
        random.Random(seed).shuffle(order)
        outcome = run_ring(tuple(order), at_once, abort, seed, RULES["piecewise"])
        if not at_once:
            assert outcome.until_surrender <= size - 1, (seed, outcome)


@pytest.mark.parametrize("abort", [False, True], ids=["surrender", "abort"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
@pytest.mark.parametrize("size", [9, 10, 20, pytest.param(50, marks=pytest.mark.explore)])
def test_agents_of_a_long_ring_tell_each_other_nothing(
    size: int, at_once: bool, abort: bool
) -> None:
    """The lock server tells the youngest all of it: no message goes between agents, in any order."""
    for seed in range(20 if EXPLORE else 3):
        order = list(range(size))
        random.Random(seed).shuffle(order)
        outcome = run_ring(tuple(order), at_once, abort, seed)
        assert outcome.knowledge == 0, (seed, outcome)


@pytest.mark.parametrize("abort", [False, True], ids=["surrender", "abort"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_short_rings_in_every_order_told_as_long_ones_are(
    size: int, at_once: bool, abort: bool
) -> None:
    """If lock servers tell short rings as they tell long ones, one agent yields as well: the youngest."""
    for order in orders(size):
        for seed in range(20 if EXPLORE else 2):
            outcome = run_ring(order, at_once, abort, seed, RULES["whole"])
            assert outcome.knowledge == 0, (order, seed, outcome)
