"""The console script `locks`: the command line of `locks`, and the commands of elections."""

from __future__ import annotations

import sys

from locks import __main__ as command_line
from locks_leader import elect, leaders

__all__ = ["main"]


def main() -> int:
    """Run the command line; return the exit status."""
    return command_line.main(prog="locks", more=[elect.add_command, leaders.add_command])


if __name__ == "__main__":
    sys.exit(main())
