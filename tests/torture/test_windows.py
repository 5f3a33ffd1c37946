"""Interrupted acquires (`windows`): none leaves a lock behind."""

from __future__ import annotations

import pytest

from tests.helpers import EXPLORE, SEED
from tests.torture.windows import CELLS, CLOSED, FORMS, KINDS, measure


def judge(kind: str, number: int, forms: tuple[str, ...]) -> None:
    """Measure some forms under one kind of interruption."""
    cells = [cell for cell in CELLS if cell[0] == kind and cell[1] in forms]
    found = list(measure(cells, number, SEED, 30 + number / 200))
    for cell in found:
        print(cell)
    bad = [
        cell for cell in found if cell.form in CLOSED and (cell.left or cell.lost or cell.errors)
    ]
    assert not bad, "\n".join(map(str, bad))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_acquire_leaves_nothing(kind: str) -> None:
    """Of 100 of each form of block."""
    judge(kind, 100, CLOSED)


@pytest.mark.explore
@pytest.mark.parametrize("kind", KINDS)
def test_many_interrupted_acquires_leave_nothing(kind: str) -> None:
    """Of 2,000 of each form of block."""
    judge(kind, 2000, CLOSED)


@pytest.mark.explore
@pytest.mark.skipif(not EXPLORE, reason="takes long: set LOCKS_EXPLORE=1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_thousand_interrupted_acquires_leave_nothing(kind: str) -> None:
    """Of each form of block; what `acquire()` before `try` leaves is printed, with `threading.Lock` beside it."""
    judge(kind, 100_000, tuple(FORMS))
