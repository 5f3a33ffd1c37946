"""The same tests once more, in a program that is monkey-patched by gevent."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable

import pytest

import locks
from tests.api.clients import PATCHED
from tests.helpers import EXPLORE

HERE = pathlib.Path(__file__).parent

PROGRAM = """
from gevent import monkey; monkey.patch_all()
import sys, pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


FILES = sorted(p.name for p in HERE.glob("test_*.py") if p.name != "test_patched.py")

# What can differ in a patched program: its threads are greenlets of one hub. Clients that are greenlets
# anyway live in such a hub in a program that is not patched, too.
THREADS = "not greenlets and not gevent_actors"
# It has a process of its own, which is not patched.
SAME = {"test_cli.py"}
# They count, simulate, start programs, or interrupt at many places, or have little to do with threads.
LONG = {
    name for name in FILES if name.startswith("test_testing") and name != "test_testing_patched.py"
} | {
    "test_actors.py",
    "test_annotations.py",
    "test_election_interrupted.py",
    "test_exports.py",
    "test_first_use.py",
    "test_help.py",
    "test_leaks.py",
    "test_misuse.py",
    "test_original_faults.py",
    "test_ownership_tasks.py",
    "test_rings.py",
    "test_running_again.py",
    "test_shapes.py",
    "test_surrender_in_crowds.py",
}


def run_patched(names: Iterable[str], *arguments: str) -> None:
    """Run files of this folder in a patched process."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            "-q",
            *("-p", "no:hypothesispytest", "-p", "no:cacheprovider"),
            *arguments,
            *(str(HERE / name) for name in names),
        ],
        cwd=HERE.parents[1],
        env={**os.environ, "LOCKS_PATCHED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(PATCHED, reason="this is the patched process")
def test_all_pass_when_patched() -> None:
    """The scripts of this folder whose clients are threads pass under `monkey.patch_all()`: one after the other, in one process."""
    names = [name for name in FILES if name not in SAME | LONG]
    run_patched(names, "-n", "0", "-m", "not explore", "-k", THREADS)


@pytest.mark.explore
@pytest.mark.skipif(PATCHED, reason="this is the patched process")
@pytest.mark.parametrize("name", sorted(LONG.intersection(FILES)))
def test_the_long_ones_pass_when_patched(name: str) -> None:
    """So do the others, each in a process of its own."""
    run_patched([name], "-m", "not explore", "-k", THREADS)


@pytest.mark.explore
@pytest.mark.skipif(not EXPLORE, reason="takes minutes: set LOCKS_EXPLORE=1")
@pytest.mark.skipif(PATCHED, reason="this is the patched process")
@pytest.mark.parametrize("name", FILES)
def test_all_of_it_passes_when_patched(name: str) -> None:
    """So does every script of this folder, with clients of every kind."""
    run_patched([name])


def test_nothing_is_patched_by_importing_locks() -> None:
    """Importing `locks` patches nothing."""
    from gevent import monkey

    assert locks.__version__
    assert monkey.is_module_patched("threading") == PATCHED
