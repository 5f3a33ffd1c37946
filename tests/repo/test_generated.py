"""What documents show as a program's output is that output.

A block that is generated says so in the line before it:

    <!-- generated: python -m locks sim story --client "write a" -->
    ```text
    ...
    ```

The test runs the command and compares. This writes the blocks anew:

    python -m tests.repo.test_generated
"""

from __future__ import annotations

import ast
import contextlib
import io
import logging
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.ownership import main as ownership_counts
from benchmarks.strategies import main as strategies
from examples.cautionary_tale.__main__ import main as cautionary_tale
from examples.exercises.scores import main as scores
from examples.kv_store.__main__ import main as kv_store
from examples.lock_table_picture import main as lock_table_picture
from locks.__main__ import main
from locks.metrics.names import METRICS
from locks.runtime.logs import EVENTS, LOGGERS
from tests.repo import frames
from tests.repo.election_pictures import main as election_pictures
from tests.repo.layers import main as layers

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def print_example(path: str) -> int:
    """Print a program without its head, which says how to run it: the page says that, too."""
    text = (ROOT / path).read_text(encoding="utf-8")
    head = ast.parse(text).body[0].end_lineno
    print("\n".join(text.splitlines()[head:]).strip("\n"))
    return 0


def print_help(arguments: list[str]) -> int:
    """Print a program's help, after which it ends."""
    try:
        return kv_store(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def print_measured(names: list[str]) -> int:
    """Print what a program has printed that measures: it is run by hand, and recorded."""
    print((ROOT / "benchmarks" / "measured" / names[0]).read_text(encoding="utf-8"))
    return 0


def describe_loggers() -> str:
    """All loggers, as text."""
    width = max(map(len, LOGGERS))
    return "\n".join(f"{name:{width}}  {says}" for name, says in LOGGERS.items())


def describe_events() -> str:
    """All events as text: each with its level, logger, meaning and the names of its fields."""
    lines = []
    for name, what in EVENTS.items():
        lines += [
            f"{name}  ({logging.getLevelName(what.level)}, {what.logger})",
            f"    {what.says}",
            f"    fields: {', '.join(what.fields)}",
        ]
    return "\n".join(lines)


def describe_metrics() -> str:
    """All metrics as text, each with its labels, kind and description."""
    lines = []
    for name, metric in METRICS.items():
        labels = ",".join([*metric.labels, *(["first?"] if metric.by_first else [])])
        lines += [
            f"{name}{f'{{{labels}}}' if labels else ''}  ({metric.kind})",
            f"    {metric.says}",
        ]
    return "\n".join(lines)


LISTS = {
    "loggers": describe_loggers,
    "events": describe_events,
    "metrics": describe_metrics,
    **frames.LISTS,
}


def print_list(names: list[str]) -> int:
    """Print what the code has a list of."""
    print(LISTS[names[0]]())
    return 0


PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "python -m locks ": main,
    "python -m tests.repo.election_pictures ": election_pictures,
    "python -m examples.cautionary_tale ": cautionary_tale,
    "python -m examples.exercises.scores": lambda _: scores(),
    "python -m examples.kv_store ": print_help,
    "python -m examples.lock_table_picture": lambda _: lock_table_picture(),
    "python -m benchmarks.ownership": ownership_counts,
    "python -m benchmarks.strategies": lambda _: strategies(),
    "python -m tests.repo.layers": layers,
    "list ": print_list,
    "cat benchmarks/measured/": print_measured,
    "cat ": lambda paths: print_example(*paths),
}

BLOCK = re.compile(
    r"(?P<head>^<!-- *generated: *(?P<command>\S[^\n]*?) *-->\n\n?```\w+\n)(?P<body>.*?)(?P<tail>^```$)",
    re.MULTILINE | re.DOTALL,
)


class Generated(NamedTuple):
    """A generated block of a page: its command and what the page says that it prints."""

    command: str
    body: str


def generated(text: str) -> list[Generated]:
    """Return the generated blocks of a page."""
    return [Generated(found["command"], found["body"]) for found in BLOCK.finditer(text)]


def output(command: str) -> str:
    """Return what a command prints; a violation that it finds (status 1) is no failure."""
    prefix = next((prefix for prefix in PROGRAMS if command.startswith(prefix)), None)
    assert prefix is not None, f"{command!r} begins with none of {list(PROGRAMS)}"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = PROGRAMS[prefix](shlex.split(command.removeprefix(prefix)))
    assert status in (0, 1), f"{command} ends with status {status}"
    return printed.getvalue().rstrip("\n") + "\n"


def rewritten(text: str) -> str:
    """Return a page with its generated blocks written anew."""
    return BLOCK.sub(lambda found: found["head"] + output(found["command"]) + found["tail"], text)


PAGES = {str(path.relative_to(ROOT)): path for path in FILES}
# What the first one prints is checked by test_cautionary_stores.py, too; the other one runs thousands of simulations.
LONG = ("--tell quorums", "benchmarks.strategies")


def marks(command: str) -> list[pytest.MarkDecorator]:
    """Some are explored; the pictures of layers share the graph of all imports with test_layers.py."""
    layers = [pytest.mark.xdist_group("layers")] if "tests.repo.layers" in command else []
    return [pytest.mark.explore] if any(each in command for each in LONG) else layers


BLOCKS = [
    pytest.param(
        block,
        id=f"{name}: {block.command}",
        marks=marks(block.command),
    )
    for name, path in PAGES.items()
    for block in generated(path.read_text(encoding="utf-8"))
]


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_block_is_what_its_command_prints(block: Generated) -> None:
    """A generated block is what its command prints now."""
    assert block.body == output(block.command), "run `python -m tests.repo.test_generated`"


def test_all_marks_are_followed_by_blocks() -> None:
    """No page has a mark without a block, and there are some."""
    marks = sum(path.read_text(encoding="utf-8").count("<!-- generated:") for path in FILES)
    assert marks == len(BLOCKS) > 0


PAGE = """\
# A page

<!-- generated: python -m locks sim story --client "write a" -->
```text
{}```

<!-- generated: python -m locks sim story --client "write a" --format sequence -->

```mermaid
sequenceDiagram
```

| this | is not |
| --- | --- |

```text
this is not generated
```
"""


def test_check_can_fail() -> None:
    """A block that is not what its command prints is found, and written anew, once and for all."""
    page = PAGE.format("Client 1 asks for nothing.\n")
    assert [block.body == output(block.command) for block in generated(page)] == [False] * 2
    new = rewritten(page)
    assert [block.body == output(block.command) for block in generated(new)] == [True] * 2
    assert "\n\n| this | is not |" in new
    assert "Client 1 asks for a.\n" in new
    assert new.endswith("this is not generated\n```\n")
    assert rewritten(new) == new


@pytest.mark.parametrize("command", ["rm -rf everything", "python -m locks sim story --client w"])
def test_wrong_commands_are_found(command: str) -> None:
    """A command of something else is not run; one that fails is no output."""
    with pytest.raises(AssertionError, match=re.escape(command.split(" --")[0])):
        output(command)


if __name__ == "__main__":
    for page in FILES:
        before = page.read_text(encoding="utf-8")
        after = rewritten(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
