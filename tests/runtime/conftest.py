"""Fixtures for the tests of the runtime layer."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def run_script() -> Callable[[str], str]:
    """Run a script in a fresh interpreter and return what it printed; its stderr must be empty."""

    def run(script: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.stderr == ""
        assert done.returncode == 0
        return done.stdout

    return run
