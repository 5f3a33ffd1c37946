"""Splits and heals of five processes: how soon all agree again, and with how many messages.

`python -m tests.leader.splits` does each kind of split twenty times, and prints how they went.
The time is from the moment when the last link is up to the last change of who leads.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tests.cluster.harness import World
from tests.leader.harness import (
    Cluster,
    Member,
    everybody,
    frames,
    have,
    settled_after,
    store,
    the_leader,
    until_quiet,
)

__all__ = ["KINDS", "Split", "split_and_heal"]

KINDS = {
    "1 and 4, the leader in the smaller part": (1, True),
    "1 and 4, the leader in the larger part": (1, False),
    "2 and 3, the leader in the smaller part": (2, True),
    "2 and 3, the leader in the larger part": (2, False),
}
TARGET = 0.1  # seconds from the last link to agreement


class Split(NamedTuple):
    """How one split went.

    Attributes:
        apart: Messages sent by all nodes from the split until both parts had settled.
        healing: Messages sent from the heal until all had settled.
        seconds: From the last link to agreement.
    """

    apart: int
    healing: int
    seconds: float


def choose(
    members: Sequence[Member], size: int, leads: bool, chance: random.Random
) -> tuple[list[Member], list[Member]]:
    """Parts of which the first has a size, and the leader or not."""
    leader, others = the_leader(members)
    chance.shuffle(others)
    if leads:
        return [leader, *others[: size - 1]], others[size - 1 :]
    return others[:size], [leader, *others[size:]]


def split_and_heal(
    cluster: Cluster, members: Sequence[Member], kind: str, chance: random.Random, number: int
) -> Split:
    """Part five members that have settled, write on both sides, heal; both writes are everywhere.

    Args:
        cluster: The processes.
        members: Those that are used; each has an instance of one election.
        kind: One of `KINDS`.
        chance: What chooses who is in which part.
        number: What distinguishes the writes from others.
    """
    one, other = choose(members, *KINDS[kind], chance)
    before = everybody(members[:1], "content")[0]
    until_quiet(members)
    first = frames(members)
    cluster.part(one, other)
    for part in (one, other):
        the_leader(part)
    until_quiet(members)
    second = frames(members)
    a, b = f"a{number}", f"b{number}"
    store(chance.choice(one), a)
    store(chance.choice(other), b)
    have(one, **before, **{a: 1})
    have(other, **before, **{b: 1})
    third = frames(members)
    cluster.join(one, other)
    the_leader(members)
    have(members, **before, **{a: 1, b: 1})
    until_quiet(members)
    seconds = settled_after(members, max(everybody(members, "up")))
    return Split(second - first, frames(members) - third, seconds)


def main() -> None:
    """Measure."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    print(f"seed {seed}; {times} splits of each kind; milliseconds to agreement; messages")
    chance = random.Random(seed)
    with World() as world:
        cluster = Cluster(world)
        for kind in KINDS:
            members = cluster.meet(5)
            cluster.stand(members)
            splits = [split_and_heal(cluster, members, kind, chance, n) for n in range(times)]
            took = sorted(1000 * split.seconds for split in splits)
            print(
                f"{kind}: {took[0]:.1f} to {took[-1]:.1f}, median {statistics.median(took):.1f}; "
                f"over {TARGET * 1000:.0f}: {sum(each > TARGET * 1000 for each in took)}; "
                f"apart at most {max(split.apart for split in splits)}, "
                f"healing {min(split.healing for split in splits)} to "
                f"{max(split.healing for split in splits)} messages"
            )


if __name__ == "__main__":
    main()
