"""Figures in pages can't grow old: each is generated, checked, or not there.

A figure is a number with a unit, a number of a thousand or more, a ratio (`3 times`, `three times as long`, `a third of`), a
share (`4 of 12`), any number in a table whose head names a unit, and any number where a page lists bounds. On a page it stands

- in a block or table that is generated, or is run and compared, or whose mark `not run` says why it is an example; a number of a thousand or
  more also in the prose of the same page;
- or in prose, if `tests/repo/figures.py` names its source: a constant, or a file that has the number. The test compares them. What is not
  ours has a reason there.

So prose does not repeat what was measured: it links to the table, and says "some milliseconds", "many times".
Decisions have a date and are history: they are not looked at. Neither are code, quotations, and what benchmarks and tests say of themselves.
Numbers below a thousand without a unit, and words such as "half", "twice" and "a second", are not recognised.
"""

from __future__ import annotations

import importlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.repo.figures import ANYWHERE, BOUNDS, OF_OTHERS, ONLY_BOUNDS
from tests.repo.test_docs import Block, blocks

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
        *sorted((ROOT / "docs").glob("*.md")),
    )
}

SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "second": 1, "min": 60, "minute": 60, "hour": 3600, "day": 86_400}  # fmt: skip
BYTES = {"byte": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
SCALES = {**SECONDS, **BYTES, "times": 1, "x": 1, "%": 0.01, "per cent": 0.01}
UNIT = rf"(?:(?:{'|'.join(SCALES)})s?(?![\w-])|%)"
DIGITS = r"(?<![\w.,:/#&=-])(?!0\d)\d+(?:,\d{3})*(?:\.\d+)?(?![\w:/-])(?![.,]\d)"
SMALL = "two three four five six seven eight nine ten eleven twelve"
WORDS = {**{word: n for n, word in enumerate(SMALL.split(), 2)}, "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50}  # fmt: skip
WORD = rf"\b(?i:{'|'.join(WORDS)})"
LIST = rf"{DIGITS}(?:(?:,|\s+(?:to|or|and))\s+{DIGITS})*"  # 1, 2 or 3
PART = r"\b(?i:a|one|two|three)\s+(?:third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|twentieth|hundredth)s?\s+(?:of|more|less|faster|longer)\b"
FIGURE = re.compile(
    rf"{LIST}\s*{UNIT}|{WORD}\s+(?!times|x)(?:{UNIT})|{WORD}\s+times\s+(?:as|the|more|less|faster|slower|longer|larger|smaller)\b"
    rf"|{PART}|{DIGITS}\s+of\s+(?:a\s+)?{DIGITS}|(?=\d+,\d){DIGITS}"
)
ANY = re.compile(rf"{LIST}(?:\s*{UNIT})?")
HEAD = re.compile(rf"^\|.*(?<![\w`]){UNIT}.*\n(?=\|[-: |]+\n)", re.MULTILINE)
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"<!-- (?:generated|table): [^\n]*-->\n\n?(?:\|[^\n]*\n)+")
# Code, quotations, comments, addresses.
LEFT_OUT = re.compile(r'`[^`]*`|"[^"\n]*"|<!--.*?-->|\]\([^)]*\)', re.DOTALL)


class Figure(NamedTuple):
    """A figure on a page, and its line."""

    text: str
    line: int


def blank(found: re.Match[str]) -> str:
    """The lines of what is left out, so that lines keep their numbers."""
    return "\n" * found[0].count("\n") or " · "


def prose(text: str) -> str:
    """A page without blocks, generated tables, code, quotations and addresses."""
    for each in (GENERATED, FENCED, LEFT_OUT):
        text = each.sub(blank, text)
    return text


def shown(text: str) -> str:
    """What blocks and generated tables of a page show."""
    return "\n".join(found[0] for each in (FENCED, GENERATED) for found in each.finditer(text))


def figures(text: str, only_bounds: str | None = None) -> list[Figure]:
    """The figures in the prose of a page; below the heading `only_bounds` each number is one."""
    words = prose(text)
    heads = {words.count("\n", 0, found.start()) for found in HEAD.finditer(words)}
    each_number = set()
    bounds = rows = False
    for line, content in enumerate(words.splitlines()):
        rows = line in heads or (rows and content.startswith("|"))
        if content.startswith("#"):
            bounds = only_bounds is not None and only_bounds in content
        elif bounds or (rows and line not in heads):
            each_number.add(line)
    found = [
        Figure(" ".join(match[0].split()), line + 1)
        for pattern in (FIGURE, ANY)
        for match in pattern.finditer(words)
        if ((line := words.count("\n", 0, match.start())) in each_number) is (pattern is ANY)
    ]
    for before, block in pairwise([Block("", 0, ""), *blocks(text)]):
        compared = block.not_run or (before.language == "python" and not before.not_run)
        if block.language in ("", "text") and not compared:
            found += [Figure(each[0], block.line) for each in FIGURE.finditer(block.body)]
    return sorted(found, key=lambda figure: figure.line)


def numbers(figure: str) -> list[float]:
    """The numbers of a figure, without its unit."""
    found = re.findall(DIGITS, figure)
    return [float(each.replace(",", "")) for each in found] or [WORDS[figure.split()[0].lower()]]


def values(figure: str) -> list[float]:
    """The numbers of a figure, in seconds, bytes, or as they are."""
    unit = re.search(rf"{UNIT}$", figure)
    scale = 1.0 if unit is None else SCALES.get(unit[0], 0) or SCALES[unit[0].removesuffix("s")]
    return [number * scale for number in numbers(figure)]


def constant(name: str) -> Any:
    """What a dotted name stands for: a module, and in it a constant, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = found[part] if isinstance(found, dict) else getattr(found, part)
        return found
    raise AssertionError(f"there is no module for {name}")


def mismatch(figure: str, source: str) -> str | None:
    """What is wrong with a figure of which is said where it comes from; `None` if it is right."""
    if "/" in source:
        text = re.sub(r"(?<=\d)[_,](?=\d{3})", "", (ROOT / source).read_text(encoding="utf-8"))
        missing = [f"{n:g}" for n in numbers(figure) if not re.search(rf"\b{n:.0f}\b", text)]
        return f"{source} has no {', '.join(missing)}" if missing else None
    value = constant(source)
    wanted = [float(each) for each in (value if isinstance(value, tuple) else (value,))]
    named = values(figure)
    millionths = [each * 1e6 for each in named]  # versions are microseconds
    return (
        None
        if any(pytest.approx(each) == wanted for each in (named, millionths))
        else f"{source} is {value}"
    )


def unchecked(name: str, text: str) -> list[str]:
    """What is wrong with the figures of a page."""
    own, others = BOUNDS.get(name, {}), OF_OTHERS.get(name, {})
    bounds = {**ANYWHERE, **own}
    in_blocks = shown(text)
    found = figures(text, ONLY_BOUNDS.get(name))
    wrong = [
        f"{name}:{line}: {figure!r} is neither generated nor checked: leave it out, link to a generated table, or name its "
        "source in tests/repo/figures.py"
        for figure, line in found
        if figure not in bounds
        and figure not in others
        and not (
            "," in figure
            and re.fullmatch(DIGITS, figure)
            and re.search(rf"(?<![\w,]){figure}(?![\w,])", in_blocks)
        )
    ]
    there = {figure for figure, _ in found}
    wrong += [
        f"{name} no longer has {figure!r}: remove it from tests/repo/figures.py"
        for figure in {**own, **others}
        if figure not in there
    ]
    for figure, sources in bounds.items():
        wrong += [
            f"{name}: {figure!r}, but {problem}"
            for source in sources.split()
            if (problem := mismatch(figure, source))
        ]
    return wrong


def test_each_figure_is_generated_or_checked() -> None:
    """No page has a figure that nobody generates, and each bound is what the code has."""
    assert {*BOUNDS, *OF_OTHERS} <= set(PAGES)
    wrong = [
        each
        for name, path in PAGES.items()
        for each in unchecked(name, path.read_text(encoding="utf-8"))
    ]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A lock takes 3 µs, or 20 to 30 ms; a server needs 5.2 MiB.", ["3 µs", "20 to 30 ms", "5.2 MiB"]),
        ("It is 1.5 times as fast, five times as small, 20% more.", ["1.5 times", "five times as", "20%"]),
        ("Five seconds, in 7 of 20 runs, a third of them.", ["Five seconds", "7 of 20", "a third of"]),
        ("Measured:\n```text\n3 µs\n```", ["3 µs"]),
        ("One of 12,000 worlds, each three\nminutes.", ["12,000", "three minutes"]),
        ("| n | ms |\n|---|---|\n| a | 17.5 |\n\n17 locks", ["17.5"]),
        ("## Bounds of it\n\n100 records, 4,096\n## More\n100 records", ["100", "4,096"]),
        ('In 2026 three clients of 0.2 run twice; "it took 3 s", `5 s`, Python 3.11, 127.0.0.1:9100.', []),
        ("<!-- not run: so -->\n```text\n3 µs\n```\n<!-- table: a -->\n\n| n | ms |\n|---|---|\n| a | 17.5 |\n\n[more](page.md#in-3-s)", []),
    ],
)  # fmt: skip
def test_figures_are_recognised(text: str, found: list[str]) -> None:
    """What is a figure, and what is none."""
    assert [figure.text for figure in figures(text, "Bounds")] == found


@pytest.mark.parametrize(
    ("figure", "source", "right"),
    [
        ("64 KiB", "locks.lock_ids.LARGEST", True),
        ("32 KiB", "locks.lock_ids.LARGEST", False),
        ("ten minutes", "locks.otp.distribution.FORGET", True),
        ("1 to 4 seconds", "locks.otp.admission.rivals.SIGNS", True),
        ("1 day", "locks.wire.versions.DAY", True),
        ("396", "tests/repo/test_figures.py", True),
        ("397" + "1", "tests/repo/test_figures.py", False),
    ],
)
def test_sources_are_compared(figure: str, source: str, right: bool) -> None:
    """A figure that is not its constant, or not in its test, is found."""
    assert (mismatch(figure, source) is None) is right


def test_check_can_fail() -> None:
    """A figure that is written by hand is found with its line; so is a source that is no longer needed."""
    assert len(unchecked("a.md", "It takes\n3 ms, not 4,000; 5,000.\n```text\n5,000\n```\n")) == 2
    assert unchecked("a.md", "It takes\n3 ms.")[0].startswith("a.md:2: '3 ms' is neither")
    assert "no longer has" in unchecked("docs/bounds.md", "")[0]
