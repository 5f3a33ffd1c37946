"""Random worlds by seed: the clients' scripts, the nodes of locks, the faults, and the schedule.

A seed and a `Shape` determine everything. Values that the shape leaves open are drawn from the
seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from locks.lock_ids import counted
from locks.model import LockId, Mode, Require
from locks_lab.schedules.schedule import POLICIES, Policy
from locks_lab.worlds.client import Fate
from locks_lab.worlds.network import Pair
from locks_lab.worlds.rules import OURS, Rule
from locks_lab.worlds.script import Script, Step
from locks_lab.worlds.world import Faults, World

__all__ = ["Plan", "Shape", "lock_name", "node_names", "plan", "transactions"]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PARTIAL: tuple[Require, ...] = ("any", "majority")


class Shape(NamedTuple):
    """The parameters of random worlds; `None` leaves a value to the seed.

    Attributes:
        agents: The number of clients.
        locks: The number of lock ids; with `depth`, of trees of lock ids.
        nodes: The number of nodes.
        reads: The share of read locks.
        depth: The largest number of elements of a lock id.
        require: How many of the nodes are needed; several requirements are mixed.
        steps: The number of steps of a client.
        faults: Whether nodes crash and restart, and connections are cut and mended. Clients may die
            in either case, unless it is `False`.
        abort: Whether agents abort instead of surrendering locks that their clients hold.
        tokens: The share of locks whose fencing tokens clients request.
        policy: How the schedule is chosen.
        spokes: Whether each client lives on its own node, which is connected only with lock
            servers, and perhaps not with all of them.
        units: The share of counted locks, with one to three units.
    """

    agents: int | None = None
    locks: int | None = None
    nodes: int | None = None
    reads: float | None = None
    depth: int | None = None
    require: tuple[Require, ...] | None = None
    steps: int | None = None
    faults: bool | None = None
    abort: bool | None = None
    tokens: float | None = None
    policy: Policy | None = None
    spokes: bool | None = None
    units: float = 0


ANY = Shape()


class Plan(NamedTuple):
    """A world before it runs.

    Attributes:
        scripts: The scripts of the clients.
        nodes: The nodes.
        homes: The nodes of the clients.
        faults: The possible faults.
        options: Options of the agents.
        policy: How the schedule is chosen.
        rule: The machines of the world.
        unlinked: Pairs of nodes that are never connected.
    """

    scripts: tuple[Script, ...]
    nodes: tuple[str, ...] = ("n1",)
    homes: tuple[str, ...] = ()
    faults: Faults = Faults()
    options: tuple[str, ...] = ()
    policy: Policy = "any"
    rule: Rule = OURS
    unlinked: tuple[Pair, ...] = ()

    def world(self, trace: bool = False) -> World:
        """The world, ready to run."""
        flags: dict[str, Any] = dict.fromkeys(self.options, True)
        return World(
            self.scripts,
            self.nodes,
            self.faults,
            self.homes,
            self.rule,
            trace,
            self.unlinked,
            **flags,
        )

    @property
    def limit(self) -> int:
        """More events than it can take."""
        return 100_000 + 60 * sum(map(len, self.scripts))


def plan(seed: int, shape: Shape = ANY, rule: Rule = OURS) -> Plan:
    """The world of a seed."""
    rng = random.Random(seed)
    ids = _ids(rng, shape)
    nodes = node_names(_or(shape.nodes, rng.choice((1, 1, 1, 2, 3))))
    reads = _or(shape.reads, rng.choice((0, 0.3, 0.6)))
    batches = rng.choice((0, 0.2, 0.5))
    tries = rng.choice((0, 0, 0.3))
    partial = len(nodes) > 1 and rng.random() < 0.4
    require = shape.require or (("all", *PARTIAL) if partial else ("all",))
    where = {lock_id: _where(rng, nodes, require) for lock_id in ids}
    agents = _or(shape.agents, rng.randint(2, 8))
    scripts = tuple(
        _script(rng, ids, where, reads, batches, tries, shape.steps) for _ in range(agents)
    )
    scripts = _with_units(_with_tokens(scripts, seed, shape), seed, shape)
    mortal: dict[int, Fate] = {}
    if rng.random() < 0.25 and shape.faults is not False:
        for number in rng.sample(range(1, agents + 1), min(agents, rng.randint(1, 2))):
            mortal[number] = rng.choice(("ends", "crashes"))
    options = ["abort_on_deadlock"] if _or(shape.abort, rng.random() < 0.4) else []
    drawn = rng.choice(POLICIES)
    policy = drawn if shape.policy is None else shape.policy
    faults = Faults(tuple(mortal.items()))
    homes: tuple[str, ...] = ()
    if len(nodes) > 1 and rng.random() < 0.7:
        homes = tuple(rng.choice(nodes) for _ in range(agents))
    breaks = rng.random() < 0.5
    spokes, unlinked = _spokes(seed, shape, scripts, nodes)
    if (len(nodes) > 1 or spokes) and _or(shape.faults, breaks):
        fragile = (*nodes, *spokes)
        faults = Faults(tuple(mortal.items()), rng.randint(0, 3), rng.randint(0, 2), fragile)
        if rng.random() < 0.7:
            options.append("await_nodes")
    homes = spokes or homes
    return Plan(scripts, nodes, homes, faults, tuple(options), policy, rule, unlinked)


def client_names(count: int) -> tuple[str, ...]:
    """Names of client nodes."""
    return tuple(f"c{number}" for number in range(1, count + 1))


def _spokes(
    seed: int, shape: Shape, scripts: tuple[Script, ...], nodes: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[Pair, ...]]:
    """A node for each client, if it has one, and which nodes these don't reach, for they ask nothing there."""
    rng = random.Random(f"spokes {seed}")
    if not _or(shape.spokes, shape.nodes is None and rng.random() < 0.15):
        return (), ()
    homes = client_names(len(scripts))
    unlinked = [
        (home, node)
        for home, steps in zip(homes, scripts, strict=True)
        for node in nodes
        if rng.random() < 0.5 and not any(node in (step.nodes or nodes[:1]) for step in steps)
    ]
    return homes, tuple(unlinked)


def transactions(clients: int, locks: int, count: int, seed: int) -> Plan:
    """Clients that each take 3 of `locks` locks one by one, in any order, again and again."""
    rng = random.Random(seed)
    scripts = []
    for _ in range(clients):
        steps: list[Step] = []
        for _ in range(count):
            steps += [Step("lock", (f"l{i}",)) for i in rng.sample(range(locks), 3)]
            steps.append(Step("again"))
        scripts.append(tuple(steps[:-1]))
    return Plan(tuple(scripts), policy=rng.choice(POLICIES))


def _or(given: Any, drawn: Any) -> Any:
    return drawn if given is None else given


def node_names(count: int) -> tuple[str, ...]:
    """The names of a number of nodes."""
    return tuple(f"n{i}" for i in range(1, count + 1))


def lock_name(number: int) -> str:
    """The name of a lock, counted from 0: a letter, with a number from the 27th lock on."""
    return LETTERS[number % 26] + (str(number // 26) if number >= 26 else "")


def _with_tokens(scripts: tuple[Script, ...], seed: int, shape: Shape) -> tuple[Script, ...]:
    """The scripts with requests for fencing tokens, which are drawn separately from the world."""
    rng = random.Random(f"tokens {seed}")
    share = _or(shape.tokens, rng.choice((0, 0.3, 0.8)))
    return tuple(
        tuple(
            each
            for step in steps
            for each in (
                (step, Step("token", step.lock_id))
                if step.kind in ("lock", "try") and rng.random() < share
                else (step,)
            )
        )
        for steps in scripts
    )


def _with_units(scripts: tuple[Script, ...], seed: int, shape: Shape) -> tuple[Script, ...]:
    """The scripts with some counted locks, which are drawn separately from the world."""
    rng = random.Random(f"units {seed}")
    ids = dict.fromkeys(step.lock_id for steps in scripts for step in steps if step.lock_id)
    units = {each: rng.randint(1, 3) for each in ids if rng.random() < shape.units}

    def with_units(step: Step) -> Step:
        if step.lock_id not in units:
            return step
        lock_id = counted(step.lock_id, units[step.lock_id])
        return step._replace(lock_id=lock_id, mode="write", require="all")

    return tuple(tuple(map(with_units, steps)) for steps in scripts)


def _ids(rng: random.Random, shape: Shape) -> list[LockId]:
    deep = rng.random() < 0.55
    count = rng.randint(2, 6)
    locks = _or(shape.locks, 3 if deep else count)
    roots: list[LockId] = [(lock_name(number),) for number in range(locks)]
    depth = _or(shape.depth, 3 if deep else 1)
    found = list(roots)
    for root in roots[: max(1, 2 * len(roots) // 3)]:
        if depth > 1:
            found += [(*root, 1), (*root, 2)]
        if depth > 2:
            found += [(*root, 1, "x"), (*root, 2, "y")]
        if depth > 3:
            found += [(*root, 1, *"x" * level) for level in range(2, depth - 1)]
    return found


def _where(
    rng: random.Random, nodes: Sequence[str], require: Sequence[Require]
) -> tuple[tuple[str, ...], Require]:
    """On which nodes a lock id lives, and how many of them are needed."""
    if len(nodes) == 1:
        return (), "all"
    return tuple(rng.sample(nodes, rng.randint(1, len(nodes)))), rng.choice(require)


def _script(
    rng: random.Random,
    ids: Sequence[LockId],
    where: dict[LockId, tuple[tuple[str, ...], Require]],
    reads: float,
    batches: float,
    tries: float,
    steps: int | None,
) -> Script:
    found: list[Step] = []
    asked: list[LockId] = []
    for _ in range(_or(steps, rng.randint(1, 5))):
        luck = rng.random()
        if luck < 0.12 and asked:
            found.append(Step("unlock", asked.pop(rng.randrange(len(asked)))))
        elif luck < 0.15 and asked:
            found.append(Step("surrender", rng.choice(asked)))
        elif luck < 0.18 and asked:
            found.append(Step("again"))
            asked.clear()
        else:
            lock_id = rng.choice(ids)
            mode: Mode = "read" if rng.random() < reads else "write"
            if rng.random() < batches:
                found.append(Step("ask", lock_id, mode, *where[lock_id]))
            else:
                kind = rng.random() < tries
                found.append(Step("try" if kind else "lock", lock_id, mode, *where[lock_id]))
            asked.append(lock_id)
    if rng.random() < 0.7:
        found.append(Step("await"))
    return tuple(found)
