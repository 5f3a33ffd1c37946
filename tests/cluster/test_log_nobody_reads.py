"""A lock server whose standard error nobody reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cluster.harness import World
from tests.helpers import ROOT
from tests.warm import run_program

LIMIT = 60  # seconds
PROGRAM = """
import sys, threading, locks
locks.start(servers=[sys.argv[1]])
def work():
    for _ in range(20):
        with locks.transaction() as tx:
            tx.write_lock(("hot",))
threads = [threading.Thread(target=work) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("done")
"""


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe into which nothing more fits."""
    read, write = os.pipe()
    try:
        os.set_blocking(write, False)
        with suppress(BlockingIOError):
            while True:
                os.write(write, b"x" * 512)
        with suppress(BlockingIOError):
            while True:
                os.write(write, b"x")
        os.set_blocking(write, True)
        yield read, write
    finally:
        os.close(read)
        os.close(write)


@contextmanager
def unread(cookie: Path, *options: str) -> Iterator[tuple[int, str, subprocess.Popen[str]]]:
    """A lock server each line of whose log would block: where it could be read, its address, and its process."""
    command = [sys.executable, "-m", "locks", "node", "--name=a@127.0.0.1"]
    given = ["--listen=127.0.0.1:0", f"--cookie-file={cookie}", *options]
    with full_pipe() as (read, write):
        server = subprocess.Popen(
            [*command, *given],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=write,
            text=True,
        )
        assert server.stdout is not None
        try:
            said = json.loads(server.stdout.readline())
            yield read, f"{said['name']}:{said['port']}", server
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


def run(cookie: Path, address: str) -> None:
    """Run the program to its end."""
    done = run_program(
        [sys.executable, "-c", PROGRAM, address],
        env={**os.environ, "LOCKS_COOKIE_FILE": str(cookie)},
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


@pytest.mark.slow
def test_a_log_that_nobody_reads_delays_no_lock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs get their locks, and the server ends when it is told to."""
    monkeypatch.setenv("LOCKS_LOG_WAITS_LONGER_THAN", "0.01")
    with unread(world.cookie_file, "--log-level=INFO") as (_, address, server):
        for _ in range(3):
            run(world.cookie_file, address)
        server.terminate()
        assert server.wait(LIMIT) == 0


def test_the_log_is_read_later(world: World) -> None:
    """What was logged while nobody read it is there when somebody does."""
    options = ("--log-level=locks.nodes=INFO", "--log-format=json")
    with unread(world.cookie_file, *options) as (read, address, _):
        run(world.cookie_file, address)
        found: list[str] = []
        reader = threading.Thread(target=lambda: found.extend(_lines_until(read, "node_down")))
        reader.start()
        reader.join(LIMIT)
        assert not reader.is_alive()
        assert [json.loads(line).get("event") for line in found] == ["node_up", "node_down"]


def _lines_until(read: int, event: str) -> list[str]:
    """The lines of a pipe up to the first one of an event, without what filled the pipe."""
    text = ""
    while f'"{event}"' not in text or not text.endswith("\n"):
        text += os.read(read, 65536).decode().lstrip("x" if not text else "")
    return text.splitlines()
