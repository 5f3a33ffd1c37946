"""The command line: `python -m locks_leader demo` and `elect`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from locks.cli.parser import Parser
from locks.cli.printing import run_printing
from locks_leader import command, demo, elect

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status.

    Args:
        arguments: The arguments; those of the process by default.
    """
    parser = Parser(
        prog="python -m locks_leader", description="Leader election with state hand-over."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo.add_command(commands)
    elect.add_command(commands, command.COMMANDS["elect"].about)
    options = parser.parse_args(arguments)
    return run_printing(f"locks_leader {options.command}", lambda: options.run(options))


if __name__ == "__main__":
    sys.exit(main())
