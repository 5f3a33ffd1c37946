"""The console script `locks`: the command line of `locks`, and the commands of elections."""

from __future__ import annotations

import sys

from locks import __main__ as command_line
from locks.__main__ import Command

__all__ = ["main"]

COMMANDS = {
    "elect": Command("locks_leader.elect", "run a command while this program leads"),
    "leaders": Command("locks_leader.leaders", "show the leaders and their followers"),
}


def main() -> int:
    """Run the command line; return the exit status."""
    return command_line.main(prog="locks", more=COMMANDS)


if __name__ == "__main__":
    sys.exit(main())
