"""Runs of random worlds, cases, and those that have gone wrong once."""

from __future__ import annotations

import os
import random
import shlex
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from locks.core.server.notifier import News, Notifier
from locks_lab.cases.case import Case, case_of, replay
from locks_lab.commands.sim import add_case, case_from
from locks_lab.schedules.plan import Shape, plan
from locks_lab.schedules.runs import Tally, run_seeds
from locks_lab.schedules.schedule import finish, run
from locks_lab.worlds.events import Choice
from locks_lab.worlds.rules import OtherServer, Rule
from locks_lab.worlds.world import Faults, World
from tests.helpers import EXPLORE, SEED
from tests.warm import run_program

FAILED = Path(__file__).with_name("failed.txt")
LINES = [line for line in FAILED.read_text().splitlines() if line and not line.startswith("#")]
WORLDS = 120 * (20 if EXPLORE else 1)
BREAKING = Shape(faults=True, nodes=3)


class TellsNothing(Notifier):
    """Tells agents of their own requests only."""

    def after(self, *args: object, **options: object) -> News:
        news = super().after(*args, **options)  # type: ignore[arg-type]
        return {
            agent: {entry: record for entry, record in told.items() if record.agent == agent}
            for agent, told in news.items()
        }


class SilentServer(OtherServer):
    notifier_class = TellsNothing


SILENT = Rule("mute", "tells agents of their own requests only", server=SilentServer)


def read(line: str) -> Case:
    """A case from a line of the file."""
    parser = ArgumentParser()
    add_case(parser)
    parser.add_argument("--rule", default="ours")
    parser.add_argument("--schedule", default="")
    return case_from(parser.parse_args(shlex.split(line)))


# --- Cases --------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", LINES)
def test_what_has_gone_wrong_once_goes_well_now(line: str) -> None:
    """Each case in the file runs to its end, and all checks hold."""
    case = read(line)
    assert str(case) == line
    found = replay(case)
    assert found.error is None, f"{found.error}\npython -m locks sim replay {line}"


def test_a_case_that_goes_wrong_is_noticed() -> None:
    """The same cases go wrong when lock servers tell agents too little."""
    wrong = [replay(read(line)._replace(rule=SILENT)).kind for line in LINES]
    assert "Violation in world.check_quiet" in wrong


@pytest.mark.slow
@pytest.mark.parametrize("shape", [Shape(), BREAKING, Shape(nodes=2, faults=True, agents=3)])
def test_a_case_repeats_a_run(shape: Shape) -> None:
    """What happened in a run, written as text and read again, happens again in every detail."""
    for seed in range(SEED, SEED + 25):
        drawn = plan(seed, shape)
        world = drawn.world(trace=True)
        schedule: list[Choice] = []
        run(world, random.Random(seed), drawn.policy, drawn.limit, schedule=schedule)
        case = read(str(case_of(drawn, schedule)))
        found = replay(case, trace=True)
        assert found.error is None
        assert (found.moves, found.events) == (case.moves, len(schedule))
        for here, there in zip(world.events or (), found.world.events or (), strict=True):
            assert here == there


# --- Runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        BREAKING,
        Shape(faults=True, nodes=2, agents=3),
        Shape(faults=True, nodes=3, require=("any", "majority", "all_alive", "majority_alive")),
    ],
    ids=["three nodes", "small", "some nodes are enough"],
)
@pytest.mark.parametrize(
    "worlds", [WORLDS // 3, pytest.param(WORLDS, marks=pytest.mark.explore)], ids=["some", "all"]
)
def test_worlds_that_break_go_well(shape: Shape, worlds: int) -> None:
    """Whatever breaks, checks hold; when it is mended, everybody finishes."""
    tally = Tally()
    failure = run_seeds(range(SEED, SEED + worlds), shape, tally=tally)
    assert failure is None, f"seed {failure.seed}: {failure.error}"
    assert tally.seen["worlds"] == worlds
    assert tally.seen["worlds with faults"] > worlds // 2
    for kind in ("cut", "mend", "crash", "restart", "notice", "connect", "die"):
        assert tally.events[kind] > worlds // 20, tally
    assert tally.seen["deadlocks"] > worlds // 20, tally


TRACE = """
import hashlib, random
from locks_lab.schedules.plan import Shape, plan
from locks_lab.schedules.schedule import run
digest = hashlib.sha256()
for seed in range(10):
    for shape in (Shape(), Shape(nodes=3, faults=True)):
        drawn = plan(seed, shape)
        world = drawn.world(trace=True)
        run(world, random.Random(seed), drawn.policy)
        for event in world.events:
            found = event.found and event.found._replace(targets=sorted(event.found.targets))
            digest.update(repr(event._replace(found=found)).encode())
print(digest.hexdigest(), hash("a"))
"""


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace() -> None:
    """Every event is the same in another process, in which strings have other hashes."""
    found = [
        run_program(
            [sys.executable, "-c", TRACE], env={**os.environ, "PYTHONHASHSEED": seed}, check=True
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert found[0][1] != found[1][1]
    assert found[0][0] == found[1][0]


def test_finishing_mends_what_is_broken() -> None:
    """A world is finished without new faults, and always in the same way."""
    traces = []
    for _ in range(2):
        faults = Faults(((1, "ends"),), cuts=3, crashes=2, nodes=("n1", "n2"))
        world = World(
            ["write a on n1,n2", "write a on n1,n2"],
            ("n1", "n2"),
            faults,
            trace=True,
            await_nodes=True,
        )
        world.step(1, 2)
        world.do(("cut", ("n1", "n2")))
        world.do(("crash", "n2"))
        schedule: list[Choice] = []
        finish(world, schedule=schedule)
        assert (world.cuts, world.crashes, world.mortal) == (2, 1, {})
        assert world.network.whole
        kinds = [kind for kind, _ in schedule]
        assert kinds.count("mend") == kinds.count("restart") == 1
        assert not {"cut", "crash", "die"} & set(kinds)
        traces.append(world.events)
    assert traces[0] == traces[1]
