"""Commands in a terminal: a line says who waits for what; narrow tables."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.servers import LIMIT, Servers, running

SLEEPER = """
import sys, locks
sys.argv[0] = "report.py"
with locks.transaction(label="monthly report") as tx:
    tx.write_lock(("accounts",))
    print("ready", flush=True)
    sys.stdin.readline()
"""

LEADER = """
import sys, time, locks_leader
sys.argv[0] = "chief.py"
election = locks_leader.Election("chief", label="the first")
election.start()
while election.leadership is None: time.sleep(0.01)
print("ready", flush=True)
sys.stdin.readline()
"""


class Terminal:
    """A terminal in which a command runs.

    Args:
        servers: Its lock servers.
        arguments: The command.

    Attributes:
        command: The command.
        shown: All that it has written.
    """

    def __init__(self, servers: Servers, *arguments: str) -> None:
        self.shown = ""
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.command = subprocess.Popen(
            [sys.executable, "-m", "locks_leader.command", *arguments],
            env=servers.environment(),
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def read(self, timeout: float) -> bool:
        """Take in what was written; return whether there was something."""
        if not select.select([self._master], [], [], timeout)[0]:
            return False
        self.shown += os.read(self._master, 1 << 16).decode(errors="replace")
        return True

    def until(self, pattern: str) -> None:
        """Wait until something is shown."""
        deadline = time.monotonic() + LIMIT
        while not re.search(pattern, self.shown, re.DOTALL):
            assert time.monotonic() < deadline, (pattern, self.shown)
            self.read(0.1)

    def end(self) -> int:
        """Wait for the command's end; return its exit status."""
        status = self.command.wait(LIMIT)
        while self.read(0.1):
            pass
        return status

    def close(self) -> None:
        """End all of it."""
        self.command.kill()
        self.command.wait(LIMIT)
        os.close(self._master)
        os.close(self._slave)


@contextmanager
def terminal(servers: Servers, *arguments: str) -> Iterator[Terminal]:
    """While a command runs in a terminal."""
    made = Terminal(servers, *arguments)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["run", "accounts"], ["elect", "chief"]])
def test_who_waits_for_what(processes: Servers, arguments: list[str]) -> None:
    """A line says what is waited for and who has it; it is gone before the command prints anything."""
    holder, wanted = {
        "run": (SLEEPER, r"write accounts, held by monthly report \(report.py, pid \d+\) for "),
        "elect": (LEADER, r'election "chief", held by the first \(chief.py, pid \d+\) for '),
    }[arguments[0]]
    with (
        running(processes, holder) as (program,),
        terminal(processes, *arguments, "--", "echo", "begun") as waits,
    ):
        waits.until(rf"\rlocks {arguments[0]}: [0-9.]+ s: waiting for {wanted}")
        program.kill()
        assert waits.end() == 0
        assert re.search(r"\r\x1b\[Kbegun\r\n$", waits.shown)


@pytest.mark.slow
def test_a_narrow_terminal(processes: Servers) -> None:
    """`ps` leaves columns out, so that no line is longer than the terminal is wide."""
    with running(processes, SLEEPER), terminal(processes, "ps") as ps:
        assert ps.end() == 0
        lines = ps.shown.splitlines()
        assert lines[0].split()[:7] == ["FOR", "STATE", "MODE", "ID", "WHO", "PROGRAM", "PID"]
        assert "FROM" not in lines[0]
        assert "monthly report" in lines[1]
        assert max(map(len, lines)) <= 100
