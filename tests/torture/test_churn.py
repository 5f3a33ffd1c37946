"""Ownership under churn (`churn`)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.helpers import EXPLORE, ROOT, SEED


def churn(seed: int, seconds: float, *options: str) -> dict[str, Any]:
    """Let workers come and go in a process of its own; what it says."""
    command = [
        "-m",
        "tests.torture.churn",
        "--seed",
        str(seed),
        "--seconds",
        str(seconds),
        *options,
    ]
    print(" ".join(["python", *command]))
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, f"it hung, or broke down ({done.returncode}):\n{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def judge(found: dict[str, Any]) -> None:
    """All is well."""
    assert not found["problems"], found
    assert found["done"] > 100
    assert found["joined"] > 10


def test_churn() -> None:
    """Half a second: no two at once, each task done once or set aside, in order."""
    judge(churn(SEED, 0.5))


@pytest.mark.explore
@pytest.mark.parametrize("number", range(10 if EXPLORE else 2))
def test_more_churn(number: int) -> None:
    """The same for longer."""
    judge(churn(SEED + number, 60 if EXPLORE else 10))


def test_churn_finds_two_at_once() -> None:
    """If groups are let go with a task at hand, it says so."""
    problems = churn(SEED, 30, "--wrong")["problems"]
    assert any("at once" in each or "not alone" in each or "after" in each for each in problems)
