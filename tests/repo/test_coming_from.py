"""The pages for those who come from other libraries say nothing of `locks` that is not there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import locks
import locks_leader
from tests.repo.test_docs import ROOT

PAGES = [ROOT / "docs" / name for name in ("coming_from.md", "compat.md")]
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
OURS = {"locks": locks, "locks_leader": locks_leader}


def missing(text: str) -> list[str]:
    """The names of `locks` and `locks_leader` in a text that are nothing."""
    found = []
    for name in sorted(set(re.findall(r"\b(?:locks|locks_leader)(?:\.[A-Za-z_]\w*)+", text))):
        top, *rest = name.split(".")
        path = top
        thing: object = OURS[top]
        for part in rest:
            path += f".{part}"
            try:
                thing = getattr(thing, part)
            except AttributeError:
                try:
                    thing = importlib.import_module(path)
                except ImportError:
                    found.append(name)
                    break
    return found


@pages
def test_each_counterpart_is_there(page: Path) -> None:
    """Each name of `locks` and `locks_leader` on the page is one that programs can use."""
    assert missing(page.read_text(encoding="utf-8")) == []


def test_a_counterpart_that_is_not_there_is_found() -> None:
    """The check can fail: for a name, and for an attribute of one."""
    assert missing("`locks.Lock(x)`, locks.Luck, locks.Lock.acquire") == ["locks.Luck"]
    assert missing("`locks.groups`, `locks.RLock.refresh()`") == ["locks.RLock.refresh"]
