"""What the documentation shows is run: its Python blocks and its `python -m locks` commands.

The Python blocks of one file run in order, in one fresh process. A block that cannot run here is
preceded by `<!-- not run: reason -->`.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.warm import run_program

ROOT = Path(__file__).parents[2]
FILES = [path for path in [ROOT / "README.md"] if path.exists()]
FILES += sorted((ROOT / "docs").rglob("*.md"))
TIMEOUT = 120.0  # seconds, for all Python blocks of a file, and for each command

FENCE = re.compile(r" *(`{3,}|~{3,}) *(\w*)")
LONG = re.compile(r"python -m locks sim (run|explore)\b")  # these explore
# Before a page that uses Hypothesis, in its first line, which has no code: 100 examples would take long, and prove no more.
FEW = "from hypothesis import settings as s; s.register_profile('few', max_examples=10); s.load_profile('few')"
# An example that a page shows is run as the program that it is.
NOT_RUN = re.compile(r"<!-- *(?:not run: *|generated: *(?=cat ))(\S.*?) *-->")


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
    """Return the Python blocks of a page as one program, each line where it stands in the page."""
    lines: list[str] = []
    for block in blocks(text):
        if block.language == "python" and not block.not_run:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.body.splitlines()
    if "from hypothesis import" in text:
        lines[0] = FEW
    return "\n".join(lines) + "\n"


def commands(text: str) -> list[str]:
    """Return the commands of a page that this test runs."""
    return [
        line[2:].strip()
        for block in blocks(text)
        if block.language in ("console", "sh") and not block.not_run
        for line in block.body.splitlines()
        if line.startswith("$ python -m locks")
    ]


def run_command(command: str, folder: Path) -> None:
    """Run a command with this Python, without a shell: no pipes, no redirection."""
    run([sys.executable, *shlex.split(command, comments=True)[1:]], folder)


def run(command: list[str], folder: Path) -> None:
    """Run a command with this checkout of the library; fail unless it ends well."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = run_program(command, timeout=TIMEOUT, cwd=folder, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def run_page(name: str, text: str, folder: Path) -> None:
    """Run the Python blocks of a page; tracebacks show the page's name and line numbers."""
    script = folder / name
    script.write_text(program(text), encoding="utf-8")
    warm = f"exec(compile(open({str(script)!r}).read(), {str(script)!r}, 'exec'))"
    needs_cold = re.search("gevent|multiprocessing|concurrent|__main__", text)
    run([sys.executable, *([str(script)] if needs_cold else ["-c", warm])], folder)


def name(path: Path) -> str:
    """Return a page's path as tests show it."""
    return str(path.relative_to(ROOT))


PAGES = {name(path): path.read_text(encoding="utf-8") for path in FILES}


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if program(text).strip()])
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    """The Python blocks of a page run in order without an error."""
    run_page(Path(page).name, PAGES[page], tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c, id=f"{p}: {c}", marks=pytest.mark.explore if LONG.match(c) else ())
        for p, text in PAGES.items()
        for c in commands(text)
    ],
)
def test_command_runs(command: str, tmp_path: Path) -> None:
    """Each command of the documentation ends with exit status 0."""
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
    assert reasons == ["", "", "needs two machines", "", "", "takes an hour"]
    lines = dict(enumerate(program(PAGE).splitlines(), 1))
    assert {n: line for n, line in lines.items() if line} == {4: "x = 1", 12: "print(x + 1)"}
    assert commands(PAGE) == ["python -m locks --version"]
    run_page("page.md", PAGE, tmp_path)


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
