"""Running the worlds of many seeds."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from locks_lab.leader.plan import GRAINS, Drawn, PolicyName, draw, node_names, policy_for
from locks_lab.leader.schedule import ORDERS, chooser, run, settle
from locks_lab.leader.world import ElectionPlan, ElectionWorld
from locks_lab.schedules.schedule import AnyChoice as Choice

__all__ = ["Failure", "replay", "run_seed", "run_seeds", "storm"]


class Failure(NamedTuple):
    """A failed run.

    Attributes:
        seed: Its seed.
        drawn: Its world.
        schedule: Its events up to the failure.
        error: The failure.
    """

    seed: int
    drawn: Drawn
    schedule: list[Choice]
    error: Exception

    def __str__(self) -> str:
        return f"seed {self.seed}, after {len(self.schedule)} events: {self.error}\n{self.drawn}"


def run_seed(seed: int, **shape: Any) -> Failure | ElectionWorld:
    """Run the world of a seed.

    Args:
        seed: The seed.
        **shape: As for `draw`.

    Returns:
        The world at its end, or the failure.
    """
    rng = random.Random(seed)
    drawn = draw(seed, rng, **shape)
    schedule: list[Choice] = []
    try:
        world = drawn.plan.world()
        run(world, rng, drawn.order, fault_rate=drawn.rate, schedule=schedule)
    except Exception as error:
        return Failure(seed, drawn, schedule, error)
    return world


def run_seeds(seeds: Iterable[int], **shape: Any) -> Failure | None:
    """Run the worlds of many seeds up to the first failure, and return the failure."""
    for seed in seeds:
        found = run_seed(seed, **shape)
        if isinstance(found, Failure):
            return found
    return None


def replay(plan: ElectionPlan, schedule: Iterable[Choice]) -> ElectionWorld:
    """Run a schedule in a world; if all is quiet afterwards, check that, too.

    Raises:
        Violation: A check failed.
    """
    world = plan.world()
    for choice in schedule:
        world.do(choice)
    if not world.choices(free=False):
        world.check_quiet()
    return world


def storm(
    seed: int,
    nodes: int = 10,
    rounds: int = 8,
    policy: PolicyName | None = None,
    rule: str = "ours",
    losses: float = 0,
) -> ElectionWorld:
    """Random splits, joins and checks: a test of the original that the original itself does not pass.

    At the beginning, half of the nodes have a candidate. The others get a candidate, or a worker,
    later. In each round the network is split anew or healed, or an instance joins or is killed, and
    a user writes. On average, half of the rounds begin before all is quiet. When all is quiet,
    everything is checked. In the end the network is healed.

    Args:
        seed: The seed.
        nodes: The number of nodes.
        rounds: The number of rounds.
        policy: The election's policy; drawn by default.
        rule: The machines of the world.
        losses: The probability that before an event a connection is lost, with all messages on it.
            It can be made again at once. With losses, whoever was killed comes back later, and
            after each heal the next round waits until all is quiet.

    Raises:
        Violation: A check failed; the message names the seed.
    """
    rng = random.Random(seed)
    names = node_names(nodes)
    drawn = policy or rng.choice(("island", "majority", "quorum"))
    plan = ElectionPlan(
        names,
        instances=((),),
        policy=policy_for(drawn, names),  # type: ignore[arg-type]
        rule=rule,
        eager=GRAINS[rng.choice(("nodes", "mailboxes"))],
        downs_first=rng.random() < 0.5,
    )
    choose = chooser(rng, rng.choice(ORDERS))
    world = plan.world()
    waiting = list(names)
    rng.shuffle(waiting)
    try:
        for name in waiting[: nodes // 2]:
            world.start(name)
        waiting = waiting[nodes // 2 :]
        for _ in range(rounds):
            healed = _shake(world, rng, waiting, bool(losses)) and bool(losses)
            if world.instances:
                world.call(rng.choice(world.instances).ref)
            if not healed and rng.random() < 0.5:
                settle(world, choose)
            else:
                for _ in range(rng.randrange(200)):
                    if losses and rng.random() < losses:
                        _lose(world, rng)
                    choices = world.choices(free=False)
                    if choices:
                        world.do(choose(world, choices))
            if healed:
                settle(world, choose)
        world.heal()
        settle(world, choose)
    except Exception as error:
        raise type(error)(f"storm(seed={seed}): {error}") from error
    return world


def _shake(world: ElectionWorld, rng: random.Random, waiting: list[str], again: bool) -> bool:
    """Change the network at random, or let an instance join or be killed; returns whether all are connected."""
    names = list(world.nodes)
    what = rng.random()
    if what < 0.4:
        rng.shuffle(names)
        cut = rng.randrange(1, len(names))
        world.heal()
        world.split(names[:cut])
    elif what < 0.6:
        world.heal()
    elif what < 0.9 and waiting:
        world.start(waiting.pop(), rng.choice(("candidate", "candidate", "worker")))
    elif len(world.instances) > 1:
        killed = rng.choice(world.instances).ref
        world.kill(killed)
        if again:
            waiting.insert(0, killed.node)
    return not world.network.apart


def _lose(world: ElectionWorld, rng: random.Random) -> None:
    """A connection is lost, and can be made again."""
    up = [(a, b) for (a, b), seen in world.network.seen.items() if seen == "up" and a < b]
    if up:
        pair = rng.choice(up)
        world.lossless = False
        world.network.cut(pair)
        world.network.mend(pair)
