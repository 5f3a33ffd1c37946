"""Endurance (`endurance`): memory is flat, and nothing is left, after very many transactions under storms."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.helpers import EXPLORE, ROOT
from tests.torture.endurance import Round, growing


def endure(*arguments: str) -> list[Round]:
    """Play rounds in a process of its own; nothing may go wrong or grow."""
    command = [sys.executable, "-m", "tests.torture.endurance", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rounds = [Round(*json.loads(line)) for line in done.stdout.splitlines()]
    assert rounds, done.stderr
    problems = rounds[-1].problems
    assert not problems, problems
    assert done.returncode == 0, done.stderr
    print(f"{rounds[-1].steps} transactions, {rounds[-1].resident >> 20} MiB")
    assert not growing(rounds), growing(rounds)
    return rounds


@pytest.mark.explore
@pytest.mark.skipif(not EXPLORE, reason="takes long: set LOCKS_EXPLORE=1")
def test_storms_leave_nothing() -> None:
    """For a minute (`LOCKS_ENDURANCE` says how many): no type of object becomes more, and memory is flat."""
    rounds = endure("--minutes", os.environ.get("LOCKS_ENDURANCE", "1"), "--seconds", "3")
    assert rounds[-1].steps > 100


def test_growth_is_noticed() -> None:
    """The judge can fail: it sees a type that becomes more, and memory that does."""
    flat = [Round("x", i, 50 << 20, {"locks.actors.Agent": 2}, []) for i in range(9)]
    assert growing(flat) == []
    more = [
        each._replace(objects={"locks.actors.Agent": 2 + 20 * i}) for i, each in enumerate(flat)
    ]
    assert len(growing(more)) == 1
    fat = [each._replace(resident=(50 + 10 * i) << 20) for i, each in enumerate(flat)]
    assert len(growing(fat)) == 1
