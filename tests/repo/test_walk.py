"""The walk through one call, in `docs/architecture.md`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"\| (\d+) \| `(\w+)\.(\w+)` in `([\w/.]+)` \| (\d*) ?\|")


def function(path: str, kind: str, name: str) -> ast.FunctionDef:
    """The last definition of a method: those before it are overloads."""
    tree = ast.parse((ROOT / path).read_text())
    (found,) = [e for e in ast.walk(tree) if isinstance(e, ast.ClassDef) and e.name == kind]
    return [e for e in found.body if isinstance(e, ast.FunctionDef) and e.name == name][-1]


def test_each_function_is_named_in_the_one_that_is_said() -> None:
    """Nobody who follows the walk in an editor gets lost: all of it is there, and leads on."""
    rows = ROW.findall((ROOT / "docs/architecture.md").read_text())
    assert [int(number) for number, *_ in rows] == list(range(1, 14))
    bodies = {number: function(path, kind, name) for number, kind, name, path, _ in rows}
    for number, _, name, _, named_in in rows[1:]:
        names = {e.attr for e in ast.walk(bodies[named_in]) if isinstance(e, ast.Attribute)}
        assert name in names, f"{number} is not named in {named_in}"
