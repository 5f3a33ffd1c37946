"""The command line: `python -m locks`, and its commands, each a module of `locks.cli`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from locks import __version__, form
from locks.cli import (
    breaking,
    completion,
    config,
    deadlocks,
    graph,
    groups,
    node,
    ps,
    run,
    status,
    top,
    web,
    why,
)
from locks.cli.parser import Parser
from locks.cli.printing import run_printing

__all__ = ["main"]

SIMULATED = (["sim"], ["demo"], ["completion"])  # these need the simulator, or its options


class Loaded(NamedTuple):
    """A command that is loaded when it is used.

    Attributes:
        module: Its module, which has `add_command`.
        about: What the list of commands says of it.
    """

    module: str
    about: str


LABORATORY = {  # all that this program knows of the laboratory
    "demo": Loaded(
        "locks_lab.commands.demo", "a bank with real deadlocks, and one deadlock in slow motion"
    ),
    "sim": Loaded(
        "locks_lab.commands.sim",
        "simulate the algorithm: every interleaving, random worlds, stories",
    ),
}


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "python -m locks",
    more: Iterable[Callable[[Any], None]] = (),
) -> int:
    """Run the command line; return the exit status.

    Args:
        arguments: The arguments; those of the process by default.
        prog: The program's name in messages.
        more: Functions that add more commands.
    """
    if arguments is None and sys.argv[1:2] in SIMULATED:
        form.run_interpreted()
    given = sys.argv[1:] if arguments is None else arguments
    parser = Parser(prog=prog, description="Deadlock-resolving, hierarchical read/write locks.")
    parser.add_argument("--version", action="version", version=f"locks {form.shown(__version__)}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    breaking.add_command(commands)
    completion.add_command(commands, parser)
    config.add_command(commands)
    deadlocks.add_command(commands)
    _add_loaded("demo", commands, given)
    graph.add_command(commands)
    groups.add_command(commands)
    node.add_command(commands)
    ps.add_command(commands)
    run.add_command(commands)
    if form.COMPILED:  # `run_interpreted` does not return here
        again = commands.add_parser("sim", help=LABORATORY["sim"].about)
        again.set_defaults(run=lambda options: form.require_interpreted("locks sim"))
    else:
        _add_loaded("sim", commands, given)
    status.add_command(commands)
    top.add_command(commands)
    web.add_command(commands)
    why.add_command(commands)
    for add_command in more:
        add_command(commands)
    options = parser.parse_args(arguments)
    return run_printing(f"locks {options.command}", lambda: options.run(options))


def _add_loaded(name: str, commands: Any, given: Sequence[str]) -> None:
    """Add a command; load it only if these arguments use it, or ask for all options."""
    command = LABORATORY[name]
    if name in given or "completion" in given:
        import_module(command.module).add_command(commands)
    else:
        commands.add_parser(name, help=command.about)


if __name__ == "__main__":
    sys.exit(main())
