"""All small worlds of a kind, to be explored one after the other.

A kind sets the number of clients, the lock ids, modes and steps that they may use, and the possible
faults. Its worlds are all ways to give each client a script. Worlds that differ only in the names
of their locks count once. Clients cannot be exchanged, because their agents have an order. A step
that requests a lock that the client already holds, or will hold, is left out, because it has no
effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from locks.model import LockId, Mode, Require, covers
from locks_lab.schedules.plan import Plan, client_names, lock_name, node_names
from locks_lab.worlds.network import Pair
from locks_lab.worlds.rules import OURS, Rule
from locks_lab.worlds.script import Script, Step
from locks_lab.worlds.world import Faults, World

__all__ = [
    "Extra",
    "Kind",
    "is_ring",
    "kind_from",
    "placed",
    "ring",
    "rings",
    "small_worlds",
    "start",
]

Extra = Literal["try", "unlock", "ask", "again", "token"]
MODES: dict[str, tuple[Mode, ...]] = {"w": ("write",), "r": ("read",), "rw": ("read", "write")}


class Kind(NamedTuple):
    """A kind of small worlds.

    Attributes:
        agents: The number of clients.
        locks: The number of lock ids; with `depth`, of trees of lock ids.
        nodes: The number of nodes; each lock is requested on all of them.
        modes: `"w"`, `"r"` or `"rw"`.
        depth: The largest number of elements of a lock id.
        steps: The number of steps of each client.
        require: On how many of the nodes a lock is needed.
        extras: Steps other than requesting a lock and waiting for it.
        faults: The possible faults.
        spread: Clients live on all nodes in turn, not all on the first one.
        options: Options of the agents.
        held: Each client already holds its first lock.
        ring: Only the worlds in which each client holds one lock and requests that of the next
            client.
        spokes: Each client lives on its own node, which is connected only with lock servers.
        apart: Each lock is on one of the nodes, in turn, instead of on all of them.
        unlinked: Pairs of nodes that are never connected.
    """

    agents: int = 2
    locks: int = 2
    nodes: int = 1
    modes: str = "w"
    depth: int = 1
    steps: int = 2
    require: Require = "all"
    extras: tuple[Extra, ...] = ()
    faults: Faults = Faults()
    spread: bool = False
    options: tuple[str, ...] = ()
    held: bool = False
    ring: bool = False
    spokes: bool = False
    apart: bool = False
    unlinked: tuple[Pair, ...] = ()


def kind_from(arguments: Any, **more: Any) -> Kind:
    """The kind that the arguments of a command name; `more` has what not all models can do."""
    names = ("agents", "locks", "nodes", "modes", "depth", "steps", "require")
    kinds = {name: getattr(arguments, name) for name in (*names, "spread", "ring", "apart")}
    return Kind(**kinds, **more)


def small_worlds(kind: Kind, rule: Rule = OURS) -> Iterator[Plan]:
    """All worlds of a kind, first those in which the clients form a ring."""
    nodes = node_names(kind.nodes)
    homes = client_names(kind.agents) if kind.spokes else nodes if kind.spread else ()
    found = rings(kind.agents) if kind.ring else _combinations(kind, nodes)
    for scripts in sorted(found, key=lambda scripts: not is_ring(scripts)):
        if kind.apart:
            scripts = placed(scripts, nodes)
        yield Plan(
            scripts, nodes, homes, kind.faults, kind.options, rule=rule, unlinked=kind.unlinked
        )


def placed(scripts: Sequence[Script], nodes: Sequence[str]) -> tuple[Script, ...]:
    """The same scripts, with each tree of locks on one of the nodes, in turn."""
    roots = dict.fromkeys(step.lock_id[0] for steps in scripts for step in steps if step.lock_id)
    where = {
        root: (nodes[number % len(nodes)],) for number, root in enumerate(sorted(roots, key=str))
    }
    return tuple(
        tuple(
            step._replace(nodes=where[step.lock_id[0]], require="all") if step.asks else step
            for step in steps
        )
        for steps in scripts
    )


def start(plan: Plan, held: bool = False, trace: bool = False) -> World:
    """A world, ready to be explored; with `held`, each client has taken its first step."""
    world = plan.world(trace)
    if held:
        for client in world.clients:
            world.step(client.number)
            world.deliver()
    return world


def ring(order: Sequence[int]) -> tuple[Script, ...]:
    """Scripts for a ring: `order[i]`, counted from 0, takes lock `i`, and then the next one."""
    found: list[Script] = [()] * len(order)
    for i, client in enumerate(order):
        locks = (lock_name(i), lock_name((i + 1) % len(order)))
        found[client] = tuple(Step("lock", (lock,)) for lock in locks)
    return tuple(found)


def rings(size: int) -> Iterator[tuple[Script, ...]]:
    """Rings in every order of their clients; rotations of a ring count once."""
    for rest in itertools.permutations(range(1, size)):
        yield ring((0, *rest))


def is_ring(scripts: Sequence[Script]) -> bool:
    """Whether each client takes one lock, and then the lock that another client took first."""
    if not all(
        len(script) == 2 and all(step.kind == "lock" for step in script) for script in scripts
    ):
        return False
    follow = {steps[0].lock_id: steps[1].lock_id for steps in scripts}
    first = lock = scripts[0][0].lock_id
    seen: set[LockId] = set()
    while lock in follow and lock not in seen:
        seen.add(lock)
        lock = follow[lock]
    return lock == first and len(seen) == len(scripts)


def _combinations(kind: Kind, nodes: tuple[str, ...]) -> Iterator[tuple[Script, ...]]:
    where = (nodes, kind.require) if kind.nodes > 1 else ((), "all")
    ids = [lock_id for i in range(kind.locks) for lock_id in _tree(lock_name(i), kind.depth)]
    kinds = ["lock", *(each for each in ("try", "ask") if each in kind.extras)]
    asking = [
        Step(each, lock_id, mode, *where)  # type: ignore[arg-type]
        for each in kinds
        for lock_id in ids
        for mode in MODES[kind.modes]
    ]
    scripts = list(_scripts(kind, asking, ()))
    seen: set[tuple[Script, ...]] = set()
    for chosen in itertools.product(scripts, repeat=kind.agents):
        same = _renamed(chosen)
        if same not in seen:
            seen.add(same)
            yield same


def _scripts(kind: Kind, asking: Sequence[Step], before: Script) -> Iterator[Script]:
    """All scripts that begin like this."""
    if len(before) == kind.steps:
        yield before
        return
    for step in asking:
        if not any(_covers(earlier, step) for earlier in before):
            yield from _scripts(kind, asking, (*before, step))
    if "unlock" in kind.extras:
        for step in before:
            if step.asks and Step("unlock", step.lock_id) not in before:
                yield from _scripts(kind, asking, (*before, Step("unlock", step.lock_id)))
    if "token" in kind.extras and before and before[-1].kind == "lock":
        yield from _scripts(kind, asking, (*before, Step("token", before[-1].lock_id)))
    if "again" in kind.extras and before and before[-1].kind != "again":
        yield from _scripts(kind, asking, (*before, Step("again")))


def _covers(earlier: Step, step: Step) -> bool:
    """Whether an earlier step makes another step have no effect."""
    return (
        earlier.kind in ("lock", "ask")
        and step.lock_id[: len(earlier.lock_id)] == earlier.lock_id
        and covers(earlier.mode, step.mode)
    )


def _tree(root: str, depth: int) -> Iterator[LockId]:
    """A lock id, two below it, and one below the first of those, and so on."""
    yield (root,)
    if depth > 1:
        yield from ((root, 1), (root, 2))
    for deeper in range(3, depth + 1):
        yield (root, 1, *("x" * (deeper - 2)))


def _renamed(scripts: tuple[Script, ...]) -> tuple[Script, ...]:
    """The same scripts with locks, and the locks below each of them, named in order of occurrence."""
    names: dict[LockId, dict[object, object]] = {}

    def rename(lock_id: LockId) -> LockId:
        found: LockId = ()
        for depth, element in enumerate(lock_id):
            known = names.setdefault(lock_id[:depth], {})
            if element not in known:
                known[element] = lock_name(len(known)) if depth == 0 else len(known) + 1
            found = (*found, known[element])
        return found

    return tuple(
        tuple(
            step._replace(lock_id=rename(step.lock_id)) if step.lock_id else step for step in each
        )
        for each in scripts
    )
