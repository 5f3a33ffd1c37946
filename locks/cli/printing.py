"""Where all commands print to: a pipe that somebody closes, a disk that is full, a terminal without umlauts."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable

__all__ = ["Progress", "run_printing"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
UNWRITTEN = 3
PIPE = 13  # SIGPIPE, which is not everywhere
OFTEN = 0.2  # seconds between two looks at how far it has come


def run_printing(name: str, run: Callable[[], int]) -> int:
    """Run a command that prints; return its exit status.

    Who ends it by Ctrl-C, or reads no further (`| head`), knows that: nothing is said then, and the status is that of other
    programs. What the output can't show is written as Python escapes it.

    Args:
        name: What it is called.
        run: Runs it.
    """
    if sys.stderr is None:  # begun without one: `print` would take standard output in its place
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
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


class Progress:
    """How far a long command has come: one line on standard error, if that is a terminal; gone when the block is left."""

    def __init__(self) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._counts: Counter[str] = Counter()
        self._begun = time.monotonic()
        self._next = self._begun + OFTEN

    def add(self, **counts: int) -> None:
        """So many more of each are done, such as `worlds=1`."""
        self._counts.update(counts)
        self.show()

    def show(self, **more: int) -> None:
        """So many more of each are done by now, of what is under way."""
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + OFTEN
            counts = self._counts + Counter(more)
            done = ", ".join(f"{count:,} {name}" for name, count in counts.items())
            self._write(f"\r{done} in {now - self._begun:.0f} s\x1b[K")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
