"""`locks completion`: what shells complete by the scripts that it prints."""

from __future__ import annotations

import builtins
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from locks_leader import command

COMMANDS = {
    *("break", "completion", "config", "deadlocks", "demo", "elect", "graph", "groups", "leaders"),
    *("node", "ps", "run", "sim", "status", "top", "web", "why"),
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_other_shells(
    shell: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All commands are in the script, which the shell can read, where it is installed."""
    text = script(shell, monkeypatch, capsys)
    assert all(name in text for name in (*COMMANDS, "interval"))
    if shutil.which(shell) is not None:
        file = tmp_path / f"locks.{shell}"
        file.write_text(text)
        subprocess.run([shell, "-n", str(file)], check=True)


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
    assert "pip install 'locks[completion]'" in capsys.readouterr().err
