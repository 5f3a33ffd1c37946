"""`locks elect`: a command that runs while its program leads, with real processes and real lock servers."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.cluster.servers import LIMIT, Servers, is_there
from tests.helpers import eventually
from tests.warm import Program

CODE = """
import os, sys, time
book = open(sys.argv[1], "a", buffering=1)
book.write(f"{os.getppid()} {os.getpid()} {os.environ['LOCKS_TERM']}\\n")
time.sleep(600)
"""


def begin(servers: Servers, *arguments: str) -> Program:
    """Begin `locks elect` with some arguments."""
    return Program(
        [sys.executable, "-m", "locks_leader.command", "elect", *arguments],
        env={**servers.environment(), "LOCKS_NET_TICKTIME": "4"},
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_one_runs_at_a_time(servers: Servers, tmp_path: Path) -> None:
    """One of three runs the command. When that is killed, or told to end, the next one does, with a larger term."""
    book = tmp_path / "book"
    book.touch()

    def lines() -> list[tuple[int, int, int]]:
        found = [tuple(map(int, line.split())) for line in book.read_text().splitlines()]
        return [(a, b, c) for a, b, c in found]

    command = [sys.executable, "-c", CODE, str(book)]
    programs = {p.pid: p for p in (begin(servers, "job", "--", *command) for _ in range(3))}
    for number, how in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGTERM), 1):
        eventually(lambda n=number: len(lines()) == n)  # type: ignore[misc]
        leader, child, term = lines()[-1]
        assert all(before < term for *_, before in lines()[:-1])
        assert not any(is_there(pid) for _, pid, _ in lines()[:-1])
        programs[leader].send_signal(how)
        status = programs.pop(leader).wait(LIMIT)
        assert status == (-how if how is signal.SIGKILL else 128 + how)
        eventually(lambda pid=child: not is_there(pid))  # type: ignore[misc]
    assert not programs


def test_the_end_of_the_command(servers: Servers) -> None:
    """It gives the leadership back, and its exit status is that of `locks elect`."""
    for status in (7, 0):
        program = begin(servers, "short", "--timeout", "60", "--", "sh", "-c", f"exit {status}")
        assert program.wait(LIMIT) == status
        program.communicate()


@pytest.mark.slow
def test_a_leadership_that_is_lost(servers: Servers) -> None:
    """The command is ended, and begins anew when its program leads again: with a larger term."""
    code = "import os, time; print(os.environ['LOCKS_TERM'], flush=True); time.sleep(600)"
    program = begin(servers, "lost", "--kill-after", "0.1", "--", sys.executable, "-c", code)
    first = int(program.stdout.readline())
    one, two, _ = servers.processes
    for server in (one, two):
        server.stop()
    assert program.stderr.readline() == "locks elect: this program no longer leads lost\n"
    for server in (one, two):
        server.go_on()
    second = int(program.stdout.readline())
    assert second > first
    program.send_signal(signal.SIGTERM)
    _, error = program.communicate(timeout=LIMIT)
    assert program.returncode == 128 + signal.SIGTERM
    assert error == ""
