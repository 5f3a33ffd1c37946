"""The exercises: the solutions are right, what is not filled in is not, and a wrong answer is refused."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import Any

import pytest

from examples.cautionary_tale.drafts import DRAFTS
from examples.exercises import test_exercises as sheet
from tests.examples.exercise_solutions import SOLUTIONS
from tests.helpers import ROOT

CHECKS = [
    *((sheet.test_answers, (number,)) for number in range(1, 13)),
    *(
        (check, ())
        for name, check in inspect.getmembers(sheet)
        if name[5:].startswith(("9", "10", "11"))
    ),
    *((sheet.test_12_a_draft_fails, (draft,)) for draft in DRAFTS if draft.name in sheet.FAILURES),
]


@pytest.mark.parametrize(("check", "arguments"), CHECKS)
def test_the_solution_is_right_and_the_empty_sheet_is_not(
    check: Any, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check fails before something is filled in, and passes with the solution."""
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(*arguments)
    for name, value in SOLUTIONS.items():
        monkeypatch.setattr(sheet, name, value)
    check(*arguments)


@pytest.mark.slow
def test_each_process_collects_the_same() -> None:
    """Or `pytest -n 2 examples/exercises` would refuse to run: hashes and addresses differ between processes."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    found = [
        subprocess.run(  # a warm program would have the hashes of this one
            [*command, "examples/exercises"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        ).stdout.splitlines()[:-1]
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len(found[0]) >= len(CHECKS)
