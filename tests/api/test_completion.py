"""`locks completion`: what shells complete by the scripts that it prints."""

from __future__ import annotations

import builtins
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from locks_leader import command
from tests.helpers import LIMIT

COMMANDS = {
    *(
        "break",
        "certificates",
        "completion",
        "config",
        "deadlocks",
        "demo",
        "elect",
        "graph",
        "groups",
        "leaders",
    ),
    *("node", "play", "ps", "run", "sim", "status", "top", "web", "why"),
}
TRY = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_LINE="$*"
COMP_POINT=${#COMP_LINE}
set -- $(complete -p locks)
while [ "$1" != -F ]; do shift; done
"$2"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints for a shell."""
    pytest.importorskip("shtab")
    monkeypatch.setattr(sys, "argv", ["locks", "completion", shell])
    assert command.main() == 0
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It completes commands, options, what an option may be, and files; by its own `complete`."""
    file = tmp_path / "locks.bash"
    file.write_text(script("bash", monkeypatch, capsys))
    (tmp_path / "cookie").touch()

    def completed(*words: str) -> set[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", TRY, "bash", str(file), "locks", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    assert completed("") == COMMANDS
    assert completed("s") == {"sim", "status"}
    assert completed("top", "--i") == {"--interval"}
    assert {"--json", "--servers", "--timeout"} <= completed("ps", "--")
    assert completed("graph", "--format", "") == {"text", "mermaid", "dot", "svg"}
    assert completed("completion", "") == {"bash", "zsh", "fish"}
    assert "story" in completed("sim", "")
    assert completed("ps", "--cookie-file", "coo") == {"cookie"}


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same, as fish itself completes a line."""
    file = tmp_path / "locks.fish"
    file.write_text(script("fish", monkeypatch, capsys))
    (tmp_path / "cookie").touch()

    def completed(line: str) -> set[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {file}; complete -C {line!r}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return {each.partition("\t")[0] for each in done.stdout.splitlines()}

    assert completed("locks ") >= COMMANDS
    assert completed("locks s") == {"sim", "status"}
    assert completed("locks top --i") == {"--interval"}
    assert completed("locks graph --format ") >= {"text", "mermaid", "dot", "svg"}
    assert completed("locks ps --cookie-file coo") == {"cookie"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same; zsh completes at a terminal only."""
    (tmp_path / "_locks").write_text(script("zsh", monkeypatch, capsys))

    expect_of_zsh(tmp_path, "locks s", "sim", "status")
    expect_of_zsh(tmp_path, "locks top --i", "--interval")
    expect_of_zsh(tmp_path, "locks graph --format ", "text", "mermaid", "dot", "svg")


def expect_of_zsh(folder: Path, line: str, *words: str) -> None:
    """At a terminal somebody types a line, and Tab twice: wait until all these words are shown."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb", "PS1": "> "})
    try:
        begin = f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; unsetopt automenu; bindkey '^I' complete-word"
        os.write(terminal, f"{begin}; print re''ady\n".encode())
        read_until(terminal, "\nready")
        os.write(terminal, f"{line}\t\t".encode())
        read_until(terminal, *words)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)


def read_until(terminal: int, *texts: str) -> None:
    """Read what a terminal shows, until all of these are there."""
    shown = ""
    while not all(text in shown for text in texts):
        ready, _, _ = select.select([terminal], [], [], LIMIT)
        assert ready, shown
        shown += os.read(terminal, 4096).decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All commands are in the script, also where there is no such shell."""
    text = script(shell, monkeypatch, capsys)
    assert all(name in text for name in (*COMMANDS, "interval"))


def test_without_shtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what to install."""
    find = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name == "shtab":
            raise ImportError(name)
        return find(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(sys, "argv", ["locks", "completion", "bash"])
    assert command.main() == 3
    assert "pip install 'pykka-locks[completion]'" in capsys.readouterr().err
