"""A majority lock that is held stands on all its servers that are up, as soon as nothing is in flight.

That is checked in each world of the simulator (`check_standing` in `locks_lab.worlds.checks`). Here are worlds that are
made for it: crowds on one lock, and servers that are restarted one after the other, each back before the next.
"""

from __future__ import annotations

import random

import pytest

from locks_lab.schedules.schedule import POLICIES, calm, run
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import OURS, RULES, Rule
from locks_lab.worlds.world import Faults, World

NODES = ("n1", "n2", "n3")
CLIENTS = tuple(f"c{number}" for number in range(1, 9))
WRITE = "write a on n1,n2,n3 majority"
READ = "read a on n1,n2,n3 majority"


def rolling_restart(seed: int, rule: Rule = OURS) -> World:
    """Some want a; then all servers are restarted in turn, while nobody takes a step; then all go on."""
    rng = random.Random(seed)
    scripts = [rng.choice((WRITE, WRITE, READ)) for _ in range(rng.randint(2, 6))]
    rounds = rng.sample(NODES, 3)
    faults = Faults((), 0, len(rounds), NODES)
    world = World(scripts, NODES, faults, CLIENTS, rule, await_nodes=True)
    for number in rng.sample(range(1, len(scripts) + 1), len(scripts)):
        world.step(number)
    for node in rounds:
        calm(world, rng)
        world.do(("crash", node))
        calm(world, rng)
        world.do(("restart", node))
    calm(world, rng)
    assert world.losses == 0, seed
    assert any(client.told for client in world.clients)
    run(world, rng)
    return world


@pytest.mark.parametrize(
    "seeds", [range(15), pytest.param(range(15, 1000), marks=pytest.mark.explore)]
)
def test_a_rolling_restart_takes_nothing_from_anybody(seeds: range) -> None:
    """Whoever has the lock has it on all servers before the next one is restarted, and so it is not lost."""
    for seed in seeds:
        rolling_restart(seed)


@pytest.mark.parametrize("name", ["content", "stubborn"])
def test_a_rolling_restart_finds_wrong_rules(name: str) -> None:
    """Without requests for the other servers, or if nobody gives way, somebody has it on two of three."""

    def try_all() -> None:
        for seed in range(200):
            rolling_restart(seed, RULES[name])

    with pytest.raises(Violation, match=r"has (write|read) a on 2 of 3 servers"):
        try_all()


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 400), marks=pytest.mark.explore)]
)
def test_a_crowd_holds_what_it_holds_on_all_servers(seeds: range) -> None:
    """The same while clients come and go, in all kinds of schedules, with faults and without."""
    for seed in seeds:
        rng = random.Random(seed)
        scripts = [
            "; ".join(rng.choice((WRITE, READ, "write b", "again")) for _ in range(3))
            for _ in range(rng.randint(3, 8))
        ]
        faults = Faults((), 0, rng.choice((0, 2)), NODES)
        world = World(scripts, NODES, faults, CLIENTS, await_nodes=True)
        run(world, rng, rng.choice(POLICIES))
