"""The model of rings among thousands of programs (`benchmarks.rings`): its messages, its times, and that it notices what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from benchmarks import rings, thousands
from benchmarks.placed import APART, MEMBERS, ids_apart
from benchmarks.plan import NEAR, PAGE, Costs
from benchmarks.rings import Prices, Ring, Rings, Said, Transaction, said
from locks.core.messages import RequestStates, ServerEffect, ServerMessage, ToAgent
from locks.core.server.machine import ServerMachine
from locks_lab.worlds.host import Violation

COSTS = Costs(message=100e-6, fixed=200e-6, each=150e-6)
HEARTBEATS = Prices(COSTS, server_ticks=1e-3, program_ticks=1e-3)
QUIET = Prices(COSTS)


def closed(world: Rings, apart: bool, times: int = 1) -> list[float]:
    """Close rings of the same three programs, one after the other."""
    keys = ids_apart(world.servers, MEMBERS)
    keys = keys if apart else keys[:1] * MEMBERS
    members = [world.program(f"ring{each}") for each in range(MEMBERS)]
    return [
        world.close([Ring(members, [(key, number, each) for each, key in enumerate(keys)])])[0]
        for number in range(times)
    ]


def test_a_lock_that_nobody_wants_takes_its_costs() -> None:
    """A majority of three: a call, a message and an answer, of which the program reads two one after the other."""
    world = Rings(0, QUIET)
    program = world.program("p")
    begun = world.time.now
    at: list[float] = []
    one = Transaction(world, program)
    world.time.at(begun, program.call, lambda: one.lock(("id",), lambda: at.append(world.time.now)))
    world.time.run()
    expected = COSTS.fixed / 2 + 2 * NEAR + COSTS.message + 2 * COSTS.each
    assert at == [pytest.approx(begun + expected)]


@pytest.mark.slow
def test_rings_through_groups_take_less_than_three_times_as_long() -> None:
    """100 programs with a lock each: rings are resolved in both ways; one seed decides everything."""
    one = said(100, HEARTBEATS, 3)
    assert one == said(100, HEARTBEATS, 3)
    assert one.within < one.over < APART * one.within
    assert one.messages < one.messages_over
    assert 0 < one.busy_within < one.busy_over < APART * one.busy_within
    assert one.server == pytest.approx(100 * 1e-3 / 9)


@pytest.mark.slow
def test_heartbeats_of_programs_that_share_processors_delay_rings() -> None:
    """On two processors that also have the heartbeats of 500 programs, a ring takes longer than on two without."""
    without, among = (
        closed(Rings(number, HEARTBEATS, processors=2), False, 5) for number in (0, 500)
    )
    assert sorted(among)[2] > 1.2 * sorted(without)[2]


@pytest.mark.slow
def test_a_ring_takes_as_many_messages_as_in_the_product() -> None:
    """A ring of three over three servers, one for each id: real nodes send as many frames as the model sends messages, within 15 per cent."""
    command = (sys.executable, "-m", "benchmarks.channels", "--sizes", "3", "--servers", "3")
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"ring (\d+) frames", text)
    assert found, text
    world = Rings(0, QUIET, servers=3, copies=1)
    closed(world, True)
    assert 0.85 < world.sent / int(found[1]) < 1.15


def test_a_ring_whose_agents_do_not_meet_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """If programs don't reach each other, a ring through three groups is not resolved, and the model says so."""
    monkeypatch.setattr(Rings, "send_program", lambda *_: None)
    with pytest.raises(Violation, match="3 transactions of rings are stuck"):
        closed(Rings(0, QUIET), True)


class Generous(ServerMachine):
    """Says of each request that waits that it is granted."""

    def handle(self, message: ServerMessage) -> list[ServerEffect]:
        effects: list[ServerEffect] = []
        for effect in super().handle(message):
            if isinstance(effect, ToAgent) and isinstance(effect.message, RequestStates):
                records = [
                    each._replace(state="granted", blocked=False) for each in effect.message.records
                ]
                effect = effect._replace(message=effect.message._replace(records=tuple(records)))
            effects.append(effect)
        return effects


def test_two_holders_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that grant a lock twice are noticed at once."""
    monkeypatch.setattr(rings, "ServerMachine", Generous)
    with pytest.raises(Violation, match="both hold"):
        closed(Rings(0, QUIET), False)


def test_page_shows_what_was_measured() -> None:
    """The tables of the page are those of the last run, and what the page says of them is true: ratios, and the distance of the model."""
    found = json.loads(thousands.FILE.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    for name, table in thousands.tables(found).items():
        assert f"<!-- table: {name} -->\n\n{table}\n" in page
    models = [Said(*each) for each in found["here"]]
    for real, model in zip(found["states"], models, strict=True):
        assert real["over"] < APART * real["within"]
        for distance in thousands.distances(real, model):
            assert 1 / thousands.FACTOR < distance < thousands.FACTOR
    for _, each in found["simulated"]:
        model = Said(*each)
        assert model.over < APART * model.within
        assert model.busy_over < APART * model.busy_within
