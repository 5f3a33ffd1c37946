"""Storms (`storm`): all kinds of clients, and all that Python can throw at them, at random."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.helpers import EXPLORE, ROOT, SEED
from tests.torture.storm import SCENARIOS
from tests.torture.weather import ENOUGH


def weather(scenario: str, seed: int, seconds: float) -> None:
    """Let it storm in a process of its own, and judge."""
    command = [sys.executable, "-m", "tests.torture.storm", scenario, "--seconds", str(seconds)]
    for again in range(10):
        print(f"python -m tests.torture.storm {scenario} --seed {seed + again} --seconds {seconds}")
        done = subprocess.run(
            [*command, "--seed", str(seed + again)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        # Without memory, libraries in C end the process, by `abort` or a fault: greenlet, libev, libstdc++.
        if scenario != "memory" or done.returncode >= 0:
            break
    assert done.stdout, f"it hung, or broke down:\n{done.stderr}"
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["problems"], found
    # Without memory the interpreter says so wherever it can't end a generator.
    assert done.stderr == "" or scenario == "memory"
    assert found["steps"] > ENOUGH


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_storm(scenario: str) -> None:
    """Half a second: no two holders, nothing left, each exception seen once, and the node serves on."""
    weather(scenario, SEED, 0.4)


@pytest.mark.explore
@pytest.mark.skipif(not EXPLORE, reason="takes long: set LOCKS_EXPLORE=1")
@pytest.mark.parametrize("number", range(40 if EXPLORE else 4))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_longer_storm(scenario: str, number: int) -> None:
    """Seconds, with several seeds."""
    weather(scenario, SEED + number, 4)
