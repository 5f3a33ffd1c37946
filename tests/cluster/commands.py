"""The commands that look, run as operators do; and programs to look at."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator

from locks import __main__ as command_line
from locks_leader.command import COMMANDS
from tests.cluster.harness import ROOT
from tests.cluster.servers import LIMIT, Servers
from tests.warm import Program, run_program

__all__ = ["SCHEMA", "Done", "locks", "process", "running", "validator"]

SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/commands.schema.json").read_text("utf-8"))


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


@cache
def validator(command: str) -> Draft202012Validator:
    """What checks the JSON document of a command."""
    return Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{command}"})


def process(servers: Servers, *arguments: str) -> Done:
    """Run it as a process."""
    command = [sys.executable, "-m", "locks_leader.command", *arguments]
    done = run_program(command, env=servers.environment())
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def running(servers: Servers, *codes: str) -> Iterator[list[Program]]:
    """While programs run; each has said that it is ready before the next one begins."""
    programs: list[Program] = []
    try:
        for code in codes:
            program = servers.program(code)
            programs.append(program)
            assert program.stdout.readline() == "ready\n"
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.communicate(timeout=LIMIT)
