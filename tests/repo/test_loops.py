"""Loops within a `try` or a `with`: the jump back is within it, too, for Python looks for signals there.

CPython 3.12 to 3.14 leave the jump back of `while condition:`, and of some that end in an `if`, out of the table that says which
instructions a `try` covers. What a signal handler raises at that moment passes the `try` by: nothing is released, and nothing undone.
The jumps of `while True:`, and of `continue`, are covered.
"""

from __future__ import annotations

import ast
import dis
import sys
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

import pytest

from tests.repo.layers import ROOT

# What runs in the threads of clients, where signal handlers and others may raise something.
OF_CLIENTS = [
    path
    for package in ("locks", "locks_leader")
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.parent.name in (package, "aio", "core", "mvcc", "node", "ownership", "program")
    or path.parent.name in ("client", "peers", "views", "observing")
    or path.parent.name in ("agent", "groups", "runtime", "server", "shapes")
    if path.name != "demo.py"
]


class Loop(NamedTuple):
    """A loop: its lines, whether it is in a `try` or `with` of its function, and whether that is right whatever compiles it."""

    first: int
    last: int
    is_protected: bool
    is_safe: bool


def loops_of(node: ast.AST, protected: bool = False) -> Iterator[Loop]:
    """The loops below a node of the syntax tree."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            within = protected or (
                isinstance(node, (ast.Try, ast.With, ast.AsyncWith)) and name == "body"
            )
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                within = False
            if isinstance(child, (ast.While, ast.For, ast.AsyncFor)):
                safe = not isinstance(child, ast.While) or isinstance(child.test, ast.Constant)
                yield Loop(child.lineno, child.end_lineno or child.lineno, within, safe)
            yield from loops_of(child, within)


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """All code in some code."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def uncovered(source: str, name: str = "") -> list[int]:
    """The lines of loops whose `try` does not cover their jump back; by what is compiled here, and by what is known of others."""
    loops = list(loops_of(ast.parse(source)))
    found = {loop.first for loop in loops if loop.is_protected and not loop.is_safe}
    for code in codes_of(compile(source, name, "exec")):
        if sys.version_info < (3, 11):
            break  # there is no such table
        instructions = list(dis.get_instructions(code))
        table = [range(each.start, each.end) for each in dis._parse_exception_table(code)]  # type: ignore[attr-defined]
        for jump in instructions:
            if jump.opname != "JUMP_BACKWARD" or any(jump.offset in each for each in table):
                continue
            lines = (each.positions for each in instructions if each.offset >= jump.argval)
            line = next(each.lineno for each in lines if each is not None and each.lineno)
            around = [loop for loop in loops if loop.first <= line <= loop.last]
            innermost = max(around, key=lambda loop: loop.first, default=None)
            if innermost is not None and innermost.is_protected:
                found.add(innermost.first)
    return sorted(found)


@pytest.mark.slow
def test_loops_are_covered() -> None:
    """In all modules whose code runs in the threads of clients."""
    found = {path: uncovered(path.read_text(encoding="utf-8"), str(path)) for path in OF_CLIENTS}
    assert {path: lines for path, lines in found.items() if lines} == {}


BAD = """
def wait(lock, ready):
    with lock:
        while not ready():
            pass
"""
GOOD = """
def wait(lock, ready):
    while not ready():
        with lock:
            while True:
                if ready():
                    break
                lock.look()
        def later():
            while ready():
                pass
"""


def test_what_is_found() -> None:
    """A condition within the block; none outside of it, or in a function that is made there."""
    assert uncovered(BAD) == [4]
    assert uncovered(GOOD) == []
