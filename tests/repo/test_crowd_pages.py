"""What pages show of crowds is what was measured; the numbers that the figures of crowds are made of are right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

import pytest

from benchmarks.crowd import Served, choices, opposite
from benchmarks.crowd_pages import PAGES, pictures, tables
from benchmarks.crowd_servers import out_of_order, percentile, slowed
from benchmarks.performance import IMAGES

REWRITE = "write the pages anew: python -m benchmarks.crowd_pages --write"


def test_tables_of_crowds_are_what_was_measured() -> None:
    """Each table on a page is the one that is made of the figures, and has rows."""
    for name, table in tables().items():
        assert table.count("\n") > 2, name
        text = PAGES[name].read_text(encoding="utf-8")
        assert f"<!-- table: {name} -->\n\n{table}\n" in text, REWRITE


def test_plots_of_crowds_show_what_was_measured() -> None:
    """Each plot is the one that is made of the figures, and a page shows it."""
    pages = "".join(page.read_text(encoding="utf-8") for page in set(PAGES.values()))
    for name, text in pictures().items():
        assert (IMAGES / name).read_text(encoding="utf-8") == text, REWRITE
        assert f"](img/{name})" in pages
        assert xml.fromstring(text).tag.endswith("svg")


@pytest.mark.parametrize(
    ("served", "share"),
    [
        ([], 0),
        ([(0, 1, 0), (1, 2, 0), (2, 3, 0)], 0),
        ([(0, 3, 0), (1, 2, 0), (2, 1, 0)], 1),
        ([(0, 1, 0), (1, 3, 0), (2, 2, 0)], 1 / 3),
        ([(0, 9, 0), (1, 2, 1)], 0),
    ],
)
def test_overtaking_is_counted_for_each_lock(
    served: list[tuple[float, float, int]], share: float
) -> None:
    """The share of pairs that were served in the other order than they asked: of one lock, not of two."""
    assert out_of_order(served) == share


def test_percentile_of_few_is_the_largest() -> None:
    """Of fewer than a hundred numbers the 99th percentile is the largest one."""
    assert percentile([3, 1, 2], 99) == 3
    assert percentile(range(1000), 99) == 990


def test_a_crowd_is_described_by_time_gap_and_fairness() -> None:
    """From the begin: the last grant, the longest time without one, and the longest wait over the mean one."""
    served = Served([[(9.0, 11.0, 0), (9.0, 12.0, 0)], [(9.5, 15.0, 0)]], begun=10.0)
    assert served.took == 5
    assert served.gap == 3
    assert served.fairness().startswith("longest/mean wait by program 1.33, 1.00;")


def test_crowds_want_what_the_figures_say() -> None:
    """Every other client has the opposite order; drawn ids are the same in each run, and sorted where they are to be."""
    first, second, third = opposite(3, same=False)
    assert first == second[::-1] == third
    assert len({tuple(wanted) for wanted in opposite(3, same=True)}) == 1
    drawn, ordered = choices(10, 1, in_order=False), choices(10, 1, in_order=True)
    assert all(len(set(wanted)) == 3 for wanted in drawn)
    assert all(wanted == sorted(wanted) for wanted in ordered)
    assert any(wanted != sorted(wanted) for wanted in drawn)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are slowed as Linux does it")
def test_a_slowed_process_goes_on_afterwards() -> None:
    """A process that was slowed is not left stopped, and one that is slowed once is not touched."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            for times in (1, 5):
                with slowed([process.pid], times):
                    pass
            state = "T"
            while state == "T":
                with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
                    state = file.read().rpartition(")")[2].split()[0]
                time.sleep(0)
        finally:
            os.kill(process.pid, signal.SIGKILL)
