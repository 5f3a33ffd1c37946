"""The benchmarks run. How fast anything is, is not tested: machines differ."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading

import pytest

import locks
from benchmarks import finding
from benchmarks.finding import TOOLS
from locks.testing import Simulation
from tests.warm import run_program

FIGURES = [
    *("transaction", "nth", "shared", "rings", "table", "memory", "handover", "bank"),
    *("remote", "quorum", "crowd_nodes"),
    *("candidates", "leader", "takeover"),
    *("owned", "owners", "mvcc", "store", "scale", "spokes", "clients", "placed", "placed_rings"),
    *("machine", "neighbours"),
    *("task", "tasks", "loop", "facts", "page", "beam", "starts", "import"),
    *("crowd_order", "crowd_chosen", "crowd_web", "crowd_handover"),
    *("crowd_hot", "crowd_silent", "crowd_starts"),
    *("dask", "ray"),
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks as a user does."""
    return run_program([sys.executable, "-m", "benchmarks", *arguments])


@pytest.mark.explore
@pytest.mark.parametrize("name", FIGURES)
def test_a_quick_run_of_a_figure_has_rows(name: str) -> None:
    """`--quick --only NAME --json -` finishes, with rows in each context of the figure."""
    done = run("--quick", "--only", name, "--json", "-")
    assert done.returncode == 0, done.stderr
    (figure,) = json.loads(done.stdout)["figures"].values()
    for context, report in figure["contexts"].items():
        absent = (
            "one core" if context == "two cores" else "no original",
            "is not installed",
        )
        alone = any(why in skipped for why in absent for skipped in report["skipped"])
        assert report["rows"] or alone, f"{name} ({context}) has no rows"
        assert all(row["value"] >= 0 for row in report["rows"])
        for skipped in report["skipped"]:  # seen with -s
            print(skipped)


def test_unknown_figures_are_refused() -> None:
    """A wrong name is an error of the command line, which lists the right ones."""
    done = run("--only", "nonsense")
    assert done.returncode == 2
    (listed,) = re.findall(r"choose from (.*)\)", " ".join(done.stderr.split()))
    assert set(re.findall(r"\w+", listed)) == {*FIGURES, "crowd"}


@pytest.mark.parametrize("tool", [*TOOLS])
def test_a_tool_finds_a_bug_that_is_always_there(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tool that looks for planted bugs finds one in its first run, and none in a correct program, though it tries again."""
    if "repeat" in tool:
        pytest.importorskip("pytest_repeat", reason="not installed: pip install pytest-repeat")
    monkeypatch.setattr(finding, "RUNS", 5)
    monkeypatch.setitem(finding.PROGRAMS, "wrong", wrong)
    monkeypatch.setitem(finding.PROGRAMS, "right", right)
    try:
        found = TOOLS[tool](wrong)
        assert (found.runs, bool(found.how)) == (1, True)
        found = TOOLS[tool](right)
        assert (found.runs, found.how) == (5, "")
    finally:
        locks.stop()  # the node of real threads


def right(simulation: Simulation) -> None:
    """Three clients count together, under a lock."""
    count = 0

    def add() -> None:
        nonlocal count
        with locks.Lock(("count",)):
            count += 1

    for _ in range(3):
        simulation.client(add)
    simulation.run()
    assert count == 3


def wrong(simulation: Simulation) -> None:
    """The last one is not counted."""
    right(simulation)
    raise AssertionError("one is missing")


def test_threads_that_are_stuck_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end is told after the time limit, and what a thread raises at its end."""

    def stuck(simulation: Simulation) -> None:
        simulation.client(never.wait)
        simulation.run()

    def failing(simulation: Simulation) -> None:
        simulation.client(lambda: 1 / 0)
        simulation.run()

    never = threading.Event()
    monkeypatch.setattr(finding, "STUCK", 0.0)
    try:
        with pytest.raises(AssertionError, match="threads are stuck"):
            finding.with_threads(stuck)
    finally:
        never.set()
    monkeypatch.undo()
    with pytest.raises(ZeroDivisionError):
        finding.with_threads(failing)
