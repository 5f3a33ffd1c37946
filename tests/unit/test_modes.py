"""The table of modes in `locks.model`, and what follows from it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from locks.errors import InvalidOption
from locks.model import COVERING, MODES, RIVALS, check_mode, covers, excluded_by, join

PAGE = Path(__file__).parents[2] / "docs" / "algorithm.md"


def test_readers_share_and_writers_exclude() -> None:
    """What the table must say of the two modes that users know."""
    assert "read" not in excluded_by("read")
    assert excluded_by("write") == set(MODES)
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


def test_the_page_has_the_same_table() -> None:
    """`docs/algorithm.md` says which modes conflict; it is compared with the code."""
    rows = re.findall(
        r"^\| \*\*(\w+)\*\* \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    page = {mode: [cell.strip() for cell in cells.split("|")] for mode, cells in rows}
    weakest_first = MODES[::-1]
    assert page == {
        mode: ["one waits" if other in RIVALS[mode] else "together" for other in weakest_first]
        for mode in weakest_first
    }
