"""Where all commands print to: a pipe that somebody closes, a disk that is full, a terminal without umlauts."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable

__all__ = ["run_printing"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
UNWRITTEN = 3
PIPE = 13  # SIGPIPE, which is not everywhere


def run_printing(name: str, run: Callable[[], int]) -> int:
    """Run a command that prints; return its exit status.

    Who ends it by Ctrl-C, or reads no further (`| head`), knows that: nothing is said then, and the status is that of other
    programs. What the output can't show is written as Python escapes it.

    Args:
        name: What it is called.
        run: Runs it.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = run()
        if sys.stdout is not None:  # it was begun without one
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        if error.errno != errno.EPIPE and error.errno not in FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is flushed at the end
        if error.errno == errno.EPIPE:
            return 128 + PIPE
        print(f"{name}: the output can't be written: {error.strerror}", file=sys.stderr)
        return UNWRITTEN
