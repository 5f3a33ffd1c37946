"""Programs of a few lines, and the lock servers that they share: servers that the environment names, or the one of their machine.

Also the commands of operators, in this process or as processes.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator

from locks import __main__ as command_line
from locks.net.stream import credentials_of
from locks.program.folder import Folder
from locks_leader.command import COMMANDS
from tests.cluster.harness import ROOT, Server, World
from tests.helpers import eventually, free_port, without_settings
from tests.warm import Program, run_program

NAMES = ("a@127.0.0.1", "b@127.0.0.1", "c@127.0.0.1")
LIMIT = 60  # seconds that a program has
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/commands.schema.json").read_text("utf-8"))


# --- Programs -----------------------------------------------------------------------------------


def tell(program: Program, line: object = "") -> None:
    """Write a line to a program."""
    print(line, file=program.stdin, flush=True)


def hear(program: Program) -> str:
    """The next line that a program prints; its errors if it has ended."""
    line = program.stdout.readline().strip()
    if not line and program.poll() is not None:
        raise AssertionError(program.stderr.read())
    return line


def said(program: Program) -> str:
    """What a program prints until its end."""
    out, error = program.communicate(timeout=LIMIT)
    return out + error


@contextmanager
def running(
    servers: Servers, *codes: str, arguments: Sequence[str] = ()
) -> Iterator[list[Program]]:
    """While programs run; each has said that it is ready before the next one begins."""
    programs: list[Program] = []
    try:
        for code in codes:
            programs.append(servers.program(code, arguments=arguments))
            assert hear(programs[-1]) == "ready"
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.communicate(timeout=LIMIT)


# --- Servers ------------------------------------------------------------------------------------


class Servers:
    """Lock servers, three by default, and programs that know them from their environment.

    Args:
        world: What ends them.
        names: Their names.
        net_ticktime: Theirs. A program on a busy machine may need more than the second for a sign of life that follows from two.
        arguments: More arguments of each.
        copies: How many of them have each id; all, if it is `None`.

    Attributes:
        addresses: As `name@host:port`.
    """

    settings: Mapping[str, str] = {}
    """More of the environment of each server."""

    def __init__(
        self,
        world: World,
        names: Sequence[str] = NAMES,
        net_ticktime: float = 2,
        arguments: Sequence[str] = (),
        copies: int | None = None,
    ) -> None:
        self.world = world
        self.copies = copies
        ports = [free_port() for _ in names]
        self.addresses = [f"{name}:{port}" for name, port in zip(names, ports, strict=True)]
        self._net_ticktime = net_ticktime
        self._arguments = arguments
        self.processes = [self._start(address) for address in self.addresses]
        for server in self.processes:
            assert server.address

    def _start(self, address: str) -> Server:
        name, _, port = address.rpartition(":")
        given = [*self.named(), *self._arguments, *self.options(name)]
        return self.world.server(
            name,
            port=int(port),
            arguments=given,
            net_ticktime=self._net_ticktime,
            environment=self.settings,
        )

    def named(self) -> list[str]:
        """How a server is told of all."""
        copies = [] if self.copies is None else [f"--copies={self.copies}"]
        return [f"--servers={','.join(self.addresses)}", *copies]

    def options(self, name: str) -> list[str]:
        """More options of a server."""
        return []

    def restart(self, index: int) -> None:
        """End one of them, as a service manager does, and start it again."""
        self.processes[index].process.terminate()
        assert self.processes[index].process.wait(LIMIT) == 0
        self.start_again(index)

    def start_again(self, index: int) -> None:
        """Start one that has ended."""
        self.processes[index] = self._start(self.addresses[index])
        assert self.processes[index].address

    def environment(self, servers: list[str] | None = None) -> dict[str, str]:
        """The environment of a program that knows the servers."""
        known = {
            "LOCKS_SERVERS": ",".join(self.addresses if servers is None else servers),
            "LOCKS_COOKIE_FILE": str(self.world.cookie_file),
            "LOCKS_COPIES": "" if self.copies is None else str(self.copies),
        }
        return {**os.environ, **known}

    def program(
        self, code: str, servers: list[str] | None = None, arguments: Sequence[str] = ()
    ) -> Program:
        """Start a program of a few lines."""
        return Program([sys.executable, "-c", code, *arguments], env=self.environment(servers))

    def run(self, code: str, servers: list[str] | None = None) -> str:
        """Run a program to its end; return what it prints."""
        return said(self.program(code, servers))


# --- Commands -----------------------------------------------------------------------------------


class Done(NamedTuple):
    """A command that has ended.

    Attributes:
        status: Its exit status.
        out: What it has printed.
        error: What it has printed to standard error.
    """

    status: int
    out: str
    error: str


def locks(servers: Servers, *arguments: str) -> Done:
    """Run a command of an operator in this process, which takes less time."""
    known = [] if "--servers" in arguments else ["--servers", ",".join(servers.addresses)]
    known += [] if servers.copies is None else [f"--copies={servers.copies}"]
    known += ["--cookie-file", str(servers.world.cookie_file)]
    if arguments[0] == "config":  # it asks no server
        known = []
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        try:
            status = command_line.main(
                [*arguments, *known],
                more=COMMANDS,
            )
        except SystemExit as end:
            status = int(str(end.code))
    if "--json" in arguments and out.getvalue():
        validator(arguments[0]).validate(json.loads(out.getvalue()))
    return Done(status, out.getvalue(), error.getvalue())


def remember(servers: Servers) -> bool:
    """Whether all servers answer, and know all that is done."""
    done = locks(servers, "status", "--json")
    told = json.loads(done.out) if done.status == 0 else {}
    return told.get("forgetful") == [] and told["answered"] == len(servers.addresses)


@cache
def validator(command: str) -> Draft202012Validator:
    """What checks the JSON document of a command."""
    return Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{command}"})


def process(servers: Servers, *arguments: str) -> Done:
    """Run it as a process."""
    command = [sys.executable, "-m", "locks_leader.command", *arguments]
    done = run_program(command, env=servers.environment())
    return Done(done.returncode, done.stdout, done.stderr)


# --- The lock server of a machine ---------------------------------------------------------------


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
        kept = without_settings()
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
        return said(self.program(code, *arguments))
