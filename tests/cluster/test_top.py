"""Commands in a terminal: `locks top`, and that the terminal is as it was, however it ends; who waits; narrow tables."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster.commands import locks, running
from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, Servers
from tests.helpers import eventually

BEGIN, END = "\x1b[?1049h", "\x1b[?1049l"
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


@pytest.fixture(scope="module")
def processes() -> Iterator[Servers]:
    """The lock servers."""
    with World() as world:
        yield Servers(world)


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
        self.resize(100, 30)
        self.before = self.mode()
        self.command = subprocess.Popen(
            [sys.executable, "-m", "locks_leader.command", *arguments],
            env=servers.environment(),
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def resize(self, columns: int, lines: int) -> None:
        """Give it another size."""
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def mode(self) -> Any:
        """How it handles what is typed."""
        return termios.tcgetattr(self._slave)

    def read(self, timeout: float) -> bool:
        """Take in what was written; return whether there was something."""
        if not select.select([self._master], [], [], timeout)[0]:
            return False
        self.shown += os.read(self._master, 1 << 16).decode(errors="replace")
        return True

    def until(self, pattern: str, since: int = 0) -> int:
        """Wait until something is shown, after so many characters; return how many there are by then."""
        deadline = time.monotonic() + LIMIT
        while not re.search(pattern, self.shown[since:], re.DOTALL):
            assert time.monotonic() < deadline, (pattern, self.shown[since:])
            self.read(0.1)
        return len(self.shown)

    def type(self, keys: str) -> None:
        """Type something."""
        os.write(self._master, keys.encode())

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


def test_it_lives(processes: Servers) -> None:
    """A lock is seen that was taken later, and that it is gone; another size is taken at once; q ends it, and all is as it was."""
    with terminal(processes, "top", "--interval", "0.2") as top:
        top.until("SERVER.*a@127.*per second: [0-9]")
        assert top.shown.startswith(BEGIN)
        assert top.mode() != top.before
        with running(processes, SLEEPER):
            top.until(r"HELD FOR.*write accounts *monthly report \(report.py")
        at = top.until("0 held, 0 waiting", len(top.shown))
        top.resize(40, 5)
        top.command.send_signal(signal.SIGWINCH)
        small = r"\x1b\[H([^\n]*\n){4}[^\n]*\x1b\[J"  # a frame of five lines
        top.until(small, at)
        frame = re.search(small, top.shown[at:])
        assert frame is not None
        lines = re.sub(r"\x1b\[[A-Z]|\r", "", frame[0]).split("\n")
        assert max(map(len, lines)) == 39
        top.type("xq")
        assert top.end() == 0
        assert top.shown.endswith(END)
        assert top.mode() == top.before


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_signals_end_it(processes: Servers, number: signal.Signals, status: int) -> None:
    """The terminal is as it was; although a lock server that is stopped lets it wait for an answer."""
    with terminal(processes, "top", "--interval", "0.1", "--timeout", str(LIMIT)) as top:
        at = top.until("SERVER.*a@127")
        server = processes.processes[2].process
        server.send_signal(signal.SIGSTOP)
        try:
            top.read(0.5)
            top.command.send_signal(number)
            assert top.end() == status
        finally:
            server.send_signal(signal.SIGCONT)
            eventually(lambda: "3 of 3 lock" in locks(processes, "status").out, LIMIT)
        assert top.shown[at:].count(END) == 1
        assert top.shown.endswith(END)
        assert top.mode() == top.before


def test_it_is_suspended_and_goes_on(processes: Servers) -> None:
    """Meanwhile the terminal is the shell's."""
    with terminal(processes, "top", "--interval", "0.1") as top:
        at = top.until("SERVER.*a@127")
        top.command.send_signal(signal.SIGTSTP)
        at = top.until(re.escape(END), at)
        _, status = os.waitpid(top.command.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert top.mode() == top.before
        top.command.send_signal(signal.SIGCONT)
        top.until(re.escape(BEGIN) + ".*SERVER", at)
        top.type("Q")
        assert top.end() == 0
        assert top.mode() == top.before


def test_no_terminal(processes: Servers) -> None:
    """Frames come one after another, without anything that is for terminals; `--once` prints one."""
    done = locks(processes, "top", "--once", "--interval", "0.1")
    assert done.status == 0
    assert done.out.count("3 of 3 lock servers") == 1
    assert "per second: 0 requests" in done.out
    assert "\x1b" not in done.out
    told = json.loads(locks(processes, "top", "--once", "--json", "--interval", "0.1").out)
    assert set(told["rates"]) == {each["node"] for each in told["nodes"]}
    command = [sys.executable, "-m", "locks_leader.command", "top", "--interval", "0.1"]
    with subprocess.Popen(
        command, env=processes.environment(), stdout=subprocess.PIPE, text=True
    ) as running_on:
        assert running_on.stdout is not None
        heads = (line for line in running_on.stdout if "lock servers" in line)
        assert [next(heads).startswith("3 of 3") for _ in range(3)] == [True] * 3
        running_on.terminate()


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "1e30"])
def test_intervals_that_are_none(processes: Servers, interval: str) -> None:
    """One sentence, and exit status 2."""
    done = locks(processes, "top", f"--interval={interval}")
    assert done.status == 2
    assert "is too short" in done.error


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
