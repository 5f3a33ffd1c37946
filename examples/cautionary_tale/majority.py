"""The same with `locks`: a lock on a majority of three nodes, by the simulator's own worlds.

Lock servers and agents are those that run in programs; `locks_lab.explorer.explore` visits every order of their
messages, and checks each state. Two workers that ask three nodes from the very beginning are too many
states for that (more than 3 million). So it is done in parts: `PARTS` says which, and random schedules
(`at_random`) do the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from locks_lab.explorer.explore import Explored, explore
from locks_lab.schedules.plan import Plan, Shape, plan
from locks_lab.schedules.runs import FailedRun, Tally, run_plan
from locks_lab.stories.story import tell
from locks_lab.worlds.world import Faults, World

__all__ = ["MORE", "NODES", "PARTS", "Part", "at_random", "cut_off", "explore_part", "minority"]

NODES = ("n1", "n2", "n3")
HOMES = ("n1", "n2")  # of worker 1 and worker 2
LOCK = "write a on n1,n2,n3 majority"
WITH_TOKEN = f"{LOCK}; token a"
NO_FAULTS = Faults()


class Part(NamedTuple):
    """A part that is explored.

    Attributes:
        about: What it is, in words.
        world: Makes the world.
    """

    about: str
    world: Callable[[], World]


def explore_part(part: Part, limit: int = 5_000_000) -> Explored:
    """Visit every order; at each end both workers have finished, unless they wait for nodes.

    Raises:
        Violation: Something goes wrong.
        TooManyStates: There are more than `limit` states.
    """
    return explore(part.world(), limit, at_end=_finished)


def _finished(world: World) -> tuple[bool, ...]:
    """Which workers are done: they have had the lock and have let go of it, or have died."""
    return tuple(client.finished for client in world.clients)


def _from_start(script: str, down: str = "", faults: Faults = NO_FAULTS) -> World:
    """No worker has asked; one node may be down, and all know it."""
    if down:
        faults = faults._replace(crashes=faults.crashes + 1, nodes=(down,), restarts=False)
    world = World([script] * 2, NODES, faults, HOMES)
    if down:
        world.do(("crash", down))
        for pair in list(world.network.notices()):
            world.do(("notice", pair))
    return world


def _one_asked_first(script: str) -> World:
    """The requests of worker 1 have arrived at all nodes, and are being answered."""
    world = World([script] * 2, NODES, homes=HOMES)
    world.step(1)
    world.deliver(*NODES)
    return world


def _one_has_it(script: str, faults: Faults = NO_FAULTS) -> World:
    """Worker 1 has the lock, and its token if it wants it; worker 2 has not asked."""
    world = World([script] * 2, NODES, faults, HOMES)
    one = world.clients[0]
    while not one.told or (script == WITH_TOKEN and not one.tokens):
        if one.ready:
            world.step(1)
        world.deliver()
    return world


PARTS = (
    Part(
        "both ask, at any time; n3 is down; tokens",
        lambda: _from_start(WITH_TOKEN, "n3"),
    ),
    Part("worker 1 has asked first; tokens", lambda: _one_asked_first(WITH_TOKEN)),
    Part(
        "worker 1 has the lock, and may die",
        lambda: _one_has_it(LOCK, Faults(mortal=((1, "crashes"),))),
    ),
    Part(
        "worker 1 has the lock; n3 may crash",
        lambda: _one_has_it(LOCK, Faults(crashes=1, nodes=("n3",), restarts=False)),
    ),
)

# What takes longest.
MORE = (
    Part(
        "worker 1 has the lock; n3 may crash; tokens",
        lambda: _one_has_it(WITH_TOKEN, Faults(crashes=1, nodes=("n3",), restarts=False)),
    ),
    Part(
        "worker 1 has the lock; any node may crash",
        lambda: _one_has_it(LOCK, Faults(crashes=1, nodes=NODES, restarts=False)),
    ),
)


def at_random(runs: int = 1000, seed: int = 0) -> tuple[Tally, FailedRun | None]:
    """Two workers on three nodes that crash and lose connections, under random schedules."""
    shape = Shape(
        agents=2,
        locks=1,
        nodes=3,
        reads=0.0,
        depth=1,
        steps=2,
        require=("majority",),
        tokens=1.0,
        faults=True,
    )
    tally = Tally()
    for each in range(seed, seed + runs):
        failure = run_plan(each, _on_all_nodes(plan(each, shape)), tally)
        if failure is not None:
            return tally, failure
    return tally, None


def _on_all_nodes(drawn: Plan) -> Plan:
    """The lock is on all three nodes, where chance has chosen some of them."""
    scripts = [
        tuple(step._replace(nodes=NODES) if step.nodes else step for step in script)
        for script in drawn.scripts
    ]
    return drawn._replace(scripts=tuple(scripts))


# --- What it costs ------------------------------------------------------------------------------


def minority() -> Iterator[str]:
    """Worker 1 is cut off with one of three nodes; then both ask. It waits until they reconnect."""
    world = World([LOCK] * 2, NODES, Faults(cuts=2), HOMES, trace=True, await_nodes=True)
    _cut_off_n1(world)
    world.step(1, 2)
    world.deliver()
    yield from tell(world.events or [])
    yield _who_has_it(world)
    told = len(world.events or [])
    world.step(2)  # it is done
    world.deliver()
    for other in ("n2", "n3"):
        world.do(("mend", ("n1", other)))
    _mended(world)
    yield from _tell_from(world, told)
    yield _who_has_it(world)


def cut_off() -> Iterator[str]:
    """Worker 1 has the lock when it is cut off: the other one gets it, with a larger token."""
    world = World([WITH_TOKEN] * 2, NODES, Faults(cuts=2), HOMES, trace=True, await_nodes=True)
    one, two = world.clients
    while not one.tokens:
        if one.ready:
            world.step(1)
        world.deliver()
    _cut_off_n1(world, noticed_by_n1=False)
    while not two.tokens:
        if two.ready:
            world.step(2)
        world.deliver()
    yield from tell(world.events or [])


def _cut_off_n1(world: World, noticed_by_n1: bool = True) -> None:
    """The connections of n1 break, and the nodes notice."""
    for other in ("n2", "n3"):
        world.do(("cut", ("n1", other)))
    for pair in list(world.network.notices()):
        if noticed_by_n1 or pair[0] != "n1":
            world.do(("notice", pair))
    world.deliver()


def _mended(world: World) -> None:
    """The nodes notice their new connections, and all arrives."""
    while True:
        for pair in list(world.network.connectable()):
            world.do(("connect", pair))
        waiting = list(world.network.notices())
        if not waiting:
            break
        for pair in waiting:
            world.do(("notice", pair))
    world.deliver()


def _tell_from(world: World, number: int) -> Iterator[str]:
    """What happened after the first `number` events."""
    events = world.events or []
    before = sum(1 for _ in tell(events[:number]))
    for place, line in enumerate(tell(events)):
        if place >= before:
            yield line


def _who_has_it(world: World) -> str:
    """Which worker has the lock now, and which one waits."""
    having = [f"worker {c.number}" for c in world.clients if c.told and not c.finished]
    waiting = [f"worker {c.number}" for c in world.clients if not c.told and not c.finished]
    found = f"{' and '.join(having) or 'nobody'} has the lock"
    return f"=> {found}; {' and '.join(waiting)} waits." if waiting else f"=> {found}."
