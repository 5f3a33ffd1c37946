"""What a rule costs, beside our rules and a central detector: `python -m examples.exercises.scores`.

All messages are counted, from the first request until all clients are done, in random orders. The central detector is
counted in the worlds of our rules: without the messages that serve deadlocks there, with a message to the detector for
each wait that begins or ends, and one from it for each deadlock.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from statistics import mean
from typing import NamedTuple

from locks.core.messages import Inquire, Knowledge, RequestStates, Resolved
from locks_lab.explorer.explore import explore
from locks_lab.explorer.small_worlds import ring, start
from locks_lab.schedules.plan import Plan
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import OURS, RULES, Rule
from locks_lab.worlds.script import Script, parse_script
from locks_lab.worlds.world import World

__all__ = ["Score", "main", "score", "score_central", "table"]

SIZES = (2, 3, 4, 6)  # of rings
ORDERS = 20  # random ones of each world
WORLDS = 20  # with five clients, each of which wants three of four locks
CENTRAL = "central"


class Score(NamedTuple):
    """The cost of a rule.

    Attributes:
        name: Its name.
        wrong: What goes wrong in a small world; empty if nothing does.
        messages: The mean number of messages of a ring of each size, and of a random world.
    """

    name: str
    wrong: str
    messages: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """The sum of its columns."""
        return sum(self.messages)


def score(rule: Rule) -> Score:
    """Check a rule in all orders of a ring of two, and in random ones of larger worlds; count its messages."""
    try:
        explore(start(Plan(ring((0, 1)), rule=rule), held=True))
        return Score(rule.name, "", tuple(_columns(rule, central=False)))
    except Violation as violation:
        return Score(rule.name, str(violation).partition("\n")[0])


def score_central() -> Score:
    """What a central detector would cost."""
    return Score(CENTRAL, "", tuple(_columns(OURS, central=True)))


def _columns(rule: Rule, central: bool) -> Iterator[float]:
    chance = random.Random(0)
    for size in SIZES:
        yield mean(_played(rule, ring(range(size)), chance, central) for _ in range(ORDERS))
    worlds = [tuple(_script(chance) for _ in range(5)) for _ in range(WORLDS)]
    yield mean(_played(rule, world, chance, central) for world in worlds)


def _script(chance: random.Random) -> Script:
    return parse_script("; ".join(f"write {each}" for each in chance.sample("abcd", 3)))


def _played(rule: Rule, scripts: tuple[Script, ...], chance: random.Random, central: bool) -> int:
    """The messages of a world in a random order."""
    order = random.Random(chance.random())
    world = Plan(scripts, rule=rule).world(trace=True)
    edges: set[object] = set()
    changes = 0
    while choices := world.choices(False):
        world.do(order.choice(choices))
        if central:
            now: set[object] = {(edge.waiter.key, edge.holder.key) for edge in world.edges()}
            changes += len(now ^ edges)
            edges = now
    world.check_end()
    if not central:
        return world.sent.total()
    return _needed(world) + changes + len(world.carried_out)


def _needed(world: World) -> int:
    """The messages that do not only serve to find and resolve deadlocks."""
    return sum(
        not isinstance(message, Knowledge | Resolved | Inquire)
        and not (
            isinstance(message, RequestStates)
            and not any(record.agent == receiver for record in message.records)
        )
        for event in world.events or ()
        for _, receiver, message in event.sent
    )


def table(scores: Iterable[Score]) -> str:
    """The scores as a table, the cheapest first; what is wrong has no figures."""
    heads = ("rule", *(f"ring of {size}" for size in SIZES), "random", "")
    lines = ["{:<10}{:>11}{:>11}{:>11}{:>11}{:>9}  {}".format(*heads)]
    for each in sorted(scores, key=lambda each: (bool(each.wrong), each.total)):
        cells = [f"{number:.1f}" for number in each.messages] or [""] * (len(SIZES) + 1)
        lines.append(
            "{:<10}{:>11}{:>11}{:>11}{:>11}{:>9}  {}".format(each.name, *cells, each.wrong)
        )
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    """Print the table of some rules of the simulator."""
    names = ("ours", "larger", "everyone", "tell-all", "few")
    print(table([*(score(RULES[name]) for name in names), score_central()]))
    return 0


if __name__ == "__main__":
    main()
