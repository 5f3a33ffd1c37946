"""`tests/pairs.md`: each pair of mechanisms is there once, and each test that it names."""

from __future__ import annotations

import itertools
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "pairs.md").read_text("utf-8")
NAMES, TESTED, UNTESTED = PAGE.split("\n## ")[0], *PAGE.split("\n## ")[1:3]


@cache
def functions(file: str) -> set[str]:
    """The tests of a file."""
    return set(re.findall(r"def (test_\w+)\(", (TESTS / file).read_text("utf-8")))


def test_each_pair_is_there_once() -> None:
    """As tested, or as not tested; a new mechanism needs a line for each other one."""
    names = re.findall(r"^\| ([a-z]+) \| ", NAMES, re.M)
    pairs = re.findall(r"^\| ([a-z]+) \| ([a-z]+) \| `", TESTED, re.M)
    pairs += re.findall(r"^- ([a-z]+) \+ ([a-z]+)$", UNTESTED, re.M)
    wanted = sorted(tuple(sorted(pair)) for pair in itertools.combinations(names, 2))
    assert sorted(tuple(sorted(pair)) for pair in pairs) == wanted


@pytest.mark.parametrize("test", sorted(set(re.findall(r"`(\w+/\w+\.py::\w+)`", PAGE))))
def test_each_test_is_there(test: str) -> None:
    """It has this name, in this file."""
    file, name = test.split("::")
    assert name in functions(file)
