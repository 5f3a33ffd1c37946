"""What agents are told in parts, and of cycles the beginning: nothing of the algorithm is lost by it.

Every message to an agent of another party is cut into parts of two records each here, where a node cuts
what is large; and reports have two edges of each cycle.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from locks.core import parts
from locks.core.messages import Knowledge, RequestStates, Resolved, Surrendered
from locks.model import AgentId
from locks_lab.explorer.small_worlds import ring
from locks_lab.schedules.plan import Shape
from locks_lab.schedules.runs import Tally, run_seeds
from locks_lab.schedules.schedule import calm, run
from locks_lab.worlds import world as worlds
from locks_lab.worlds.world import World
from tests.helpers import EXPLORE, SEED
from tests.model.test_random_worlds import replay_command

WORLDS = 2000 if EXPLORE else 75
CUT = (RequestStates, Knowledge, Resolved, Surrendered)

SHAPES = {
    "one node": Shape(nodes=1, faults=False),
    "no faults": Shape(nodes=3, faults=False, require=("all",)),
    "faults": Shape(nodes=3, faults=True),
    "what is alive": Shape(nodes=3, faults=True, require=("all_alive", "majority_alive")),
    "tokens": Shape(nodes=3, faults=True, require=("all", "majority"), tokens=0.8),
}


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Cut all messages to agents; counts those that were."""
    counted = [0]
    send = World._send

    def send_parts(world: World, sender: Any, receiver: Any, message: Any) -> None:
        pieces: Any = (message,)
        if isinstance(receiver, AgentId) and isinstance(message, CUT):
            if getattr(message, "records", ()):
                pieces = parts.in_parts(message, receiver)
            counted[0] += len(pieces) > 1
        for piece in pieces:
            send(world, sender, receiver, piece)

    monkeypatch.setattr(World, "_send", send_parts)
    monkeypatch.setattr(parts, "FEW", 0)
    monkeypatch.setattr(parts, "MOST_RECORDS", 2)
    return counted


@pytest.mark.parametrize(
    "worlds", [WORLDS // 3, pytest.param(WORLDS, marks=pytest.mark.explore)], ids=["some", "all"]
)
@pytest.mark.parametrize("name", SHAPES)
def test_messages_in_parts(name: str, worlds: int, cut: list[int]) -> None:
    """Parts do as well: clients exclude each other, nobody is stuck, all deadlocks are resolved."""
    first = SEED + 7_000_000 + 1_000_000 * list(SHAPES).index(name)
    tally = Tally()
    failure = run_seeds(range(first, first + worlds), SHAPES[name], tally=tally)
    assert failure is None, replay_command(failure, SHAPES[name])
    assert tally.seen["deadlocks"] > worlds // 4
    assert cut[0] > worlds // 4


@pytest.mark.parametrize("size", [3, 5, 8])
def test_reports_that_are_cut(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that are not told of a deadlock go on with what they know: a ring is resolved once."""
    monkeypatch.setattr(parts, "MOST_EDGES", 2)
    monkeypatch.setattr(worlds, "check_report", lambda report: None)  # it demands a whole cycle
    rng = random.Random(SEED + size)
    for _ in range(20):
        order = list(range(size))
        rng.shuffle(order)
        world = World(ring(tuple(order)))
        for _ in range(2):  # each takes its own lock, and then asks for the next one's
            for client in world.clients:
                world.step(client.number)
            calm(world, rng)
        run(world, rng)
        for report in world.carried_out:
            assert len(report.cycle) == 2, f"ring {order}"
        assert len(world.carried_out) == 1, f"ring {order}"
