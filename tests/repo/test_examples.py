"""The examples are programs that run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def check(path: Path) -> None:
    """Run the program in a process of its own; fail unless it ends well and says something."""
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), f"{path.name} printed nothing"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path: Path) -> None:
    """Each example ends with exit status 0 within a minute and prints something."""
    check(path)


@pytest.mark.parametrize("program", ["print('hello'); raise SystemExit(1)", "pass"])
def test_check_can_fail(program: str, tmp_path: Path) -> None:
    """A program that fails, and one that says nothing, are found."""
    path = tmp_path / "example.py"
    path.write_text(program, encoding="utf-8")
    with pytest.raises(AssertionError):
        check(path)
