"""Counts lines of code: `python -m tests.repo.lines [FOLDER ...]`.

A line counts if it has code: not if it is blank, a comment, a part of a docstring, or of an import.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIPPED = ("locks", "locks_leader", "locks_lab", "locks_pytest.py")
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def lines_of_code(text: str) -> int:
    """How many lines of a module have code."""
    with_code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            with_code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if (is_import or is_text) and isinstance(node, ast.stmt):
            with_code -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(with_code)


def count(where: Path) -> int:
    """How many lines of code a file or a folder has."""
    files = [where] if where.is_file() else sorted(where.rglob("*.py"))
    return sum(lines_of_code(file.read_text(encoding="utf-8")) for file in files)


def main() -> None:
    """Print the counts of what is shipped, of its folders, and of the tests; or of what is named."""
    named = [Path(each) for each in sys.argv[1:]]
    beside = [ROOT / name for name in ("locks", "locks_leader", "locks_lab", "tests")]
    parts = named or [*sorted(p for p in (ROOT / "locks").iterdir() if p.is_dir()), *beside]
    for part in parts:
        if number := count(part):
            print(f"{number:7,} {part if named else part.relative_to(ROOT)}")
    if not named:
        print(f"{sum(count(ROOT / each) for each in SHIPPED):7,} all that is shipped")


if __name__ == "__main__":
    main()
