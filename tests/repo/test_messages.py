"""The figures of `docs/messages.md` are what `python -m benchmarks.messages` counts.

Small sizes are counted again. The plots are compared with the tables that they show.
"""

from __future__ import annotations

import xml.etree.ElementTree as xml

import pytest

from benchmarks.messages import PAGE, TABLES, columns, markdown, plots, rewritten

TEXT = PAGE.read_text(encoding="utf-8")
SMALL = {
    "together": (2, 3, 4, 5, 6, 8, 10, 15, 20),
    "at random": (2, 3, 4, 5, 6, 8, 10),
    "over spokes": (3, 4, 5, 6, 8),
    "handed on": (1, 2, 5, 10, 20),
    "left stuck": (2, 3, 4),
}
REWRITE = "write the tables anew: python -m benchmarks.messages --write"


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_tables_are_what_is_counted(name: str) -> None:
    """The rows for small sizes are the first ones of the table on the page."""
    counted = markdown(TABLES[name][0](SMALL[name]))
    assert f"<!-- table: {name} -->\n\n{counted}\n" in TEXT, f"{REWRITE}\n{counted}"


def test_plots_show_the_tables() -> None:
    """Each plot is the one that is made of the tables, and the page shows it."""
    for name, text in plots(TEXT).items():
        assert (PAGE.parent / "img" / name).read_text(encoding="utf-8") == text, REWRITE
        assert f"](img/{name})" in TEXT
        assert xml.fromstring(text).tag.endswith("svg")


def test_the_page_says_what_the_figures_say() -> None:
    """What is claimed in words holds in the tables."""
    together, random = columns(TEXT, "together"), columns(TEXT, "at random")
    sizes = together["agents"]
    assert together["ours, until found"] == [0, *(size - 1 for size in sizes[1:])]
    assert together["ours"] == [0, *(2 * (size - 1) for size in sizes[1:])]
    spokes = columns(TEXT, "over spokes")
    assert spokes["one"] == spokes["2 (K - 1)"] == [2 * (size - 1) for size in spokes["agents"]]
    pairs = zip(spokes["one, at random"], spokes["one"], strict=True)
    assert all(mixed <= 1.3 * one for mixed, one in pairs)
    for table in (together, random):
        assert table["with the lock server"] == [2 * size + 2 for size in sizes]
        assert table["larger"][-1] > 2 * table["ours"][-1]
        assert table["everyone"][-1] > sizes[-1] ** 2
    assert set(columns(TEXT, "handed on")["ours"]) == {2}
    assert set(columns(TEXT, "left stuck")["ours: runs"]) == {0}


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    """A table takes the place of the one before, and is never written nowhere."""
    text = "before\n<!-- table: x -->\n<!-- end -->\nafter"
    for table in ("| 1 |", "| 2 |"):
        text = rewritten(text, {"x": table})
        assert text == f"before\n<!-- table: x -->\n\n{table}\n\n<!-- end -->\nafter"
    with pytest.raises(ValueError, match="no place for the table 'y'"):
        rewritten(text, {"y": "| 3 |"})
