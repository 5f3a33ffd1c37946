"""The command line: `python -m locks`, and its commands, each a module of `locks.cli`.

Only the command that is used is loaded. Ctrl-C ends this without a word at any time, also while modules are loaded.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from locks.version import __version__

__all__ = ["Command", "main"]

INTERRUPTED = 128 + signal.SIGINT


class Command(NamedTuple):
    """A command.

    Attributes:
        module: Its module, which adds it to the command line (`add_command`).
        about: What it does, in a few words.
    """

    module: str
    about: str


COMMANDS = {
    "break": Command("locks.cli.breaking", "end another client's transaction"),
    "certificates": Command(
        "locks.cli.certificates", "make certificates for lock servers and programs"
    ),
    "config": Command("locks.cli.config", "show the settings in effect and where each comes from"),
    "deadlocks": Command("locks.cli.deadlocks", "describe the last deadlocks"),
    "demo": Command(
        "locks_lab.commands.demo", "a bank with real deadlocks, and one deadlock in slow motion"
    ),
    "graph": Command("locks.cli.graph", "show who waits for whom"),
    "groups": Command("locks.cli.groups", "list the process groups and their members"),
    "node": Command("locks.cli.node", "run a lock server for other nodes"),
    "play": Command(
        "locks_lab.commands.play", "play the algorithm step by step, on a page for a browser"
    ),
    "ps": Command("locks.cli.ps", "list the locks that are held and requested"),
    "run": Command("locks.cli.run", "run a command under a lock"),
    "sim": Command(
        "locks_lab.commands.sim",
        "simulate the algorithm: every interleaving, random worlds, stories",
    ),
    "status": Command(
        "locks.cli.status", "show which lock servers answer, and whether they are enough"
    ),
    "web": Command("locks.cli.web", "serve a live page for a browser"),
    "why": Command("locks.cli.why", "show what blocks a lock or a transaction"),
}


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "python -m locks",
    more: Mapping[str, Command] | None = None,
) -> int:
    """Run the command line; return the exit status.

    Args:
        arguments: The arguments; those of the process by default.
        prog: How it was called.
        more: More commands, by name.
    """
    with _ends_at_once():
        options = _parsed(sys.argv[1:] if arguments is None else arguments, prog, more or {})
        from locks.cli.printing import run_printing
    status = run_printing(f"locks {options.command}", lambda: options.run(options))
    if arguments is None:
        _end_at_once()  # from now on
    return status


@contextmanager
def _ends_at_once() -> Iterator[None]:
    """While modules are loaded, Ctrl-C ends the process: of an exception there Python may print something, or lose it."""
    is_to_end = _end_at_once()
    try:
        yield
    finally:
        if is_to_end:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_at_once() -> bool:
    """Have Ctrl-C end the process without a word, unless somebody has said what it does; returns whether it is so."""
    is_so = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_so:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    return is_so


def _parsed(arguments: Sequence[str], prog: str, more: Mapping[str, Command]) -> Any:
    """What the arguments say; the command that they name is loaded."""
    from locks.cli.parser import Parser

    parser = Parser(prog=prog, description="Deadlock-resolving, hierarchical read/write locks.")
    parser.add_argument("--version", action="version", version=f"locks {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = next((each for each in arguments if not each.startswith("-")), "")
    for name, command in {**COMMANDS, **more}.items():
        if named == name:
            import_module(command.module).add_command(commands, command.about)
        else:
            commands.add_parser(name, help=command.about)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
