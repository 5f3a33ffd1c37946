"""Rings of the original: each client has a lock, and they ask for the next one's in some order."""

from __future__ import annotations

from collections.abc import Sequence

from locks.sim.original.variants import ORIGINAL, Variant
from locks.sim.original.world import World


def ring(order: Sequence[int], variant: Variant = ORIGINAL) -> World:
    """A ring; each asks, in this order (from 0), when all has settled that came of the one before."""
    size = len(order)
    scripts = [f"write {n}; write {(n + 1) % size}" for n in range(size)]
    world = World(scripts, variant=variant)
    for n in (*range(size), *order):
        world.step(n + 1)
        world.deliver()
    return world


def is_resolved(order: Sequence[int], variant: Variant = ORIGINAL) -> bool:
    """Whether all come to an end."""
    world = ring(order, variant)
    while ready := [client.number for client in world.clients if client.ready]:
        world.step(*ready)
        world.deliver()
    return all(client.finished for client in world.clients)
