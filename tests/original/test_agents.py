"""The agents of the original, as a model: rings, and sequences after which real ones stay deadlocked.

`tests/erlang/test_model_of_the_original.py` compares the rings with real agents where there is an Erlang.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from locks.errors import InvalidOption
from locks_lab.original.runs import asked, is_resolved
from locks_lab.original.story import tell
from locks_lab.original.variants import VARIANTS
from locks_lab.original.world import World
from locks_lab.worlds.host import Violation
from tests.original.situations import recorded, situations
from tests.original.test_table import SEQUENCES, STUCK

RECORDED = dict(
    line.split(":")
    for line in Path(__file__).with_name("rings.txt").read_text().splitlines()
    if not line.startswith("#")
)


@pytest.mark.parametrize("circle", RECORDED)
def test_rings_by_the_order_in_which_their_clients_ask(circle: str) -> None:
    """All rings of three and four, asked in all orders: the same come to an end as with real agents."""
    ages = tuple(map(int, circle))
    orders = itertools.permutations(sorted(ages))
    found = ["".join(map(str, o)) for o in orders if is_resolved(asked(o, circle=ages))]
    assert found == RECORDED[circle].split()


def test_how_many_rings_get_stuck() -> None:
    """4 of 12 of three, 90 of 144 of four; of two none."""
    assert len(RECORDED) == 2 + 6
    resolved = [sum(len(v.split()) for k, v in RECORDED.items() if len(k) == n) for n in (3, 4)]
    assert resolved == [8, 54]
    assert is_resolved(asked((1, 2))) and is_resolved(asked((2, 1)))  # noqa: PT018


def test_clients_that_abort_or_die_and_locks_on_two_nodes() -> None:
    """The same becomes of each client as of real ones; after some deaths two of them hold one lock."""
    assert {str(each): each.foreseen() for each in situations()} == recorded()
    assert sum(letters.endswith("!") for letters in recorded().values()) == 8


def test_a_death_is_told() -> None:
    """And the state of the world has it."""
    world = World(["write a", "write a"], trace=True)
    world.step(1, 2)
    world.deliver()
    before = world.state
    world.do(("die", 1))
    world.deliver()
    assert "Client 1 dies, and its agent ends." in [*tell(world)]
    assert world.clients[0].died
    assert not world.clients[1].waiting
    after = world.state
    world.state = before
    assert not world.clients[0].died
    world.state = after
    assert world.clients[0].died


def played(sequence: list[list[Any]]) -> World:
    """Agents that have asked in this order, each when all before has settled; then all wait."""
    names = sorted({step[1] if step[0] == "end" else step[0] for step in sequence})
    scripts: dict[str, list[str]] = {name: [] for name in names}
    ends = {step[1] for step in sequence if step[0] == "end"}
    for step in sequence:
        if step[0] != "end":
            scripts[step[0]].append(f"ask {step[1]} {'/'.join(map(str, step[2]))}")
    for name in set(names) - ends:
        scripts[name].append("await")
    world = World(["; ".join(steps) for steps in scripts.values()])
    for step in sequence:
        world.step(names.index(step[1] if step[0] == "end" else step[0]) + 1)
        world.deliver()
    return world


@pytest.mark.parametrize("name", sorted(STUCK))
def test_deadlocks_for_ever(name: str) -> None:
    """Whoever can goes on to its end; the others stay stuck, as real agents do."""
    world = played(SEQUENCES[name])
    while ready := [client.number for client in world.clients if client.ready]:
        world.step(*ready)
        world.deliver()
    with pytest.raises(Violation, match=r"stuck: clients \[\d(, \d)+\]"):
        world.check_quiet()


def test_a_ring_of_two_step_by_step() -> None:
    """Client 2 surrenders what client 1 wants, and gets it back when that one has ended."""
    world = World(["write a; write b", "write b; write a"])
    world.step(1, 2)
    world.deliver()
    world.step(1, 2)
    world.deliver()
    assert world.surrenders == 1
    assert [client.waiting for client in world.clients] == [False, True]
    world.step(1)
    world.deliver()
    assert not world.clients[1].waiting
    world.step(2)
    assert all(client.finished for client in world.clients)
    assert not any(table.rows for table in world.tables.values())


def test_an_agent_aborts_rather_than_to_surrender_what_it_has() -> None:
    """Its client begins again, as the youngest."""
    world = World(["write a; write b", "write b; write a"], abort_on_deadlock=True)
    world.step(1, 2)
    world.deliver()
    world.step(1, 2)
    world.deliver()
    assert world.surrenders == 0
    assert [client.generation for client in world.clients] == [0, 1]
    assert world.clients[0].ready


def test_a_repeated_request_is_never_answered() -> None:
    """The client has the lock; its agent's status does not change, so it tells nobody."""
    world = World(["write a; write a"])
    world.step(1)
    world.deliver()
    world.step(1)
    world.deliver()
    with pytest.raises(Violation, match=r"client 1 waits, though its agent has all"):
        world.check_quiet()


def test_the_state_can_be_set_again() -> None:
    """A world goes on from an earlier state as it did before."""
    world = World(["write a; write b", "write b; write a"])
    world.step(1, 2)
    world.deliver()
    before = world.state
    world.step(1, 2)
    world.deliver()
    after = world.state
    world.state = before
    assert world.state == before
    world.step(1, 2)
    world.deliver()
    assert world.state == after


@pytest.mark.parametrize("step", ["unlock a", "try write a", "token a", "surrender a"])
def test_what_the_original_does_not_know_is_refused(step: str) -> None:
    """There is no such thing to model."""
    with pytest.raises(InvalidOption, match="nothing that the original knows"):
        World([f"write a; {step}"])


def test_variants_have_the_names_by_which_they_are_chosen() -> None:
    """And each is said to be what it is."""
    assert all(name == variant.name and variant.about for name, variant in VARIANTS.items())
    assert len({variant[2:] for variant in VARIANTS.values()}) == len(VARIANTS)
