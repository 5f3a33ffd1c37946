"""The page about engines shows programs that run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.helpers import LIMIT, ROOT
from tests.repo.test_docs import blocks
from tests.warm import run_program


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["distributed", "ray"])
def test_the_program_of_an_engine_runs(engine: str, tmp_path: Path) -> None:
    """It ends well, as a program of its own."""
    pytest.importorskip(
        engine, reason=f"{engine} is not installed: pip install 'pykka-locks[dask,ray]'"
    )
    page = (ROOT / "docs" / "engines.md").read_text("utf-8")
    shown = [block.body for block in blocks(page) if block.language == "python"]
    (body,) = (each for each in shown if f"import {engine}" in each or f"from {engine}" in each)
    program = tmp_path / "program.py"
    program.write_text(body)
    done = run_program(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        timeout=2 * LIMIT,
    )
    assert done.returncode == 0, done.stderr
