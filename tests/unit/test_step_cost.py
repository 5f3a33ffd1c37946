"""What a step of a lock server costs beside a crowd, counted in lines: the same, however many wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from locks.core.messages import (
    Release,
    Remove,
    Request,
    ServerEffect,
    StandingElsewhere,
    Surrender,
)
from locks.core.server import machine, notifier, table, tree, units, waits
from locks.core.server.machine import ServerMachine
from locks.lock_ids import counted
from locks.model import Deadlock, Edge, LockId, Mode
from tests.helpers import lines_of
from tests.lockstep import agent

MODULES = (machine, notifier, table, tree, units, waits)
SIZES = (10, 100, 3_000)
LATE = 1_000_000  # agents that come after the crowd
SLACK = 60  # lines: binary searches in longer queues
GATE: LockId = ("gate",)


class Asks(NamedTuple):
    """What an agent asks for."""

    lock_id: LockId
    mode: Mode = "write"


Wish = Callable[[int], Asks]
Kind = type[ServerMachine]


def ask(
    server: ServerMachine, who: int, asks: Asks, there: bool = False, waits_there: bool = False
) -> list[ServerEffect]:
    """An agent asks for something; perhaps it has requests elsewhere, and waits there."""
    return server.handle(Request(agent(who), "c", *asks, there, waits_there))


def crowd(kind: Kind, size: int, wish: Wish, differ: bool) -> ServerMachine:
    """So many wait; if holders differ between nodes, the first here waits elsewhere, too.

    Nothing is looked for meanwhile: the crowd comes before the first is said to wait elsewhere.
    """
    server = kind("n@h")
    ask(server, 0, Asks(GATE))
    for n in range(1, size + 1):
        ask(server, n, wish(n))
    if differ:
        server.handle(StandingElsewhere(agent(0), True, True))
    return server


WISHES: dict[str, Wish] = {
    "writers": lambda n: Asks(GATE),
    "readers and writers": lambda n: Asks(GATE, "read" if n % 3 else "write"),
    "rows and their table": lambda n: Asks(GATE if n % 5 == 0 else (*GATE, n % 7)),
    "rows of their own": lambda n: Asks((*GATE, n)),
    "units": lambda n: Asks(counted(GATE, 2) if n else GATE),
}


def steps(server: ServerMachine, wish: Wish) -> dict[str, Callable[[], object]]:
    """What may happen beside a crowd, in this order."""
    new = LATE
    return {
        "one more": lambda: ask(server, new, wish(3)),
        "one more writer, elsewhere too": lambda: ask(server, new + 1, wish(5), True, True),
        "it withdraws there": lambda: server.handle(
            StandingElsewhere(agent(new + 1), False, False)
        ),
        "one more, elsewhere too": lambda: ask(server, new + 2, wish(4), True, True),
        "that one withdraws there": lambda: server.handle(
            StandingElsewhere(agent(new + 2), False, False)
        ),
        "one for all of it, elsewhere too": lambda: ask(server, new + 3, Asks(GATE), True, True),
        "and that one gives up": lambda: server.handle(Remove(agent(new + 3))),
        "it gives up": lambda: server.handle(Release(agent(new + 2), wish(4).lock_id)),
        "another one ends": lambda: server.handle(Remove(agent(5))),
        "one that waits begins to wait elsewhere": lambda: server.handle(
            StandingElsewhere(agent(6), True, True)
        ),
        "and ceases to": lambda: server.handle(StandingElsewhere(agent(6), False, False)),
        "the first waits elsewhere no more": lambda: server.handle(
            StandingElsewhere(agent(0), True, False)
        ),
    }


def told(effects: object) -> int:
    """How many messages a step has sent."""
    return len(effects) if isinstance(effects, list) else 0


def costs(kind: Kind, size: int, wish: Wish, differ: bool) -> dict[str, int]:
    """How many lines each step takes, and the messages of all of them."""
    server = crowd(kind, size, wish, differ)
    found: dict[str, int] = {}
    sent = 0
    for name, step in steps(server, wish).items():
        effects: list[object] = []
        found[name] = lines_of(lambda step=step, effects=effects: effects.append(step()), *MODULES)  # type: ignore[misc]
        sent += told(effects[0])
    return {**found, "messages": sent}


@pytest.mark.parametrize("differ", [False, True], ids=["one node", "holders differ"])
@pytest.mark.parametrize("name", WISHES)
def test_a_step_costs_the_same_however_many_wait(name: str, differ: bool) -> None:
    """Alone at a gate, or while the first one waits at another node, and others come that wait there."""
    few, *more = [costs(ServerMachine, size, WISHES[name], differ) for size in SIZES]
    for many in more:
        assert many["messages"] == few["messages"]
        for step, lines in many.items():
            assert lines <= few[step] + SLACK, (step, few, many)


def hand_over(kind: Kind, size: int, wish: Wish, differ: bool) -> int:
    """The lines of ten hand-overs at the head of a queue, each to one that waits elsewhere if holders differ."""
    server = crowd(kind, size, wish, differ)

    def act() -> None:
        for n in range(10):
            server.handle(Remove(agent(n)))
            if differ:
                server.handle(StandingElsewhere(agent(n + 1), True, True))

    return lines_of(act, *MODULES)


@pytest.mark.parametrize("differ", [False, True], ids=["one node", "holders differ"])
def test_handing_on_costs_the_same_however_many_wait(differ: bool) -> None:
    """Also if whoever gets the lock waits at another node meanwhile."""
    few, *more = [hand_over(ServerMachine, n, WISHES["writers"], differ) for n in SIZES]
    assert max(more) <= few + 10 * SLACK


def deadlock(kind: Kind, size: int) -> list[int]:
    """The lines of each step of a deadlock over two long queues: it comes up, and is resolved."""
    server = kind("n@h")
    a, b = Asks(("a",)), Asks(("b",))
    first, second = 0, 1
    ask(server, first, a)
    ask(server, second, b)
    for n in range(2, size + 2):
        ask(server, n, (a, b)[n % 2])
    found = [lines_of(lambda: ask(server, first, b), *MODULES)]
    found.append(lines_of(lambda: ask(server, second, a), *MODULES))
    found.append(lines_of(lambda: server.handle(Surrender(agent(second), b.lock_id)), *MODULES))
    found.append(lines_of(lambda: server.handle(Remove(agent(3))), *MODULES))
    return found


def test_a_deadlock_in_long_queues_costs_the_same_however_long_they_are() -> None:
    """To find it, to give one lock up, and to go on."""
    few, *more = [deadlock(ServerMachine, size) for size in SIZES]
    for many in more:
        assert all(lines <= before + SLACK for lines, before in zip(many, few, strict=True)), (
            few,
            many,
        )


def opposite(size: int) -> tuple[int, int]:
    """Many that lock two things, half of them in the other order; the largest of a circle surrenders.

    Returns:
        How many surrenders there are, and the lines of them all.
    """
    server = ServerMachine("n@h")
    wants = {n: [("a",), ("b",)][:: 1 if n % 2 else -1] for n in range(size)}
    for n, ids in wants.items():
        ask(server, n, Asks(ids[0]))
    surrenders = lines = 0
    while server.table.requesters:
        owners = server.table.requesters.values()
        free = [owner for owner in owners if not owner.waiting]
        if free:
            who = min(free, key=lambda owner: owner.id)
            if who.total == 2:
                server.handle(Remove(who.id))
            else:
                ask(server, who.id.serial, Asks(wants[who.id.serial][1]))
            continue
        heads = [server.table.view(lock_id)[0] for lock_id in (("a",), ("b",))]
        last = max(heads, key=lambda entry: entry.requester.id)
        other = next(entry for entry in heads if entry is not last)
        waiter = next(e for e in other.requester.all() if e.slot is last.slot)
        ends = (waiter.number, waiter.since), (last.number, last.since)
        cycle = (Edge(waiter.record("n@h"), last.record("n@h")),)
        report = Deadlock(last.requester.id, last.slot.lock_id, "n@h", "surrendered", cycle, "so")
        message = Surrender(last.requester.id, last.slot.lock_id, *ends, report)
        surrenders += 1
        lines += lines_of(lambda message=message: server.handle(message), *MODULES)  # type: ignore[misc]
    return surrenders, lines


def test_surrenders_of_many_in_opposite_order_are_linear() -> None:
    """In number, and in what they cost in all: each costs what it touches."""
    few, many = opposite(40), opposite(400)
    assert few[0] < 40
    assert many[0] < 400
    assert many[1] <= 12 * few[1]
