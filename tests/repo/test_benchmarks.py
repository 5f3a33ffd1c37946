"""The benchmarks run. How fast anything is, is not tested: machines differ."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.warm import run_program

FIGURES = [
    *("transaction", "nth", "shared", "rings", "table", "memory", "handover", "bank"),
    *("remote", "quorum", "crowd_nodes"),
    *("candidates", "leader", "takeover"),
    *("owned", "owners", "mvcc", "store", "spokes", "clients", "placed", "placed_rings"),
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
