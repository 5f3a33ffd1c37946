"""The page that says in which programs `locks` works: each line names a test that is there, and each program is shown and run."""

from __future__ import annotations

import re

from tests.programs.test_jobs import ENGINES, JOBS
from tests.repo.test_docs import ROOT

PAGE = (ROOT / "docs" / "programs.md").read_text(encoding="utf-8")


def missing(text: str) -> list[str]:
    """The tests that a text names and that are not there."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    return [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or f"def {name}(" not in (ROOT / path).read_text("utf-8")
    ]


def test_each_line_has_a_test() -> None:
    """Each line of the table ends with the name of a test that is there."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 15
    assert [line for line in lines if not re.search(r"\| `tests/\S+::\w+` \|$", line)] == []
    assert missing(PAGE) == []
    assert missing("`tests/api/test_compat.py::test_no`") == ["tests/api/test_compat.py::test_no"]


def test_each_program_is_shown_and_run() -> None:
    """Each program in `jobs/` is on the page, with the command that the test runs."""
    programs = {path.stem for path in JOBS.glob("*_jobs.py")}
    assert programs == {f"{name}_jobs" for name in ENGINES}
    shown = set(re.findall(r"cat tests/programs/jobs/(\w+)\.py", PAGE))
    assert shown == programs
    assert set(re.findall(r"^\$ (.*)$", PAGE, re.M)) == {each.start for each in ENGINES.values()}
