"""Realistic programs with a planted bug each: found within 100 seeds, made again by the schedule, made short to the same violation."""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import Any

import pytest

from benchmarks.planted import PLANTED, Scenario
from locks.testing import Simulation, Violation, simulate
from tests.helpers import EXPLORE, ROOT
from tests.warm import run_program

SEEDS, FEW = 100, 20


def kind_of(error: BaseException) -> tuple[str, int]:
    """The type and the line of an error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.lineno is not None
    return type(error).__name__, last.lineno


def failure_of(scenario: Scenario, **how: Any) -> tuple[tuple[Any, ...] | None, Simulation]:
    """How a run fails: type, line and text."""
    simulation = Simulation(**how)
    with simulation.patched():
        try:
            scenario(simulation)
        except Exception as error:
            return (*kind_of(error), re.sub("0x[0-9a-f]+", "", str(error))), simulation
    return None, simulation


@pytest.mark.parametrize("scenario", PLANTED)
def test_planted_bug_is_found_played_again_and_made_short(scenario: Scenario) -> None:
    """Each failing seed's own schedule fails in the same way; the first one is made short to the same error at the same line."""
    found = set()
    for seed in range(SEEDS if EXPLORE else FEW):
        first, drawn = failure_of(scenario, seed=seed)
        if first is not None:
            found.add(first[:2])
            assert failure_of(scenario, schedule=drawn.schedule)[0] == first, f"seed {seed}"
    with pytest.raises((AssertionError, Violation)) as short:
        simulate(scenario, SEEDS, patch=True)
    note = "\n".join(getattr(short.value, "__notes__", ["the shortest way"]))
    assert "the shortest way" in note
    assert not found or kind_of(short.value) in found


@pytest.mark.explore
def test_hash_seeds_change_nothing() -> None:
    """Each planted bug fails under the same seeds, with the same schedules, whatever the order of sets is."""
    found = {_outcomes(str(seed)) for seed in (0, 1, 2, 3)}
    assert len(found) == 1


def _outcomes(hash_seed: str) -> str:
    program = """if True:
        from tests.api.test_testing_planted import PLANTED, failure_of
        for each in PLANTED:
            for seed in range(10):
                end, run = failure_of(each, seed=seed)
                print(each.__name__, seed, end, run.schedule)
    """
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = run_program([sys.executable, "-c", program], env=environment, check=True)
    return done.stdout
