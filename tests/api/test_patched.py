"""The same tests once more, in a program that is monkey-patched by gevent."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import locks
from tests.api.clients import PATCHED

HERE = pathlib.Path(__file__).parent

PROGRAM = """
from gevent import monkey; monkey.patch_all()
import sys, pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.skipif(PATCHED, reason="this is the patched process")
@pytest.mark.parametrize(
    "name", sorted(p.name for p in HERE.glob("test_*.py") if p.name != "test_patched.py")
)
def test_passes_when_patched(name: str) -> None:
    """Every script of this folder passes under `gevent.monkey.patch_all()`."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "-q", "-p", "no:cacheprovider", str(HERE / name)],
        cwd=HERE.parents[1],
        env={**os.environ, "LOCKS_PATCHED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_nothing_is_patched_by_importing_locks() -> None:
    """Importing `locks` patches nothing."""
    from gevent import monkey

    assert locks.__version__
    assert monkey.is_module_patched("threading") == PATCHED
