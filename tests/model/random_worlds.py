"""Random worlds by seed: what clients want, how locks are spread, who dies, and the schedule.

A seed says everything. To see what happened in one:

    python -c "from tests.model.random_worlds import replay; replay(17)"
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from locks.model import LockId
from tests.model.world import Fate, Policy, Step, Violation, World

FLAT: tuple[LockId, ...] = tuple((letter,) for letter in "abcdef")
TREE: tuple[LockId, ...] = (
    *(("a",), ("a", 1), ("a", 2), ("a", 1, "x"), ("a", 2, "y")),
    *(("b",), ("b", 1), ("c",)),
)
POLICIES: tuple[Policy, ...] = ("any", "any", "skewed", "oldest", "quiet")


class Plan(NamedTuple):
    """A world before it runs.

    Attributes:
        scripts: What the clients do.
        nodes: The nodes.
        mortal: Who may die.
        abort: Whether agents abort rather than surrender what their clients have.
        policy: How the schedule is chosen.
        partial: Whether some locks are needed on some of their nodes only.
    """

    scripts: list[list[Step]]
    nodes: tuple[str, ...]
    mortal: dict[int, Fate]
    abort: bool
    policy: Policy
    partial: bool

    def world(self, trace: bool = False) -> World:
        """The world, ready to run."""
        return World(
            self.scripts, self.nodes, self.mortal, trace=trace, abort_on_deadlock=self.abort
        )


class Tally(NamedTuple):
    """What was seen in many worlds."""

    worlds: Counter[str]
    messages: Counter[str]

    def __str__(self) -> str:
        w = self.worlds
        return (
            f"{w['worlds']} worlds, {w['deadlocks']} deadlocks resolved ({w['aborts']} aborts), "
            f"{w['superfluous']} superfluous ({rate(w['superfluous'], w['deadlocks'])}), "
            f"{w['outdated']} with an outdated edge; by schedule: "
            + ", ".join(
                f"{p} {rate(w['superfluous ' + p], w['deadlocks ' + p])}"
                for p in dict.fromkeys(POLICIES)
            )
            + f"; messages {dict(self.messages)}"
        )


def rate(part: int, whole: int) -> str:
    """A share in percent."""
    return f"{100 * part / whole:.2f} %" if whole else "-"


def plan(seed: int) -> Plan:
    """The world of a seed."""
    rng = random.Random(seed)
    ids = list(TREE if rng.random() < 0.55 else FLAT[: rng.randint(2, 6)])
    nodes = ("n1", "n2", "n3")[: rng.choice((1, 1, 1, 2, 3))]
    reads = rng.choice((0, 0.3, 0.6))
    batches = rng.choice((0, 0.2, 0.5))
    tries = rng.choice((0, 0, 0.3))
    partial = len(nodes) > 1 and rng.random() < 0.4
    where = {lock_id: _where(rng, nodes, partial) for lock_id in ids}
    scripts = [_script(rng, ids, where, reads, batches, tries) for _ in range(rng.randint(2, 8))]
    mortal: dict[int, Fate] = {}
    if rng.random() < 0.25:
        for number in rng.sample(range(1, len(scripts) + 1), rng.randint(1, 2)):
            mortal[number] = rng.choice(("ends", "crashes"))
    return Plan(scripts, nodes, mortal, rng.random() < 0.4, rng.choice(POLICIES), partial)


def _where(rng: random.Random, nodes: tuple[str, ...], partial: bool) -> tuple[Any, ...]:
    """On which nodes a lock id lives, and how many of them are needed."""
    chosen = tuple(rng.sample(nodes, rng.randint(1, len(nodes))))
    return (chosen, rng.choice(("all", "any", "majority")) if partial else "all")


def _script(
    rng: random.Random,
    ids: list[LockId],
    where: dict[LockId, tuple[Any, ...]],
    reads: float,
    batches: float,
    tries: float,
) -> list[Step]:
    script: list[Step] = []
    asked: list[LockId] = []
    for _ in range(rng.randint(1, 5)):
        luck = rng.random()
        if luck < 0.12 and asked:
            script.append(("unlock", asked.pop(rng.randrange(len(asked)))))
        elif luck < 0.15 and asked:
            script.append(("surrender", rng.choice(asked)))
        elif luck < 0.18 and asked:
            script.append(("again",))
            asked.clear()
        else:
            lock_id = rng.choice(ids)
            kind = "ask" if rng.random() < batches else "try" if rng.random() < tries else "lock"
            mode = "read" if rng.random() < reads else "write"
            script.append((kind, lock_id, mode, *where[lock_id]))
            asked.append(lock_id)
    if rng.random() < 0.7:
        script.append(("await",))
    return script


def ordered(clients: int, locks: int, transactions: int, seed: int) -> Plan:
    """Clients that each take `3` of `locks` locks one by one, in any order, again and again."""
    rng = random.Random(seed)
    scripts = []
    for _ in range(clients):
        script: list[Step] = []
        for _ in range(transactions):
            script += [("lock", (f"l{i}",), "write") for i in rng.sample(range(locks), 3)]
            script.append(("again",))
        scripts.append(script[:-1])
    return Plan(scripts, ("n1",), {}, False, rng.choice(POLICIES), False)


def run(seed: int, plan: Plan, tally: Tally | None = None) -> World:
    """Run one world; a `Violation` says how to replay it."""
    world = plan.world()
    limit = 100_000 + 60 * sum(map(len, plan.scripts))
    try:
        world.run(random.Random(seed), plan.policy, limit)
    except Exception as error:
        raise Violation(
            f"seed {seed}: {error!r}\nreplay with: python -c "
            f'"from tests.model.random_worlds import replay; replay({seed})"'
        ) from error
    if tally is not None:
        tally.messages.update(world.sent)
        tally.worlds.update(
            {
                "worlds": 1,
                "deadlocks": len(world.carried_out),
                "aborts": world.aborts,
                "superfluous": len(world.superfluous),
                "outdated": len(world.outdated),
                f"deadlocks {plan.policy}": len(world.carried_out),
                f"superfluous {plan.policy}": len(world.superfluous),
            }
        )
    return world


def run_many(seeds: Iterable[int]) -> Tally:
    """Run the worlds of many seeds."""
    tally = Tally(Counter(), Counter())
    for seed in seeds:
        run(seed, plan(seed), tally)
    return tally


def replay(seed: int, last: int = 80, of: Plan | None = None) -> World:
    """Run a seed's world again and print its end."""
    chosen = of or plan(seed)
    world = chosen.world(trace=True)
    print(chosen._replace(scripts=[]))
    for number, script in enumerate(chosen.scripts, 1):
        print(f"client {number}:", *script)
    try:
        world.run(random.Random(seed), chosen.policy)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    else:
        failure = "no failure"
    assert world.lines is not None
    print(*world.lines[-last:], failure, sep="\n")
    return world
