"""A machine for programs that meet on it: a runtime folder of its own, and nothing is left of it at the end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from locks.otp.admission.credentials import credentials_of
from locks.program.folder import Folder
from tests.helpers import eventually
from tests.warm import Program

__all__ = ["LIMIT", "Machine", "all_hear", "hear", "is_there", "tell"]

LIMIT = 60  # seconds that a program has


def is_there(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


class Machine:
    """A runtime folder, and the programs that use it.

    Args:
        idle: Seconds until a lock server ends that nobody uses.

    Attributes:
        runtime: The folder.
        code: A folder for programs.
        environment: The environment of programs.
    """

    def __init__(self, idle: float = 10.0) -> None:
        # A path of a socket is short.
        self.runtime = Path(tempfile.mkdtemp(prefix="locks-", dir="/tmp"))
        self.code = self.runtime / "code"
        self.code.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCKS_")}
        own = {"XDG_RUNTIME_DIR": str(self.runtime), "LOCKS_LOCAL_IDLE": str(idle)}
        self.environment = {**kept, **own, "LOCKS_SERVERS": "local"}
        self._programs: list[Program] = []

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.kill()
            program.communicate()
        for path in self.runtime.glob("locks/*/socket"):
            pid = self.server(path.parent.name)
            if pid is not None:
                os.kill(pid, signal.SIGTERM)
                eventually(lambda pid=pid: not is_there(pid))  # type: ignore[misc]
        shutil.rmtree(self.runtime)

    def folder(self, domain: str = "default") -> Folder:
        """The folder of a domain."""
        return Folder(self.runtime / "locks" / domain)

    def log(self, domain: str = "default") -> str:
        """The log of the lock servers of a domain."""
        path = self.folder(domain).log
        return path.read_text() if path.exists() else ""

    def server(self, domain: str = "default") -> int | None:
        """The process of the lock server; `None` if none listens."""
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(self.folder(domain).socket))
            except OSError:
                return None
            found = credentials_of(sock)
        assert found is not None
        return found.pid

    def program(self, code: str, *arguments: object) -> Program:
        """Start a program of a few lines."""
        program = Program([sys.executable, "-c", code, *map(str, arguments)], env=self.environment)
        self._programs.append(program)
        return program

    def run(self, code: str, *arguments: object) -> str:
        """Run a program to its end; return what it prints."""
        out, error = self.program(code, *arguments).communicate(timeout=LIMIT)
        return out + error


def tell(program: Program, line: object = "") -> None:
    """Write a line to a program."""
    print(line, file=program.stdin, flush=True)


def hear(program: Program) -> str:
    """The next line that a program prints; its errors if it has ended."""
    line = program.stdout.readline().strip()
    if not line and program.poll() is not None:
        raise AssertionError(program.stderr.read())
    return line


def all_hear(programs: Sequence[Program]) -> list[str]:
    """The next line of each."""
    return [hear(program) for program in programs]
