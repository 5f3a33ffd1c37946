"""The output of all commands, which may be a pipe that is closed, a full disk, or a terminal without Unicode."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable

from locks.errors import LocksError

__all__ = ["IN_OPTIONS", "in_options", "run_printing", "say"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
UNWRITTEN = 3


# What errors advise to programs, and what helps those who run a command.
IN_OPTIONS = {
    "use other nodes, or await_nodes=True to wait for these": "start them, or name the right servers with --servers",
    "use start(..., cookie=...), or a file: --cookie-file, LOCKS_COOKIE_FILE": (
        "pass a file with --cookie-file, or set LOCKS_COOKIE_FILE"
    ),
    "(--tls, LOCKS_TLS_CERTIFICATE and so on, or tls=locks.TLS(...))": (
        "(--tls, or LOCKS_TLS_CERTIFICATE and so on; `locks certificates` makes them)"
    ),
    "LOCKS_ALLOW_PLAINTEXT=1 or allow_plaintext=True if": "set LOCKS_ALLOW_PLAINTEXT=1 if",
}


def in_options(text: str) -> str:
    """The text of an error, with advice for those who run a command."""
    for program, command in IN_OPTIONS.items():
        text = text.replace(program, command)
    return text


def say(name: str, error: LocksError) -> None:
    """Print why a command fails, as one sentence.

    Args:
        name: The command, such as `locks run`.
        error: Why.
    """
    print(f"{name}: {in_options(str(error))}", file=sys.stderr)


def run_printing(name: str, run: Callable[[], int]) -> int:
    """Run a command that prints; return its exit status.

    If the user ends it with Ctrl-C, or the reader of a pipe closes it (`| head`), nothing is printed, and the status is
    the usual one. Characters that the output can't show are escaped as Python does.

    Args:
        name: The name of the command.
        run: Runs it.
    """
    if sys.stdout is None:  # the program was started without one
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:  # otherwise `print` would use standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = run()
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        if error.errno != errno.EPIPE and error.errno not in FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the flush at exit
        if error.errno == errno.EPIPE:
            return 128 + signal.SIGPIPE
        print(f"{name}: can't write the output: {error.strerror}", file=sys.stderr)
        return UNWRITTEN
