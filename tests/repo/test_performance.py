"""`docs/performance.md` shows what was measured: its tables and plots are made from `benchmarks/measured`."""

from __future__ import annotations

import xml.etree.ElementTree as xml

from benchmarks.performance import IMAGES, PAGE, pictures, read, tables

REWRITE = "write the page anew: python -m benchmarks.performance --write"
TEXT = PAGE.read_text(encoding="utf-8")


def test_tables_are_what_was_measured() -> None:
    """Each table is the one that is made of the figures, and has rows."""
    for name, table in tables(read()).items():
        assert table.count("\n") > 2, name
        assert f"<!-- table: {name} -->\n\n{table}\n" in TEXT, REWRITE


def test_plots_show_what_was_measured() -> None:
    """Each plot is the one that is made of the figures, and the page shows it."""
    for name, text in pictures(read()).items():
        assert (IMAGES / name).read_text(encoding="utf-8") == text, REWRITE
        assert f"](img/{name})" in TEXT
        assert xml.fromstring(text).tag.endswith("svg")
