"""What the documentation shows is run: its Python blocks and its `python -m locks` commands.

The Python blocks of one file run in order, in one fresh process. A block that cannot run here is
preceded by `<!-- not run: reason -->`.

A `text` block that follows a Python block is what that block prints; in a `console` block, the lines below a command are what that prints. In
these, `…` stands for any text within a line, on a line of its own for any lines, and places in programs, such as `bank.py:8`, are not compared.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.warm import run_program

ROOT = Path(__file__).parents[2]
FILES = [path for path in [ROOT / "README.md"] if path.exists()]
FILES += sorted((ROOT / "docs").rglob("*.md"))
TIMEOUT = 120.0  # seconds, for all Python blocks of a file, and for each command

FENCE = re.compile(r" *(`{3,}|~{3,}) *(\w*)")
RUN = re.compile(r"(?:LOCKS_\w+=\S+ )*python -m locks")
LONG = re.compile(r"python -m locks sim (run|explore)\b")  # these explore
# Before a page that uses Hypothesis, in its first line, which has no code: 100 examples would take long, and prove no more.
FEW = "from hypothesis import settings as s; s.register_profile('few', max_examples=10); s.load_profile('few')"
# What is generated is compared by test_generated.py.
NOT_RUN = re.compile(r"<!-- *(?:not run|generated): *(\S.*?) *-->")
PLACE = re.compile(r"\w+\.(?:py|md):\d+")
ANY = "\ue000"  # in the place of a line that is only …
END = "\x1e"  # of what a block prints


class Block(NamedTuple):
    """One fenced block: its language, the line where its body begins, and its body."""

    language: str
    line: int
    body: str
    not_run: str = ""


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = []
    reason = ""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if opened := FENCE.match(line):
            fence, language = opened.groups()
            body = []
            for _, inner in lines:
                if inner.strip().startswith(fence) and not inner.strip().strip(fence[0]):
                    break
                body.append(inner)
            dedented = textwrap.dedent("\n".join(body))
            found.append(Block(language, number + 1, dedented, reason))
            reason = ""
        elif line.strip():
            marked = NOT_RUN.search(line)
            reason = marked[1] if marked else ""
    return found


def program(text: str) -> str:
    """Return the Python blocks of a page as one program, each line where it stands in the page. After each block it prints `END`."""
    lines: list[str] = []
    for block in blocks(text):
        if block.language == "python" and not block.not_run:
            lines += [""] * (block.line - 1 - len(lines))
            lines += [*block.body.splitlines(), f"print(end={END!r}, flush=True)"]
    if "from hypothesis import" in text:
        lines[0] = FEW
    return "\n".join(lines) + "\n"


def outputs(text: str) -> list[Block | None]:
    """Return, for each Python block of a page that is run, the block that shows what it prints, if there is one."""
    found = [*blocks(text), Block("", 0, "")]
    return [
        after if after.language == "text" and not after.not_run else None
        for block, after in pairwise(found)
        if block.language == "python" and not block.not_run
    ]


def check_output(place: str, shown: str, printed: str) -> None:
    """Fail if a program does not print what is shown."""
    shown, printed = (PLACE.sub("a place", each).rstrip() for each in (shown, printed))
    marked = re.escape(re.sub("(?m)^…$", ANY, shown))
    pattern = marked.replace(ANY, "(?s:.*)").replace("…", ".*")
    same = re.fullmatch(pattern, printed) is not None
    assert same, f"{place} shows\n{shown}\nbut this is printed:\n{printed}"


class Command(NamedTuple):
    """A command of a page, and what is shown below it."""

    command: str
    shown: str


def commands(text: str) -> list[Command]:
    """Return the commands of a page that this test runs."""
    found: list[Command] = []
    for block in blocks(text):
        if block.language in ("console", "sh") and not block.not_run:
            for part in re.split(r"^\$ ", block.body, flags=re.M):
                command, _, shown = part.partition("\n")
                if RUN.match(command):
                    found.append(Command(command.strip(), shown))
    return found


def run_command(command: Command, folder: Path) -> None:
    """Run a command with this Python, without a shell: no pipes, no redirection."""
    words = shlex.split(command.command, comments=True)
    at = words.index("python")
    settings = dict(each.split("=", 1) for each in words[:at])
    printed = run([sys.executable, *words[at + 1 :]], folder, settings)
    if command.shown.strip():
        check_output(command.command, command.shown, printed)


def run(
    command: list[str], folder: Path, settings: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Run a command with this checkout of the library; fail unless it ends well. Returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    done = run_program(command, timeout=TIMEOUT, cwd=folder, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_page(name: str, text: str, folder: Path) -> None:
    """Run the Python blocks of a page; tracebacks show the page's name and line numbers."""
    script = folder / name
    script.write_text(program(text), encoding="utf-8")
    warm = f"exec(compile(open({str(script)!r}).read(), {str(script)!r}, 'exec'))"
    needs_cold = re.search("gevent|multiprocessing|concurrent|__main__", text)
    command = [sys.executable, *([str(script)] if needs_cold else ["-c", warm])]
    printed = run(command, folder).split(END)
    for shown, part in zip(outputs(text), printed, strict=False):
        if shown is not None:
            check_output(f"{name}, line {shown.line},", shown.body, part)


def name(path: Path) -> str:
    """Return a page's path as tests show it."""
    return str(path.relative_to(ROOT))


PAGES = {name(path): path.read_text(encoding="utf-8") for path in FILES}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page != "README.md" else ())
        for page, text in PAGES.items()
        if program(text).strip()
    ],
)
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    """The Python blocks of a page run in order without an error, and print what is shown."""
    run_page(Path(page).name, PAGES[page], tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            c, id=f"{p}: {c.command}", marks=pytest.mark.explore if LONG.match(c.command) else ()
        )
        for p, text in PAGES.items()
        for c in commands(text)
    ],
)
def test_command_runs(command: Command, tmp_path: Path) -> None:
    """Each command of the documentation ends with exit status 0, and prints what is shown."""
    run_command(command, tmp_path)


def shell_lines(page: str) -> list[str]:
    """The commands in the shell blocks of a page outside the documentation."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [block.body for block in blocks(text) if block.language == "sh"]
    return [
        line for body in found for line in body.splitlines() if shlex.split(line, comments=True)
    ]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.explore if "soak" in line else ())
        for line in shell_lines("CONTRIBUTING.md")
    ],
)
def test_commands_for_contributors_run(line: str) -> None:
    """Each line can be pasted as it is. `make` only says what it would do, for it would run all tests."""
    program, *arguments = shlex.split(line, comments=True)
    if program == ".":
        assert arguments == [".venv/bin/activate"]  # the Makefile makes it
    elif program == "make":
        run(["make", "-n", *(each for each in arguments if not each.startswith("PYTHON"))], ROOT)
    else:
        options = (
            ["-m", "pytest", "-p", "no:xdist", "-p", "no:hypothesispytest", "-q"]
            if program == "pytest"
            else []
        )
        run([sys.executable, *options, *arguments], ROOT)


PAGE = """\
# A page

```python
x = 1
```

Text, then a list:

- an item

    ```python title="later"
    print(x + 1)
    ```

    ```text
    2 …
    ```

<!-- not run: needs two machines -->
```python
raise RuntimeError
```

~~~text
```python
raise RuntimeError
```
~~~

```console
$ python -m locks --version
0.1.0
$ rm -rf everything
```

<!-- not run: takes an hour -->

```sh
$ python -m locks demo
```
"""


def test_blocks_are_found(tmp_path: Path) -> None:
    """Blocks are found, kept apart, joined in order, and left out only where the page says so."""
    reasons = [block.not_run for block in blocks(PAGE)]
    assert reasons == ["", "", "", "needs two machines", "", "", "takes an hour"]
    lines = dict(enumerate(program(PAGE).splitlines(), 1))
    end = f"print(end={END!r}, flush=True)"
    code = {n: line for n, line in lines.items() if line}
    assert code == {4: "x = 1", 5: end, 12: "print(x + 1)", 13: end}
    assert commands(PAGE) == [("python -m locks --version", "0.1.0\n")]
    assert [block and block.body for block in outputs(PAGE)] == [None, "2 …"]
    with pytest.raises(AssertionError, match=r"(?s)line 16, shows.*2 ….*but this is printed.*2"):
        run_page("page.md", PAGE, tmp_path)
    run_page("page.md", PAGE.replace("2 …", "…2"), tmp_path)
    check_output("", "a\nb at x.py:1", "a\nb at y.md:23\n")
    with pytest.raises(AssertionError, match="but this is printed"):
        check_output("", "a", "a\nb")


@pytest.mark.parametrize(
    "bad", ["```python\nassert False\n```", "```python\nx = 1\n```\n\n```python\ny\n```"]
)
def test_python_check_can_fail(bad: str, tmp_path: Path) -> None:
    """A block that raises is found, at its line."""
    with pytest.raises(AssertionError, match=r"page\.md\", line [26]"):
        run_page("page.md", bad, tmp_path)


def test_command_check_can_fail(tmp_path: Path) -> None:
    """A command that fails is found."""
    (command,) = commands("```console\n$ python -m locks.no_such_module\n```")
    with pytest.raises(AssertionError, match="no_such_module"):
        run_command(command, tmp_path)
