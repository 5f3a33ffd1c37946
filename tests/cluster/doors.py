"""Plays what a page shows: its shell blocks as scripts, its console blocks command by command."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.servers import LIMIT
from tests.helpers import ROOT, eventually, without_settings
from tests.repo.test_docs import Block, blocks

__all__ = ["blocks_of", "command_line", "on_loopback", "plain_environment", "play", "serving"]

MARK = "--- the next command"
LOCKS = f"{shlex.quote(sys.executable)} -m locks_leader.command"


def blocks_of(page: str, heading: str) -> list[Block]:
    """The fenced blocks of a page below a heading, up to the next heading of its rank."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n{heading}\n")
    assert rest, f"{page} has no {heading}"
    return blocks(re.split(rf"\n{heading.split()[0]} ", rest)[0])


def command_line(text: str) -> str:
    """Commands with this Python and this checkout, in the place of what `pip install` brings."""
    text = text.replace("pip install", "true")
    return re.sub(r"(?m)(^|(?<=[$;|&] )|(?<=-- ))locks (?=[a-z])", f"{LOCKS} ", text)


def on_loopback(text: str, port: int) -> str:
    """Three machines as three addresses of this one."""
    return text.replace("10.0.0.", "127.0.0.").replace("9100", str(port))


def play(block: Block, folder: Path, environment: dict[str, str], port: int = 9100) -> None:
    """Run a block; what a console shows below a command is compared with what it prints."""
    shell = on_loopback(block.body, port)
    parts = [part for part in re.split(r"(?m)^\$ ", shell) if part.strip()]
    wanted = ["" for _ in parts]
    if block.language == "console":
        parts, wanted = zip(*(part.split("\n", 1) for part in parts), strict=True)  # type: ignore[assignment]
    script = f"\necho '{MARK}'\n".join(command_line(part) for part in parts)
    done = subprocess.run(
        ["bash", "-uc" if block.language == "console" else "-euc", script],
        cwd=folder, env=environment, text=True, timeout=LIMIT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert block.language == "console" or done.returncode == 0, done.stdout
    for command, shown, printed in zip(parts, wanted, done.stdout.split(f"{MARK}\n"), strict=True):
        if shown.strip():
            _check(command, *(re.sub(r" {2,}", " ", text).strip() for text in (shown, printed)))


def _check(command: str, shown: str, printed: str) -> None:
    """Here … stands for any text, of several lines, too."""
    pattern = ".*".join(re.escape(part) for part in shown.split("…"))
    same = re.fullmatch(pattern, printed, re.DOTALL)
    assert same, f"{command} shows\n{shown}\nbut this is printed:\n{printed}"


@contextmanager
def serving(
    block: Block, folder: Path, environment: dict[str, str], port: int, ready: str = '"name"'
) -> Iterator[subprocess.Popen[str]]:
    """While the program of a block runs, which says when it is ready."""
    script = command_line(on_loopback(block.body, port).replace("$ ", ""))
    log = folder / "log"
    with log.open("a") as output:
        process = subprocess.Popen(
            ["bash", "-euc", script],
            cwd=folder, env={**environment, "PYTHONUNBUFFERED": "1"}, stdout=output, stderr=output, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        eventually(lambda: ready in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(LIMIT)


def plain_environment(**more: str) -> dict[str, str]:
    """The environment of a machine without settings, with this package."""
    kept = without_settings()
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PYTHONPATH": str(ROOT), "PATH": path, **more}
