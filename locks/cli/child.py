"""A command that runs under a lock: a child that gets the signals of this program, and ends with the lock.

Signals are handled in one of four ways, by what is at hand when they come:

* while this program waits for the lock, a signal ends the wait (`Interrupted`), and the lock is not taken;
* while the child is being started, they are kept for it;
* when all is over, and this program leaves, they do nothing;
* while it runs, they are passed on. What a terminal sends (Ctrl-C), it sends to all programs in the foreground,
  so the child has it already.

The child ends when the lock is lost: it is asked to (SIGTERM), and killed if it has not after a while. On Linux it also
gets SIGTERM when this program is killed, for then nobody has the lock for it. What the child has started itself is
its own affair.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from types import FrameType
from typing import Any

from locks.errors import InvalidOption
from locks.program import stop
from locks.runtime import Event

__all__ = ["Child", "Signals", "check_patience", "label_of", "run_with_signals"]

NOT_EXECUTABLE = 126
NOT_FOUND = 127
PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT)
PR_SET_PDEATHSIG = 1
NOW_AND_THEN = 0.5  # seconds
LONGEST_SHOWN = 150  # characters of a program's name; a label has 200 at most


class Interrupted(BaseException):
    """A signal has come while this program waited.

    Attributes:
        number: Which one.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """What signals do from now on: end a wait of the main thread, or go to the child at hand; nothing when it is `over`.

    Attributes:
        child: The child at hand.
    """

    def __init__(self) -> None:
        self.child: Child | None = None
        self._is_over = False
        for name in PASSED_ON:
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, self._signalled)

    def over(self) -> None:
        """From now on they do nothing: what is left is to leave."""
        self._is_over = True

    def ignore(self) -> None:
        """The same while Python ends, which gives up handlers."""
        numbers = {getattr(signal, name) for name in PASSED_ON}
        # Of one that has come, and finds no handler any more, Python would print that it was lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self._is_over:
            return
        if self.child is None:
            self._is_over = True  # once is enough: a second one would meet what ends it
            raise Interrupted(number)
        if number not in OF_TERMINALS or not _is_in_foreground():
            self.child.signalled(number)


def run_with_signals(run: Callable[[Signals], int]) -> int:
    """Handle signals like this from now on, do something, and end this program's node.

    Returns:
        The exit status: what it returns; 128 and the number of the signal that has ended its wait.
    """
    signals = Signals()
    try:
        try:
            return run(signals)
        finally:
            signals.over()
            stop()
            signals.ignore()
    except Interrupted as interrupted:
        return 128 + interrupted.number


class Child:
    """A command that is run once.

    Args:
        command: The program, and its arguments.
        patience: Seconds from the request to end until it is killed.

    Raises:
        InvalidOption: That is no number of seconds.
    """

    def __init__(self, command: Sequence[str], patience: float) -> None:
        check_patience(patience)
        self._command = list(command)
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: list[int] = []
        self._is_to_end = False

    def run(self, signals: Signals, environment: Mapping[str, str]) -> int:
        """Start it, and wait for its end; in the main thread.

        Returns:
            Its exit code; 128 and the number of the signal that has ended it; 126 or 127 if it could not be started.
        """
        signals.child = self
        try:
            process = subprocess.Popen(
                self._command,
                env={**os.environ, **environment},
                preexec_fn=_with_its_parent() if sys.platform == "linux" else None,
            )
            self._process = process
            while self._kept:
                process.send_signal(self._kept.pop(0))
            if self._is_to_end:  # since before it was started
                self.end()
            code = _await(process)
            return code if code >= 0 else 128 - code
        except OSError as error:
            print(f"{self._command[0]}: {error.strerror}", file=sys.stderr)
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        finally:
            signals.child = None

    def end_when(self, lost: Event) -> None:
        """Have it end when the lock is lost, in a thread of its own."""

        def wait() -> None:
            lost.wait()
            self.end()

        threading.Thread(target=wait, daemon=True).start()

    def end(self) -> None:
        """Have it end, by and by; from any thread."""
        self._is_to_end = True
        process = self._process
        if process is not None:
            process.terminate()
            timer = threading.Timer(self._patience, process.kill)
            timer.daemon = True
            timer.start()

    def signalled(self, number: int) -> None:
        """A signal is for the child; by the signal's handler."""
        if self._process is None:
            self._kept.append(number)
        else:
            self._process.send_signal(number)


def _await(process: subprocess.Popen[bytes]) -> int:
    """Wait for its end, and handle signals; return its exit code.

    A signal that comes just before the main thread waits does not end the wait. So it looks again now and then.
    """
    waits = threading.Thread(target=process.wait, daemon=True)
    waits.start()
    while waits.is_alive():
        waits.join(NOW_AND_THEN)
    return process.wait()


def check_patience(seconds: float) -> None:
    """Raise `InvalidOption` unless a command can be killed after so many seconds."""
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise InvalidOption(
            f"--kill-after {seconds:g} is not a time after which to kill a command: use 0 s or more"
        )


def label_of(name: str, command: Sequence[str]) -> str:
    """What others see of a command if nothing else is said: `locks run` and the program, as far as there is room."""
    program = "".join(each if each.isprintable() else "?" for each in command[0])
    if len(program) > LONGEST_SHOWN:
        program = PurePath(program).name[-LONGEST_SHOWN:]
    return f"locks {name} {program or '?'}"


def _is_in_foreground() -> bool:
    """Whether a terminal sends its signals to this program and its child."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _with_its_parent() -> Any:
    """What a child does first: it asks for SIGTERM when its parent has ended."""
    control = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def first() -> None:
        control(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return first
