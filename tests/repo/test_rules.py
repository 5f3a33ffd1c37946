"""Each rule of the algorithm has a test in the pure layer that is found by its words (tests/README.md)."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
README = (TESTS / "README.md").read_text(encoding="utf-8")


def rows(text: str) -> dict[str, tuple[list[str], list[str]]]:
    """The rows of the table of rules: the expressions for `-k`, and the files."""
    table = text[text.index("| Rule | `-k` |") :].split("\n\n")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]
    code = re.compile("`([^`]+)`")
    return {rule: (code.findall(k), code.findall(files)) for rule, k, files in cells if k}


def names(file: str) -> list[str]:
    """The tests of a file that `make test` runs, as `-k` sees them."""
    path = TESTS / file if "/" in file else TESTS / "unit" / file
    found: list[tuple[str, str]] = re.findall(
        r"^((?:@.*\n(?:[ )\]].*\n)*)*)def (test_\w+)", path.read_text(encoding="utf-8"), re.M
    )
    left_out = re.compile(r"^@pytest\.mark\.(slow|explore)$", re.M)
    return [f"{path.name}::{name}" for marks, name in found if not left_out.search(marks)]


def missing(expressions: list[str], files: list[str]) -> list[str]:
    """Which of these find no test there."""
    there = [name for file in files for name in names(file)]
    return [
        each
        for each in expressions
        if not any(all(word in name for word in each.split(" and ")) for name in there)
    ]


def test_each_rule_has_a_test_of_its_name() -> None:
    """What the table gives for `-k` finds a test in the file that it names, in `unit` or `model`."""
    for rule, (expressions, files) in rows(README).items():
        assert expressions, rule
        assert all(file.startswith("model/") or "/" not in file for file in files), rule
        assert missing(expressions, files) == [], rule


def test_a_rule_without_a_test_is_found() -> None:
    """The check can fail: for words that no test has, and words of several tests."""
    assert missing(["no_such_rule", "versions_rise"], ["test_lock_table.py"]) == ["no_such_rule"]
    assert missing(["versions_rise and removal"], ["test_lock_table.py"])
