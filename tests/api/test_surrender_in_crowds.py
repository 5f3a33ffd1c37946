"""What is surrendered while others wait for it is requested again when all else is granted."""

from __future__ import annotations

import pytest

import locks
from locks.testing import Simulation
from tests.api.clients import Run
from tests.helpers import eventually

A, B = ("a",), ("b",)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("nodes", [1, 3])
def test_surrenders_grow_with_the_crowd_only(seed: int, nodes: int) -> None:
    """In opposite order; they grew with its square when each stood last at once, in the way of all who came after."""
    clients = 40 if nodes == 1 else 16
    simulation = Simulation(seed, nodes=nodes, strategy="pct")

    def client(number: int) -> None:
        with locks.transaction(on_deadlock="surrender") as tx:
            for lock_id in ((A, B), (B, A))[number % 2]:
                tx.lock(lock_id)
                simulation.sleep(0.005)
            if number % 4 == 0:
                locks.original.lock_nowait(tx.agent, ("c",))

    for number in range(clients):
        simulation.client(client, number)
    simulation.run(limit=10**7)
    surrenders = len(simulation.deadlocks)
    assert 0 < surrenders <= 6 * clients
    assert simulation.time < 0.005 * clients * 2.5


def test_it_is_requested_again_when_the_rest_is_granted(run: Run) -> None:
    """Meanwhile it stands in nobody's way; then it is held again, and the transaction says what was surrendered."""
    older, younger, third = run.begin(3)
    older.lock(A).get()
    younger.lock(B).get()
    waits = younger.lock(A)
    run.until_waiting(younger, A)
    others = third.lock(B)
    run.until_waiting(third, B)
    answer = older.lock(B)
    others.get()  # the younger one has surrendered B to those who wait for it
    eventually(lambda: [each.agent for each in locks.queue(B).waiting] == [older.agent.id])
    third.end()
    answer.get()
    assert not locks.queue(B).waiting
    older.end()
    result = waits.get()
    assert [(each.action, each.lock_id) for each in result.deadlocks] == [("surrendered", B)]
    assert {each.lock_id for each in younger.agent.lock_info() if each.held} == {A, B}
    locks.original.ensure_held(younger.agent, B)
    younger.end()
