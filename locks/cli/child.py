"""A command that runs under a lock: a child process that receives this program's signals, and ends with the lock.

A signal is handled in one of four ways, by the state of the program:

* while it waits for the lock, the signal ends the wait (`Interrupted`), and the lock is not taken;
* while it starts the child, the signal is kept for the child;
* while the child runs, the signal is forwarded to it. The terminal sends Ctrl-C to all programs in the foreground,
  so the child already has that one;
* while it exits, the signal is ignored.

When the lock is lost, the child gets SIGTERM, and SIGKILL if it does not end in time. On Linux the child also
gets SIGTERM when this program is killed, because the lock is then released. Processes that the child itself has
started are not handled.
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
from locks.program.default import stop
from locks.ranges import one_line
from locks.runtime.waiter import Event

__all__ = ["Child", "Signals", "check_patience", "label_of", "run_with_signals"]

NOT_EXECUTABLE = 126
NOT_FOUND = 127
OF_TERMINALS = {signal.SIGINT, signal.SIGQUIT}
PASSED_ON = {
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2),
    *OF_TERMINALS,
}
PR_SET_PDEATHSIG = 1
NOW_AND_THEN = 0.5  # seconds
LONGEST_SHOWN = 150  # of the program's name; a label has at most 200


class Interrupted(BaseException):
    """A signal arrived while this program waited.

    Attributes:
        number: The number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """What signals do: end a wait of the main thread, or go to the child; nothing when it is `over`.

    Attributes:
        child: The running child.
    """

    def __init__(self) -> None:
        self.child: Child | None = None
        self._is_over = False
        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, self._signalled)

    def over(self) -> None:
        """Ignore signals from now on: the program is about to exit."""
        self._is_over = True

    def ignore(self) -> None:
        """Ignore signals also while Python exits, when handlers no longer run."""
        # Python would report a signal that arrives when its handler is gone.
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_IGN)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self._is_over:
            return
        if self.child is None:
            self._is_over = True  # a second signal must not interrupt the end
            raise Interrupted(number)
        if number not in OF_TERMINALS or not _is_in_foreground():
            self.child.signalled(number)


def run_with_signals(run: Callable[[Signals], int]) -> int:
    """Handle signals like this from now on, run a function, and stop this program's node.

    Returns:
        The exit status: that of the function; or 128 and the number of the signal that ended its wait.
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
    """A command, to be run once.

    Args:
        command: The program, and its arguments.
        patience: Seconds between SIGTERM and SIGKILL.

    Raises:
        InvalidOption: `patience` is not a number of seconds.
    """

    def __init__(self, command: Sequence[str], patience: float) -> None:
        check_patience(patience)
        self._command = list(command)
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: list[int] = []
        self._is_to_end = False

    def run_command(self, signals: Signals, environment: Mapping[str, str]) -> int:
        """Start the command and wait for its end; call it in the main thread.

        Returns:
            Its exit code; 128 and the number of the signal that ended it; 126 or 127 if it could not be started.
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
            if self._is_to_end:  # it was told to end before it was started
                self.end_command()
            code = _await(process)
            return code if code >= 0 else 128 - code
        except OSError as error:
            print(f"{self._command[0]}: {error.strerror}", file=sys.stderr)
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        finally:
            signals.child = None

    def end_when(self, lost: Event) -> None:
        """End the command when the lock is lost; a thread of its own waits for that."""

        def wait() -> None:
            lost.wait()
            self.end_command()

        threading.Thread(target=wait, daemon=True).start()

    def end_command(self) -> None:
        """End the command, without waiting for it; call it from any thread."""
        self._is_to_end = True
        process = self._process
        if process is not None:
            process.terminate()
            timer = threading.Timer(self._patience, process.kill)
            timer.daemon = True
            timer.start()

    def signalled(self, number: int) -> None:
        """Take a signal for the child; the signal's handler calls it."""
        if self._process is None:
            self._kept.append(number)
        else:
            self._process.send_signal(number)


def _await(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process, and handle signals; return its exit code.

    A signal that comes just before the main thread waits does not interrupt the wait, so the wait has a short limit and is repeated.
    """
    waits = threading.Thread(target=process.wait, daemon=True)
    waits.start()
    while waits.is_alive():
        waits.join(NOW_AND_THEN)
    return process.wait()


def check_patience(seconds: float) -> None:
    """Raise `InvalidOption` unless it is a number of seconds >= 0."""
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise InvalidOption(f"--kill-after {seconds:g} is not a number of seconds; use 0 or more")


def label_of(name: str, command: Sequence[str]) -> str:
    """The default label of a command: `locks run` and the command's name, shortened if necessary."""
    program = one_line(command[0])
    if len(program) > LONGEST_SHOWN:
        program = PurePath(program).name[-LONGEST_SHOWN:]
    return f"locks {name} {program or '?'}"


def _is_in_foreground() -> bool:
    """Whether this program and its child are in the foreground of a terminal, and get its signals."""
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
    """The function that a child runs first: it requests SIGTERM for the end of its parent."""
    control = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def first() -> None:
        control(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return first
