"""What is counted of other nodes, and how links take turns."""

from __future__ import annotations

import pytest

from locks.otp import budgets
from locks.otp.budgets import (
    ALONE,
    LONG,
    LONGEST_PAUSE,
    PART,
    SAVED,
    SLICE,
    TOGETHER,
    OverBudget,
    Pace,
    Share,
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


class Clock:
    """Time that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """What shares grow by."""
    return Clock()


def two(pace: Pace) -> tuple[Share, Share]:
    """The shares of two nodes that both bring something."""
    one, other = pace.share("one"), pace.share("other")
    pace.served(one, 0.0)
    pace.served(other, 0.0)
    return one, other


def test_who_has_used_little_never_waits(clock: Clock) -> None:
    """Some work at once is for nothing, and so is a part of the time, for ever."""
    pace = Pace(clock.monotonic)
    one, other = two(pace)
    for _ in range(int(0.9 * SAVED / SLICE)):
        pace.served(one, SLICE)
        assert not pace.pause(one)
    for _ in range(10_000):
        clock.now += SLICE / PART
        pace.served(one, SLICE)
        pace.served(other, 0.0)
        assert not pace.pause(one)


def test_a_flood_gets_a_part_of_the_time(clock: Clock) -> None:
    """However it is used, in the long run; the other one never waits."""
    pace = Pace(clock.monotonic)
    one, other = two(pace)
    begin, used = clock.now, 0.0
    while used < 10:
        pace.served(one, SLICE)
        pace.served(other, 0.0)
        used += SLICE
        clock.now += max(SLICE, pace.pause(one))
        assert not pace.pause(other)
    assert (used - SAVED) / (clock.now - begin) == pytest.approx(PART, rel=0.05)


@pytest.mark.parametrize("took", [0.001, 0.004, 0.008, 0.02, 0.05])
def test_what_can_not_be_divided_costs_more(clock: Clock, took: float) -> None:
    """Who comes while messages of any length flood in waits for half a millisecond on average; who sends them, for some seconds."""
    pace = Pace(clock.monotonic)
    one, other = two(pace)
    begin, used = clock.now, 0.0
    while used < 500 * took:
        pace.served(one, took)
        pace.served(other, 0.0)
        used += took
        pause = pace.pause(one)
        assert pause <= LONGEST_PAUSE
        clock.now += max(took, pause)
    part = used / (clock.now - begin + SAVED / PART)
    assert part * took / 2 <= 1.01 * PART * LONG / 2


def test_a_crowd_is_not_held_up(clock: Clock) -> None:
    """What some milliseconds follow from is served for a tenth of the time or more: nodes that wait for it wait no longer."""
    pace = Pace(clock.monotonic)
    one, other = two(pace)
    begin, used = clock.now, 0.0
    for _ in range(10_000):
        pace.served(one, 0.005)
        pace.served(other, 0.0)
        used += 0.005
        clock.now += max(0.005, pace.pause(one))
    assert used / (clock.now - begin) > 1 / 10


def test_what_takes_long_now_and_then_is_forgiven(clock: Clock) -> None:
    """It may be nobody's fault: once a second anything may take long, and nobody waits for that."""
    pace = Pace(clock.monotonic)
    one, other = two(pace)
    for _ in range(100):
        pace.served(one, 0.05)
        assert not pace.pause(one)
        for _ in range(110):
            clock.now += 0.01
            pace.served(one, 0.0001)
            pace.served(other, 0.0)
            assert not pace.pause(one)
    pace.served(one, 0.1)
    pace.served(one, 0.1)
    assert pace.pause(one) == LONGEST_PAUSE


def test_who_is_alone_never_waits(clock: Clock) -> None:
    """Time that nobody else wants costs nothing, also if somebody wants some later."""
    pace = Pace(clock.monotonic)
    one = pace.share("one")
    for _ in range(100):
        pace.served(one, 1.0)
        clock.now += 1.0
        assert not pace.pause(one)
        assert one.moment == ALONE
    pace.served(pace.share("other"), 0.0)
    assert not pace.pause(one)
    pace.served(one, 1.0)
    pace.served(one, 1.0)
    assert one.moment == SLICE
    assert pace.pause(one)
    clock.now += TOGETHER + LONGEST_PAUSE
    assert not pace.pause(one)


def test_a_share_outlives_connections(clock: Clock) -> None:
    """Who connects again has to go on waiting; who has used nothing for long is forgotten."""
    pace = Pace(clock.monotonic)
    one, _ = two(pace)
    pace.served(one, 1.0)
    pace.served(one, 1.0)
    assert pace.share("one") is one
    for number in range(budgets.KEPT):
        pace.share(f"n{number}")
    assert pace.share("one") is one
    assert len(pace._shares) < budgets.KEPT


def test_what_is_done_for_another_one_is_told_apart(clock: Clock) -> None:
    """Whoever happens to have the turn does not pay for telling those who watch."""
    pace = Pace(clock.monotonic)
    share = pace.share("watcher")
    pace.served_elsewhere(share, 0.0005)
    assert pace.elsewhere == 0.0005
    assert share.left < SAVED
