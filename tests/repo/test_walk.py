"""The walk through one call, in `docs/architecture.md`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import locks

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"\| (\d+) \| `(\w+)\.(\w+)` in `([\w/.]+)` \| (\d*) ?\|")


@pytest.fixture
def node() -> Iterator[None]:
    """The program's node, for this test."""
    locks.start()
    yield
    locks.stop()


def function(path: str, kind: str, name: str) -> ast.FunctionDef:
    """The last definition of a method: those before it are overloads."""
    tree = ast.parse((ROOT / path).read_text())
    (found,) = [e for e in ast.walk(tree) if isinstance(e, ast.ClassDef) and e.name == kind]
    return [e for e in found.body if isinstance(e, ast.FunctionDef) and e.name == name][-1]


def test_each_function_is_named_in_the_one_that_is_said() -> None:
    """Nobody who follows the walk in an editor gets lost: all of it is there, and leads on."""
    rows = ROW.findall((ROOT / "docs/architecture.md").read_text())
    assert len({path for _, _, _, path, _ in rows}) <= 8
    assert [int(number) for number, *_ in rows] == list(range(1, 13))
    bodies = {number: function(path, kind, name) for number, kind, name, path, _ in rows}
    for number, _, name, _, named_in in rows[1:]:
        names = {e.attr for e in ast.walk(bodies[named_in]) if isinstance(e, ast.Attribute)}
        assert name in names, f"{number} is not named in {named_in}"


@pytest.mark.usefixtures("node")
def test_a_call_goes_this_way() -> None:
    """A free lock is granted by the functions of the walk, in this order."""
    called: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append((frame.f_code.co_filename, frame.f_code.co_name))

    with locks.transaction() as tx:
        tx.write_lock(("first",))  # loads what is loaded at the first use
        sys.setprofile(note)
        try:
            tx.write_lock(("a",))
        finally:
            sys.setprofile(None)
    rest = iter(called)
    for number, _, name, path, _ in ROW.findall((ROOT / "docs/architecture.md").read_text()):
        assert (str(ROOT / path), name) in rest, f"{number}, {name}, is not called there"
