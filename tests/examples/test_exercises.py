"""The exercises: the solutions are right, what is not filled in is not, and a wrong answer is refused."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from examples.cautionary_tale.drafts import DRAFTS
from examples.exercises import test_exercises as sheet
from tests.examples.exercise_solutions import SOLUTIONS

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
