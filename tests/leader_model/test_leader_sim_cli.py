"""The command line of the simulator of elections."""

from __future__ import annotations

import pytest

from locks_lab.leader.__main__ import main
from locks_lab.leader.runs import Failure, run_seed


@pytest.mark.parametrize("kind", ["run", "storm"])
def test_worlds_of_some_seeds(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It tells how much happened, and that nothing was wrong."""
    assert main([kind, "--runs", "3", "--seed", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 worlds, ")
    assert lines[1] == "no violation"


def test_a_failure_is_told_with_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong rule fails, and the seed that is told fails in the same way by itself."""
    assert main(["run", "--rule", "closed"]) == 1
    told = capsys.readouterr().out
    seed = int(told.split()[1].strip(","))
    failure = run_seed(seed, rule="closed")
    assert isinstance(failure, Failure)
    assert str(failure) == told.rstrip("\n")


def test_a_storm_that_fails_tells_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """So do storms."""
    assert main(["storm", "--rule", "closed"]) == 1
    assert capsys.readouterr().out.startswith("storm(seed=")
