"""Run a command while this program leads: `locks elect`.

The program stands for election on the servers, like other programs. When it leads, COMMAND starts, with the leader's term in
LOCKS_TERM. Signals are forwarded to COMMAND. If the leadership is lost, COMMAND gets SIGTERM, and SIGKILL if it does not end; then
this program stands for election again. When COMMAND ends by itself, the leadership is given up.

Exit status: that of COMMAND; 128 and the number of the signal that ended COMMAND, or that arrived while this program
waited; 124 timed out waiting for the leadership; 125 configuration or server error; 126 COMMAND not executable; 127 COMMAND
not found.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import locks
from locks.cli.child import Child, Signals, check_patience, label_of, run_with_signals
from locks.cli.joining import add_command_line, add_options, join
from locks.cli.printing import say
from locks.cli.run import FAILED, IN_VAIN
from locks.cli.waiting import Waiting
from locks.facts.around import ElectionLock
from locks_leader.election import Election, Leadership
from locks_leader.errors import LeaderTimeout

__all__ = ["add_command"]

EXAMPLES = """\
  locks elect scheduler -- ./scheduler --port 80
"""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "elect", help=about, description=__doc__, epilog=EXAMPLES, wrong=FAILED
    )
    parser.add_argument("name", metavar="NAME", help="the subject of the election")
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="seconds to wait for the leadership (default: for ever)",
    )
    add_options(parser)
    add_command_line(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return run_with_signals(partial(_elected, options))


def _elected(options: argparse.Namespace, signals: Signals) -> int:
    lock_id = ElectionLock(options.name).lock_id

    def lead(wait: Waiting, leadership: Leadership) -> int | None:
        wait.over()
        child = Child(options.command_line, options.kill_after)
        child.end_when(leadership.lost)
        status = child.run_command(signals, {"LOCKS_TERM": str(leadership.term)})
        return None if leadership.lost.is_open else status

    try:
        check_patience(options.kill_after)
        join(options)
        label = options.label or label_of("elect", options.command_line)
        while True:
            with Waiting("locks elect", lock_id) as wait:
                election = Election(options.name, label=label)
                status = election.run(partial(lead, wait), timeout=options.timeout)
            if status is not None:
                return status
            print(f"locks elect: this program no longer leads {options.name}", file=sys.stderr)
    except locks.LocksError as error:
        say("locks elect", error)
        return IN_VAIN if isinstance(error, LeaderTimeout) else FAILED
