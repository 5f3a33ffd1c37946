"""Many random worlds under random schedules."""

from __future__ import annotations

import random

import pytest

from locks_lab.schedules.plan import Shape, transactions
from locks_lab.schedules.runs import FailedRun, Tally, run_seeds
from locks_lab.schedules.schedule import run
from tests.helpers import EXPLORE, SEED

WORLDS = 400 * (20 if EXPLORE else 1)

# With the share of superfluous surrenders that is expected at most. It is large where a lock is needed
# on some of its nodes only: who is in a circle on one of them may get the lock on the others.
SHAPES = {
    "any": (Shape(), 0.15),
    "one node": (Shape(nodes=1, faults=False), 0.05),
    "no faults": (Shape(nodes=3, faults=False, require=("all",)), 0.05),
    "faults on two nodes": (Shape(nodes=2, faults=True, require=("all",)), 0.15),
    "faults on three nodes": (Shape(nodes=3, faults=True), 0.3),
    "some of the nodes": (Shape(nodes=3, faults=True, require=("all", "majority", "any")), 0.4),
    "what is alive": (Shape(nodes=3, faults=True, require=("all_alive", "majority_alive")), 0.3),
    "spokes": (Shape(spokes=True, faults=False, require=("all",)), 0.1),
    "spokes with faults": (Shape(spokes=True, faults=True), 0.4),
    "tokens": (Shape(nodes=3, faults=True, require=("all", "majority"), tokens=0.8), 0.3),
}


def replay_command(failure: FailedRun, shape: Shape) -> str:
    """How to see a failure again."""
    given = {name: value for name, value in shape._asdict().items() if value is not None}
    return f"python -m locks sim run --runs 1 --seed {failure.seed} with {given}: {failure.error}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "worlds", [WORLDS // 6, pytest.param(WORLDS, marks=pytest.mark.explore)], ids=["some", "all"]
)
@pytest.mark.parametrize("name", SHAPES)
def test_random_worlds(name: str, worlds: int) -> None:
    """Whatever clients want, whatever goes wrong and however messages travel, all is well.

    Clients that were told so hold their locks and exclude each other, nobody is stuck, grants last
    until they are given up, and nothing is left behind. When faults are over, everybody finishes.
    Few deadlocks are resolved that were gone already, and messages are bounded.
    """
    shape, superfluous = SHAPES[name]
    tally = Tally()
    first = SEED + 1_000_000 * list(SHAPES).index(name)
    failure = run_seeds(range(first, first + worlds), shape, tally=tally)
    assert failure is None, replay_command(failure, shape)
    print(tally)
    seen = tally.seen
    assert seen["deadlocks"] > worlds // 3
    assert seen["superfluous"] < superfluous * seen["deadlocks"], str(tally)
    assert tally.messages.total() < 200 * worlds, str(tally)


@pytest.mark.slow
def test_faults_happen() -> None:
    """Worlds with faults have crashes and cuts in them, and clients that die or lose their nodes."""
    tally = Tally()
    run_seeds(range(100), Shape(nodes=3, faults=True), tally=tally)
    for kind in ("crash", "restart", "cut", "mend", "connect", "notice", "die", "time out"):
        assert tally.events[kind] > 10, str(tally)
    for what in ("tokens", "losses"):
        assert tally.seen[what] > 10, str(tally)
    assert tally.messages["RaiseVersion"] > 10, str(tally)


@pytest.mark.parametrize("clients", [5, 10, pytest.param(20, marks=pytest.mark.explore)])
def test_many_transactions_over_few_locks(clients: int) -> None:
    """Clients that take 3 of as many locks, one by one in any order, again and again, all finish."""
    wanted = transactions(clients, clients, 200 if EXPLORE else 10, SEED + clients)
    world = wanted.world()
    run(world, random.Random(SEED + clients), wanted.policy, wanted.limit)
    print(f"{clients} clients: {len(world.carried_out)} deadlocks, {world.sent.total()} messages")
    assert world.carried_out
