"""Many random worlds of elections under random schedules. Seeds of failures are told."""

from __future__ import annotations

import os
import random

import pytest

from locks_leader.sim.node import Uses
from locks_leader.sim.plan import Grain, PolicyName, draw, node_names, policy_for
from locks_leader.sim.runs import replay, run_seeds, storm
from locks_leader.sim.schedule import run, settle
from locks_leader.sim.world import ElectionPlan

EXPLORE = os.environ.get("LOCKS_EXPLORE") == "1"
BASE = int(os.environ.get("LOCKS_SEED", "0"))
MORE = 20 if EXPLORE else 1
POLICIES: tuple[PolicyName, ...] = ("island", "majority", "quorum")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("grain", ["nodes", "mailboxes", "parties"])
def test_random_worlds(policy: PolicyName, grain: Grain) -> None:
    """Two to four nodes with candidates and workers; all goes wrong that can.

    Connections are cut, nodes crash, instances die and join, candidates surrender to others, and
    the leader is called, at any moment.
    """
    failure = run_seeds(range(BASE, BASE + 100 * MORE), policy=policy, grain=grain)
    assert failure is None, f"policy={policy!r}, grain={grain!r}: {failure}"


@pytest.mark.parametrize("policy", POLICIES)
def test_three_candidates_on_three_nodes(policy: PolicyName) -> None:
    """The same for one candidate on each of three nodes, with a cut and a crash in most worlds."""
    names = node_names(3)
    for seed in range(BASE, BASE + 100 * MORE):
        plan = ElectionPlan(
            names,
            policy=policy_for(policy, names),
            eager=frozenset(),
            cuts=3,
            crashes=1,
            uses=Uses(call=4),
        )
        try:
            run(plan.world(), random.Random(seed), fault_rate=0.05)
        except Exception as error:
            raise AssertionError(f"{policy}, seed {seed}: {error}") from error


@pytest.mark.parametrize("part", range(4))
def test_ten_nodes_with_random_splits_joins_and_checks(part: int) -> None:
    """The original's case that it does not pass itself: 200 seeds in all.

    Messages are bounded: so many for each thing that happens to the network, not storms.
    """
    first = BASE + part * 50 * MORE
    for seed in range(first, first + 50 * MORE):
        world = storm(seed)
        assert world.sent.total() < 10_000, f"storm(seed={seed}): {world.sent}"


def test_faults_happen() -> None:
    """Random worlds have all kinds of faults in them, elections and writes."""
    seen: set[str] = set()
    elections = written = 0
    for seed in range(50):
        rng = random.Random(seed)
        drawn = draw(seed, rng)
        schedule: list[tuple[str, object]] = []
        world = drawn.plan.world()
        run(world, rng, drawn.order, fault_rate=drawn.rate, schedule=schedule)
        seen |= {kind for kind, _ in schedule}
        elections += len(world.history.elections)
        written += len(world.history.written)
    kinds = {"deliver", "local", "settle", "take", "notice", "connect", "start", "call"}
    assert seen >= kinds | {"cut", "mend", "crash", "restart", "kill"}
    assert elections > 150
    assert written > 50


def test_a_seed_says_everything() -> None:
    """The same seed gives the same world and the same schedule."""
    ends = []
    for _ in range(2):
        rng = random.Random(17)
        drawn = draw(17, rng)
        schedule: list[tuple[str, object]] = []
        run(drawn.plan.world(), rng, drawn.order, fault_rate=drawn.rate, schedule=schedule)
        ends.append(schedule)
    assert ends[0] == ends[1]
    assert replay(drawn.plan, ends[0]).choices(free=False) == []


@pytest.mark.parametrize("policy", ["majority", "quorum"])
def test_while_nobody_can_win_nothing_is_sent(policy: PolicyName) -> None:
    """Five nodes that are all cut off from each other: nobody leads, and all is quiet at once."""
    names = node_names(5)
    world = ElectionPlan(names, policy=policy_for(policy, names)).world()
    settle(world)
    world.split(*([name] for name in names))
    before = world.sent.total()
    settle(world)
    assert [each.ref for each in world.instances if each.machine.role == "leader"] == []
    assert world.sent.total() - before <= len(names) ** 2
    assert world.choices(free=False) == []


@pytest.mark.parametrize("nodes", [2, 3, 5, 10])
def test_messages_to_agree_at_the_start(nodes: int) -> None:
    """How many messages it takes when all nodes start at once: some for each pair of nodes."""
    world = ElectionPlan(node_names(nodes)).world()
    settle(world)
    print(f"{nodes} nodes: {world.sent.total()} messages, {dict(world.sent)}")
    assert world.sent.total() < 10 * nodes**2
