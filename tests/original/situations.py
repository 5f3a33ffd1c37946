"""Rings of the original's clients that abort, die, or have their locks on two nodes: what becomes of each client.

`ends.txt` has what became of real ones. `test_agents.py` compares the model with it; where there is an Erlang,
`tests/erlang/test_model_of_the_original.py` looks at real ones again, and `python -m tests.original.situations` prints what the model foresees.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from locks.model import REQUIREMENTS, Require
from locks_lab.original.runs import asked
from locks_lab.original.world import Choice, World
from locks_lab.worlds.host import Violation

RECORDED = Path(__file__).with_name("ends.txt")
NODES = ("n1", "n2", "n3")


class Situation(NamedTuple):
    """A ring, whose clients request the next one's lock one after the other.

    Attributes:
        kind: What is special; perhaps a requirement, with which the next one's lock is requested on all nodes.
        circle: The clients by age, as they stand in the ring.
        order: The order in which they request.
        dies: The client that dies afterwards; 0 if none does.
    """

    kind: str
    circle: tuple[int, ...]
    order: tuple[int, ...]
    dies: int = 0

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes of the locks, in turn."""
        if self.require:
            return NODES
        return NODES[:2] if "nodes" in self.kind else NODES[:1]

    @property
    def require(self) -> Require | None:
        """On how many of all nodes a client needs the next one's lock; None if it requests it only where it is held."""
        return next((each for each in REQUIREMENTS if each == self.kind), None)

    @property
    def aborts(self) -> bool:
        """Whether agents abort instead of surrendering what their clients were told that they hold."""
        return "abort" in self.kind

    def __str__(self) -> str:
        ring, order = ("".join(map(str, each)) for each in (self.circle, self.order))
        return f"{self.kind} {ring} {order} {self.dies}"

    def foreseen(self) -> str:
        """What becomes of each client, by the model: `f`inished, `a`borted, `d`ead, or `s`tuck.

        A `!` says that two were told that they hold the same lock.
        """
        world = asked(
            self.order,
            circle=self.circle,
            nodes=self.nodes,
            aborts=self.aborts,
            require=self.require,
        )
        broken = bool(self.dies) and do(world, ("die", self.dies))
        while ready := [c.number for c in world.clients if c.ready and not c.generation]:
            for number in ready:
                broken |= do(world, ("step", number))
        letters = (
            "a" if c.generation else "d" if c.died else "f" if c.finished else "s"
            for c in world.clients
        )
        return "".join(letters) + "!" * broken


def do(world: World, choice: Choice) -> bool:
    """Something happens, and all its consequences; returns whether exclusion was broken. All goes on then, as in Erlang."""
    broken = False
    act: Callable[[], None] = partial(world.do, choice)
    while True:
        try:
            act()
            world.deliver()
            return broken
        except Violation:
            broken, act = True, world.deliver


def situations() -> Iterator[Situation]:
    """All of two and three clients, in each order."""
    for circle in ((1, 2), (1, 2, 3), (1, 3, 2)):
        for order in permutations(sorted(circle)):
            for kind in ("abort", "nodes", "abort nodes", *REQUIREMENTS):
                yield Situation(kind, circle, order)
            for dies in circle:
                yield Situation("death", circle, order, dies)


def recorded() -> dict[str, str]:
    """What became of the clients of each."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


if __name__ == "__main__":
    for each in situations():
        sys.stdout.write(f"{each} {each.foreseen()}\n")
