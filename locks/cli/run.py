"""Run a command under a lock: `locks run`.

The lock is taken on the servers, like the locks of programs. COMMAND starts when the lock is held, with its fencing token
in LOCKS_TOKEN (not with --read). The lock is released when COMMAND has ended. Signals are forwarded to COMMAND. If the
lock is lost, COMMAND gets SIGTERM, and SIGKILL if it does not end.

With --once, the servers remember that COMMAND has succeeded, with status 0. Until --once-for is over, a later
`locks run --once` with the same ID runs nothing. If COMMAND fails, or this machine goes down, the next one runs.

Exit status: that of COMMAND; 128 and the number of the signal that ended COMMAND, or that arrived while this command
waited for the lock; 122 already done (with --once); 123 the lock was lost, or COMMAND has succeeded and the servers may not
remember it; 124 timed out waiting for the lock; 125 configuration or server error; 126 COMMAND not executable; 127 COMMAND
not found.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from locks.cli.child import Child, Signals, label_of, run_with_signals
from locks.cli.ids import ID_HELP, parse_id
from locks.cli.joining import add_command_line, add_options, join
from locks.cli.printing import say
from locks.cli.times import parse_time
from locks.cli.waiting import Waiting
from locks.errors import (
    AlreadyDone,
    InvalidOption,
    LockLost,
    LocksError,
    LockTimeout,
    NotMarked,
    OperatingError,
)
from locks.shapes.once import once
from locks.transactions import transaction
from locks.words import LockId

__all__ = ["FAILED", "IN_VAIN", "add_command"]

DONE, LOST, IN_VAIN, FAILED = 122, 123, 124, 125
EXAMPLES = """\
  locks run nightly-import -- ./import.sh
  locks run --once nightly-$(date +%F) -- ./import.sh               # once, though three machines start it
  locks run --timeout 0 backup/disk1 -- rsync -a /data /backup      # skipped if another backup is running
  locks run --read --servers local data -- make report              # together with other readers on this machine
"""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "run", help=about, description=__doc__, epilog=EXAMPLES, wrong=FAILED
    )
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
    parser.add_argument(
        "--once", action="store_true", help="run COMMAND only if it has not succeeded yet for ID"
    )
    parser.add_argument(
        "--once-for",
        metavar="TIME",
        help="how long the servers remember that: a number, and s, m, h, d or w (default: 1d)",
    )
    parser.add_argument(
        "--ok-if-done", action="store_true", help="exit with 0 if it has already succeeded"
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
        remember = _remembered(options)
        join(options)
        label = options.label or label_of("run", options.command_line)
        with Waiting("locks run", lock_id) as wait:
            if remember is not None:
                return _run_once(options, signals, child, lock_id, remember, label, wait)
            with transaction(timeout=options.timeout, label=label) as tx:
                tx.lock(lock_id, "read" if options.read else "write")
                environment = {} if options.read else {"LOCKS_TOKEN": str(tx.token(lock_id))}
                wait.over()
                child.end_when(tx.lost)
                status = child.run_command(signals, environment)
                signals.over()
                tx.ensure_held()
                return status
    except AlreadyDone as error:
        say("locks run", error)
        return 0 if options.ok_if_done else DONE
    except (LockLost, NotMarked) as error:
        say("locks run", error)
        return LOST
    except LockTimeout as error:
        say("locks run", error)
        return IN_VAIN
    except LocksError as error:
        say("locks run", error)
        return FAILED


class _CommandFailed(OperatingError):
    """The command has ended with a status other than 0."""


def _run_once(
    options: argparse.Namespace,
    signals: Signals,
    child: Child,
    lock_id: LockId,
    remember: float,
    label: str,
    wait: Waiting,
) -> int:
    status = 0
    try:
        with once(lock_id, remember=remember, timeout=options.timeout, label=label) as run:
            wait.over()
            child.end_when(run.lost)
            status = child.run_command(signals, {"LOCKS_TOKEN": str(run.token)})
            signals.over()
            if status:
                run.ensure_held()
                raise _CommandFailed(f"COMMAND has ended with status {status}")
    except _CommandFailed:
        pass
    return status


def _remembered(options: argparse.Namespace) -> float | None:
    """For how many seconds the success is remembered; `None` without --once.

    Raises:
        InvalidOption: The options do not fit together, or it is not a time.
    """
    if not options.once:
        if options.once_for is not None or options.ok_if_done:
            raise InvalidOption("--once-for and --ok-if-done need --once")
        return None
    if options.read:
        raise InvalidOption("--once and --read exclude each other: only one runs at a time")
    return parse_time("--once-for", "1d" if options.once_for is None else options.once_for)
