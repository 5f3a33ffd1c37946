"""Run a command under a lock: `locks run`.

The lock is taken on the servers, like the locks of programs. COMMAND starts when the lock is held, with its fencing token
in LOCKS_TOKEN (not with --read). The lock is released when COMMAND has ended. Signals are forwarded to COMMAND. If the
lock is lost, COMMAND gets SIGTERM, and SIGKILL if it does not end.

Exit status: that of COMMAND; 128 and the number of the signal that ended COMMAND, or that arrived while this command
waited for the lock; 123 the lock was lost; 124 timed out waiting for the lock; 125 configuration or server error; 126
COMMAND not executable; 127 COMMAND not found.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from locks.cli.child import Child, Signals, label_of, run_with_signals
from locks.cli.ids import ID_HELP, parse_id
from locks.cli.joining import add_command_line, add_options, join
from locks.errors import LockLost, LocksError, LockTimeout
from locks.transactions import transaction

__all__ = ["FAILED", "IN_VAIN", "add_command"]

LOST, IN_VAIN, FAILED = 123, 124, 125
EXAMPLES = """\
  locks run nightly-import -- ./import.sh
  locks run --timeout 0 backup/disk1 -- rsync -a /data /backup      # skipped if another backup is running
  locks run --read --servers local data -- make report              # together with other readers on this machine
"""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("run", help=about, description=__doc__, epilog=EXAMPLES)
    parser.add_argument("id", metavar="ID", help=ID_HELP)
    parser.add_argument(
        "--read", action="store_true", help="take a read lock, which others can share"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="seconds to wait for the lock; 0 does not wait (default: for ever)",
    )
    add_options(parser)
    add_command_line(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return run_with_signals(partial(_under_lock, options))


def _under_lock(options: argparse.Namespace, signals: Signals) -> int:
    try:
        child = Child(options.command_line, options.kill_after)
        lock_id = parse_id(options.id)
        join(options)
        label = options.label or label_of("run", options.command_line)
        with transaction(timeout=options.timeout, label=label) as tx:
            tx.lock(lock_id, "read" if options.read else "write")
            environment = {} if options.read else {"LOCKS_TOKEN": str(tx.token(lock_id))}
            child.end_when(tx.lost)
            status = child.run_command(signals, environment)
            signals.over()
            tx.ensure_held()
            return status
    except LockLost as error:
        _say(error)
        return LOST
    except LockTimeout as error:
        _say(error)
        return IN_VAIN
    except LocksError as error:
        _say(error)
        return FAILED


def _say(error: LocksError) -> None:
    print(f"locks run: {error}", file=sys.stderr)
