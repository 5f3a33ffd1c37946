"""Many random worlds under random schedules."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.model.random_worlds import Tally, ordered, run, run_many

EXPLORE = os.environ.get("LOCKS_EXPLORE") == "1"
BASE = int(os.environ.get("LOCKS_SEED", "0"))
WORLDS = 1500 * (20 if EXPLORE else 1)


@pytest.mark.parametrize("part", range(5))
def test_random_worlds(part: int) -> None:
    """Whatever clients want and however messages travel, all is well.

    Clients that were told so hold their locks and exclude each other, nobody is stuck, grants last
    until they are given up, and nothing is left behind. Few deadlocks are resolved that were gone
    already, and messages are bounded.
    """
    first = BASE + part * WORLDS // 5
    tally = run_many(range(first, first + WORLDS // 5))
    print(tally)
    seen = tally.worlds
    assert seen["deadlocks"] > WORLDS // 5
    assert seen["superfluous"] < 0.12 * seen["deadlocks"], tally
    assert tally.messages.total() < 150 * seen["worlds"], tally


@pytest.mark.parametrize("clients", [5, 10, 20])
def test_many_transactions_over_few_locks(clients: int) -> None:
    """Clients that take 3 of as many locks, one by one in any order, again and again, all finish."""
    tally = Tally(Counter(), Counter())
    plan = ordered(clients, clients, 200 if EXPLORE else 10, BASE + clients)
    run(BASE + clients, plan, tally)
    print(tally)
