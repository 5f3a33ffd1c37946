"""`stop` at each line of each call, and each call at each line of `stop` (`at_lines`)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers import EXPLORE, ROOT, SEED
from tests.stopping.at_lines import WAYS
from tests.stopping.calls import CALLS

SOME = ("a lock that is held", "locks_leader.Ownership.run", "Election.run", "Lock")
ALONE = [name for name, call in CALLS.items() if call.needs != "servers"]


def judge(*arguments: str, limit: float) -> None:
    """Run it; it prints what went wrong."""
    command = [sys.executable, "-m", "tests.stopping.at_lines", f"--seed={SEED}", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert " trials, 0 wrong" in done.stdout


def test_at_some_lines_of_some_calls() -> None:
    """Each way."""
    judge("--tries=2", *(f"--call={name}" for name in SOME), limit=120)


@pytest.mark.slow
def test_at_a_line_of_each_call() -> None:
    """Each way."""
    judge("--tries=1", limit=120)


@pytest.mark.slow
def test_at_some_instructions() -> None:
    """Of calls in which many parts take part."""
    judge("--opcodes", "--tries=10", *(f"--call={name}" for name in SOME[1:3]), limit=120)


@pytest.mark.explore
@pytest.mark.skipif(not EXPLORE, reason="takes long: set LOCKS_EXPLORE=1")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALONE)
def test_at_each_line(name: str, way: str) -> None:
    """Every line of a call."""
    judge("--call", name, "--way", way, limit=3600)
