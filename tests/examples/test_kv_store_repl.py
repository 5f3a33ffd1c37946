"""The REPL of the example store, as a process that reads from a pipe.

Its transcripts in `docs/mvcc.md` are what it prints. This writes them anew:

    python -m tests.examples.test_kv_store_repl
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import run_program

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mvcc.md"
TRANSCRIPT = re.compile(r"(?<=^```text\n)> .*?(?=^```$)", re.MULTILINE | re.DOTALL)


def run(commands: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program with something to read."""
    return run_program(
        [sys.executable, "-m", "examples.kv_store", *arguments], input=commands, timeout=300
    )


def repl(commands: str, *arguments: str) -> str:
    """Return what the REPL prints for some lines; it must end well."""
    done = run(commands, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def again(transcript: str) -> str:
    """Run the commands of a transcript and return the new one."""
    commands = re.findall(r"^> (.*\n)", transcript, re.MULTILINE)
    return repl("".join(commands)).removesuffix("> \n")


TRANSCRIPTS = TRANSCRIPT.findall(PAGE.read_text("utf-8"))


@pytest.mark.parametrize("transcript", TRANSCRIPTS)
def test_page_shows_what_the_repl_prints(transcript: str) -> None:
    """Each transcript of the page is what the REPL prints for its commands."""
    assert again(transcript) == transcript


def test_page_shows_a_conflict_a_restart_a_deadlock_and_a_snapshot() -> None:
    """The transcripts are found, and show what the page is about; a changed one is noticed."""
    together = "\n".join(TRANSCRIPTS)
    for what in ("waiting for transaction", "run it again", "resolve a deadlock", "snapshot"):
        assert what in together
    changed = TRANSCRIPTS[0].replace("ok", "okay")
    assert changed != TRANSCRIPTS[0] == again(changed)


def test_file_keeps_what_was_committed(tmp_path: Path) -> None:
    """A second run on the same file finds what the first one has committed, and only that."""
    path = str(tmp_path / "store.db")
    repl("put x some words\nbegin\nput y 1\n", path)
    printed = repl("scan\nvacuum 3\nhelp\n", path)
    assert "main: x = some words\n> vacuum 3\n0 versions removed\n" in printed
    assert "y" not in printed[: printed.index("help")].split()
    assert "begin a transaction" in printed


def test_file_that_can_not_be_used_is_an_error(tmp_path: Path) -> None:
    """No traceback, but one line and status 1; wrong arguments have status 2."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database\n" * 100)
    done = run("get x\n", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: SQLite says: file is not a database")
    assert run("", "one", "two").returncode == 2


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    PAGE.write_text(TRANSCRIPT.sub(lambda found: again(found[0]), text), "utf-8")
