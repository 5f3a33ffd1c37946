"""Many worlds of the original: rings with each order of requests, and random schedules."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from locks.model import Require
from locks_lab.original.explore import kind_of
from locks_lab.original.variants import ORIGINAL, Variant
from locks_lab.original.world import World
from locks_lab.schedules.schedule import Chooser, Policy, carry_on
from locks_lab.worlds.host import Violation

__all__ = ["Outcome", "asked", "contended", "held", "is_resolved", "outcome", "rings"]

MOST = 1000  # events of a run; with more it counts as endless


class Outcome(NamedTuple):
    """The result of a world.

    Attributes:
        kind: `"fine"`, `"stuck"`, `"exclusion"`, `"crash"`, or `"no end"`.
        messages: The number of messages.
        surrenders: The number of surrenders among them.
    """

    kind: str
    messages: int
    surrenders: int


def held(world: World) -> World:
    """Each client takes its first step, and all arrives."""
    for client in world.clients:
        world.step(client.number)
        world.deliver()
    return world


def asked(
    order: Sequence[int],
    variant: Variant = ORIGINAL,
    circle: Sequence[int] = (),
    nodes: Sequence[str] = ("n1",),
    aborts: bool = False,
    require: Require | None = None,
) -> World:
    """A ring: each client holds a lock, and they request the next client's lock, one after the other.

    All effects of one request have settled before the next request.

    Args:
        order: The order of the requests: clients by number from 1; larger numbers are younger.
        variant: The rules.
        circle: The ring: each client wants the lock of the next one. By default in order of their
            numbers.
        nodes: The nodes of the locks, in turn.
        aborts: Whether agents abort instead of surrendering a lock that was granted.
        require: On how many of all nodes they need the next client's lock; None for the one node where it is held.
    """
    size = len(order)
    place = {number: n for n, number in enumerate(circle or sorted(order))}
    locks = [f"write {n} on {nodes[n % len(nodes)]}" for n in range(size)]
    wanted = (
        [f"write {n} on {','.join(nodes)} {require}" for n in range(size)] if require else locks
    )
    scripts = [f"{locks[place[n]]}; {wanted[(place[n] + 1) % size]}" for n in sorted(order)]
    world = held(World(scripts, nodes, variant=variant, abort_on_deadlock=aborts))
    world.sent.clear()
    for number in order:
        world.step(number)
        world.deliver()
    return world


def is_resolved(world: World) -> bool:
    """Let all clients continue in turn; return whether they finish."""
    while ready := [client.number for client in world.clients if client.ready]:
        world.step(*ready)
        world.deliver()
    return all(client.finished for client in world.clients)


def rings(size: int, variant: Variant = ORIGINAL) -> Iterator[Outcome]:
    """The results of all rings of a size, in all orders; messages count until all have requested."""
    for others in permutations(range(2, size + 1)):
        for order in permutations(range(1, size + 1)):
            world = asked(order, variant, (1, *others))
            counts = world.sent.total(), world.surrenders
            yield Outcome("fine" if is_resolved(world) else "stuck", *counts)


def contended(
    seed: int, variant: Variant = ORIGINAL, agents: int = 5, locks: int = 4, delays: bool = True
) -> World:
    """A world in which each client write-locks some of the same locks, in some order."""
    rng = random.Random(seed)
    names = "abcdefgh"[:locks]
    scripts = [
        "; ".join(f"write {name}" for name in rng.sample(names, rng.randint(2, locks)))
        for _ in range(agents)
    ]
    return World(scripts, variant=variant, delays=delays)


def outcome(world: World, seed: int, policy: Policy = "any", limit: int = MOST) -> Outcome:
    """Run a world under a random schedule.

    Args:
        world: The world.
        seed: Of the schedule.
        policy: How it is chosen.
        limit: The most events.
    """
    kind = "fine"
    try:
        carry_on(world, Chooser(random.Random(seed), policy), limit)
    except Violation as violation:
        kind = "no end" if str(violation).startswith("no end") else kind_of(violation)
    return Outcome(kind, world.sent.total(), world.surrenders)
