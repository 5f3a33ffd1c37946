"""How far versions of other nodes may be ahead of the clock, and what that means for those who are honest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.net import versions
from locks.net.messages import BadMessage
from locks.net.versions import ASKED, DAY, TAKEN, TOLD, check_version, seconds_ahead, taken_over

NOW = 1_800_000_000 * 1_000_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still."""
    monkeypatch.setattr(versions, "now", lambda: NOW)
    monkeypatch.setattr(versions, "_known_good", 0)


@pytest.mark.parametrize("version", [0, 1, NOW, NOW + TOLD])
def test_honest_versions_pass(version: int) -> None:
    """From nothing to two days ahead of the clock."""
    assert check_version(version) == version


@pytest.mark.parametrize("version", [NOW + TOLD + 1, 2**62, 2**63 - 1])
def test_others_are_refused(version: int) -> None:
    """What is too far ahead; the refusal is short, and says what to do about it."""
    with pytest.raises(BadMessage, match="correct the clocks") as raised:
        check_version(version)
    assert len(str(raised.value)) < 200


def test_a_version_that_passed_passes_quickly_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is not asked for each version: those of the last days have passed before."""
    check_version(NOW)
    monkeypatch.setattr(versions, "now", lambda: 1 / 0)
    check_version(NOW + TOLD)
    check_version(NOW - 5)


@given(st.integers(0, 2**64), st.integers(-DAY, DAY))
def test_nobody_is_pushed_so_far_that_another_one_refuses_it(pushed: int, skew: int) -> None:
    """What a node takes over of whatever it is told, others accept whose clocks differ by less than a day."""
    version = taken_over(pushed)
    theirs = NOW + skew
    assert version <= NOW + TAKEN
    assert version <= theirs + TOLD  # told in a greeting or a record
    assert min(pushed, NOW + TOLD) <= theirs + ASKED  # what an agent here believes, and asks there


def test_what_is_early_waits() -> None:
    """A version waits until the clock is a day behind it, and no longer."""
    assert seconds_ahead(NOW + TAKEN) == 0
    assert seconds_ahead(NOW + TAKEN + 2_500_000) == 2.5


def test_versions_fit_63_bits_for_long() -> None:
    """The largest that can be asked for fits a database's bigint for a quarter of a million years."""
    year = 365 * DAY
    assert NOW + ASKED + 250_000 * year < 1 << 63
