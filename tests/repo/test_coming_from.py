"""The page for those who come from other libraries says nothing of `locks` that is not there, and shows what is printed."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import locks
import locks_leader
from tests.repo.test_docs import ROOT, blocks, program

PAGE = ROOT / "docs" / "coming_from.md"
OURS = {"locks": locks, "locks_leader": locks_leader}


def missing(text: str) -> list[str]:
    """The names of `locks` and `locks_leader` in a text that are nothing."""
    found = []
    for name in sorted(set(re.findall(r"\b(?:locks|locks_leader)(?:\.[A-Za-z_]\w*)+", text))):
        top, *rest = name.split(".")
        thing: object = OURS[top]
        for part in rest:
            try:
                thing = getattr(thing, part)
            except AttributeError:
                try:
                    thing = importlib.import_module(f"{top}.{part}")
                except ImportError:
                    found.append(name)
                    break
    return found


def test_each_counterpart_is_there() -> None:
    """Each name of `locks` and `locks_leader` on the page is one that programs can use."""
    assert missing(PAGE.read_text(encoding="utf-8")) == []


def test_a_counterpart_that_is_not_there_is_found() -> None:
    """The check can fail: for a name, and for an attribute of one."""
    assert missing("`locks.Lock(x)`, locks.Luck, locks.Lock.acquire") == ["locks.Luck"]
    assert missing("`locks.groups`, `locks.RLock.refresh()`") == ["locks.RLock.refresh"]


def test_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    """Its blocks print what stands below them."""
    text = PAGE.read_text(encoding="utf-8")
    script = tmp_path / "page.py"
    script.write_text(program(text), encoding="utf-8")
    shown = "".join(f"{block.body}\n" for block in blocks(text) if block.language == "text")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout, done.stderr) == (shown, "")
