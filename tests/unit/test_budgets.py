"""What is counted of other nodes, and how links take turns."""

from __future__ import annotations

import time

import pytest

from locks.otp import budgets
from locks.otp.budgets import (
    BREATH,
    BURST,
    LONG,
    LONGEST_PAUSE,
    OverBudget,
    Pace,
    Tally,
    check_budget,
)


def test_a_budget_is_named() -> None:
    """What is one too many says of what, and how many there may be."""
    check_budget(1000, 1000, "watches")
    with pytest.raises(OverBudget, match="it has more than 1,000 watches here"):
        check_budget(1001, 1000, "watches")


def test_a_tally_knows_what_is_gone() -> None:
    """Things may come and go for ever, as long as there are never too many at once."""
    there: set[int] = set()
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return len(there)

    tally = Tally(10, "things", count)
    for number in range(1000):
        tally.add()
        there.add(number)
        there.discard(number - 5)
    assert counted <= 1000 / 4
    assert len(there) == 5
    text = ""
    while not text:
        try:
            tally.add()
        except OverBudget as error:
            text = str(error)
        else:
            there.add(len(there) + 9000)
    assert "more than 10 things" in text
    assert 10 <= len(there) <= 11


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    """With two links that bring something."""
    made = Pace()
    made.pause("one", 0.0, 0, 60)
    made.pause("other", 0.0, 0, 60)
    return made


def test_who_has_little_never_waits(pace: Pace) -> None:
    """Messages that take a moment, and bursts of them, are taken in at once."""
    assert pace.pause("one", LONG, 0, 60) == 0
    assert pace.pause("one", 0.0, BURST, 60) == 0


def test_a_flood_waits_between_its_moments(pace: Pace) -> None:
    """Who is behind all the time lets others go first."""
    assert pace.pause("one", 0.0, BURST + 1, 60) == BREATH


def test_what_took_long_waits_many_times_as_long(pace: Pace) -> None:
    """But not so long that it would seem dead."""
    assert pace.pause("one", 0.02, 0, 60) == pytest.approx(2)
    assert pace.pause("one", 5.0, 0, 60) == LONGEST_PAUSE
    assert pace.pause("one", 5.0, 0, 2) == 0.5


def test_who_is_alone_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nobody else brings anything, nobody is to be protected."""
    now = 100.0
    monkeypatch.setattr(budgets.time, "monotonic", lambda: now)
    pace = Pace()
    pace.pause("one", 0.0, 0, 60)
    assert pace.pause("one", 1.0, 0, 60) > 0  # it is not known yet
    assert pace.moment("one") == budgets.SLICE
    now += budgets.TOGETHER + 0.1
    assert pace.pause("one", 1.0, 1000, 60) == 0
    assert pace.moment("one") == budgets.ALONE
    assert pace.moment("other") == budgets.SLICE
    pace.pause("other", 0.0, 0, 60)
    assert pace.pause("one", 1.0, 0, 60) > 0


def test_what_is_done_for_others_is_told_apart() -> None:
    """Whoever happens to have the turn does not pay for telling those who watch, not even if that fails."""
    pace = Pace()

    def work() -> None:
        until = time.thread_time() + LONG
        while time.thread_time() < until:
            pass
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pace.for_others(work)
    assert pace.for_others_took >= LONG
