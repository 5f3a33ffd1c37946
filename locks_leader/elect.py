"""The command that runs a command while this program leads: `locks elect`.

It stands for election on the servers, as programs do. When it leads, COMMAND begins, with the leader's term in LOCKS_TERM.
Signals are passed on to it. If the leadership is lost, COMMAND is asked to end (SIGTERM), and killed if it does not; then
this stands again. When COMMAND ends by itself, the leadership is given back.

Exit status: that of COMMAND; 128 and the number of the signal that has ended it, or that has come while this
waited; 124 it was not elected in time; 125 it could not stand; 126 and 127 COMMAND can't be run, or is not there.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import locks
from locks.cli.child import Child, Signals, check_patience, label_of, run_with_signals
from locks.cli.joining import add_command_line, add_options, join
from locks.cli.run import FAILED, IN_VAIN
from locks_leader.election import Election, Leadership
from locks_leader.errors import LeaderTimeout

__all__ = ["add_command"]

EXAMPLES = """\
  locks elect scheduler -- ./scheduler --port 80
"""


def add_command(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "elect",
        help="run a command while this program leads",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="what the election is about")
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="how long to wait for the leadership (default: for ever)",
    )
    add_options(parser)
    add_command_line(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return run_with_signals(partial(_elected, options))


def _elected(options: argparse.Namespace, signals: Signals) -> int:
    def lead(leadership: Leadership) -> int | None:
        child = Child(options.command_line, options.kill_after)
        child.end_when(leadership.lost)
        status = child.run(signals, {"LOCKS_TERM": str(leadership.term)})
        return None if leadership.lost.is_open else status

    try:
        join(options)
        check_patience(options.kill_after)
        label = options.label or label_of("elect", options.command_line)
        while True:
            status = Election(options.name, label=label).run(lead, timeout=options.timeout)
            if status is not None:
                return status
            print(f"locks elect: {options.name} is no longer led by this program", file=sys.stderr)
    except locks.LocksError as error:
        print(f"locks elect: {error}", file=sys.stderr)
        return IN_VAIN if isinstance(error, LeaderTimeout) else FAILED
