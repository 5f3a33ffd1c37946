"""The terminal of a command that draws: its screen, its keys, and its restored state when the command ends.

It writes only sequences that every current terminal understands: the alternate screen, a hidden cursor, "go home", and
"erase to the end". A library for it (curses, Textual) would need its own loop, or a terminfo entry that containers lack.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Screen"]

BEGIN = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the alternate screen, no cursor, no line wrap
END = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, TO_END_OF_LINE, TO_END = "\x1b[H", "\x1b[K", "\x1b[J"
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Screen:
    """The screen of the terminal, for a `with` block in the main thread. The terminal is always restored at the end.

    Signals raise nothing here, so they never interrupt the drawing of a frame: they are recorded, and the wait for keys
    is woken. While the program is suspended (Ctrl-Z), the shell has the terminal.

    Attributes:
        ended_by: The number of the signal that told the command to end; `None` before.
    """

    def __init__(self) -> None:
        self.ended_by: int | None = None
        self._out = sys.stdout.fileno()
        self._in = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
        self._mode: list[Any] | None = None
        self._before: dict[int, Any] = {}
        self._guard = threading.RLock()  # handlers of signals can interrupt each other
        self._pipe: tuple[int, int] | None = os.pipe()
        os.set_blocking(self._pipe[1], False)

    def __enter__(self) -> Screen:
        try:
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._signalled)
            self._before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: self.wake())
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspended)
            self._take()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._give_back()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        with self._guard:
            pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)

    def _take(self) -> None:
        """Take over the terminal."""
        if self._in is not None:
            self._mode = termios.tcgetattr(self._in)
            tty.setcbreak(self._in)
        self._write(BEGIN)

    def _give_back(self) -> None:
        """Restore the terminal."""
        self._write(END)
        mode, self._mode = self._mode, None
        if mode is not None and self._in is not None:
            with suppress(termios.error):  # the terminal may be closed
                termios.tcsetattr(self._in, termios.TCSADRAIN, mode)

    def _write(self, text: str) -> None:
        """Write without the buffer of `sys.stdout`, which is not safe in handlers of signals."""
        left = text.encode(sys.stdout.encoding or "utf-8", "replace")
        try:
            while left:
                left = left[os.write(self._out, left) :]
        except OSError:
            self.ended_by = self.ended_by or signal.SIGHUP  # the terminal was closed

    # --- Signals, and other threads -------------------------------------------------------------

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = number
        self.wake()

    def _suspended(self, number: int, frame: FrameType | None) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)  # until it is continued
        self._take()
        self.wake()

    def wake(self) -> None:
        """End a wait for keys; from any thread, also after the end."""
        with self._guard, suppress(BlockingIOError):  # the pipe is full: the wait is woken anyway
            if self._pipe is not None:
                os.write(self._pipe[1], b"!")

    # --- What the command does ------------------------------------------------------------------

    @property
    def size(self) -> tuple[int, int]:
        """The columns and lines of a frame. The last column stays free, because erasing to the end of a line clears it."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError:
            columns = lines = 0
        return max(columns or 80, 2) - 1, lines or 24

    def draw(self, lines: list[str]) -> None:
        """Show a frame in place of the last one."""
        text = "\r\n".join(line + TO_END_OF_LINE for line in lines)
        self._write(f"{HOME}{text}{TO_END}")

    def keys(self) -> str:
        """Wait for keys or for `wake`; return the keys."""
        assert self._pipe is not None
        woken = self._pipe[0]
        ready, _, _ = select.select([woken] if self._in is None else [woken, self._in], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if self._in not in ready:
            return ""
        try:
            typed = os.read(self._in, 4096)
        except OSError:
            typed = b""
        if not typed:  # the input was closed
            self._in = None
        return typed.decode(errors="replace")
