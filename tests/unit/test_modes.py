"""The table of modes in `locks.model`, and what follows from it."""

from __future__ import annotations

from itertools import product

import pytest

from locks.errors import InvalidOption
from locks.model import COVERING, EXCLUDED_BY, MODES, RIVALS, check_mode, covers, join


def test_readers_share_and_writers_exclude() -> None:
    """What the table must say of the two modes that users know."""
    assert "read" not in EXCLUDED_BY["read"]
    assert EXCLUDED_BY["write"] == set(MODES)
    assert covers("write", "read")
    assert not covers("read", "write")
    assert join("read", "write") == join("write", "read") == "write"
    assert join("read", "read") == "read"


def test_conflicts_go_both_ways() -> None:
    """If a mode excludes another one, that one excludes it; and each mode excludes something."""
    for one, other in product(MODES, repeat=2):
        assert (one in RIVALS[other]) == (other in RIVALS[one])
    assert all(RIVALS.values())


def test_cover_is_an_order_with_joins() -> None:
    """Two modes never cover each other, and a join is covered by all that covers both of its parts."""
    for one, other in product(MODES, repeat=2):
        assert one == other or not (covers(one, other) and covers(other, one))
        both = join(one, other)
        above = [mode for mode in MODES if covers(mode, one) and covers(mode, other)]
        assert both in above
        assert all(covers(mode, both) for mode in above)


def test_the_strongest_mode_comes_first() -> None:
    """It covers all, and in each of the tables no mode comes before one that covers it."""
    assert all(covers(MODES[0], mode) for mode in MODES)
    for modes in (MODES, *RIVALS.values(), *COVERING.values()):
        for i, mode in enumerate(modes):
            assert not any(covers(later, mode) for later in modes[i + 1 :])


def test_other_words_are_refused() -> None:
    """And the error names all modes."""
    assert [check_mode(mode) for mode in MODES] == list(MODES)
    with pytest.raises(
        InvalidOption, match="use " + " or ".join(f'"{m}"' for m in reversed(MODES))
    ):
        check_mode("wirte")
