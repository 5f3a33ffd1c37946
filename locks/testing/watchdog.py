"""A watchdog in real time: a simulation that hangs says which client stands at which line.

A client that waits for something that the simulation does not know holds everything up, in its thread. So another thread looks
now and then whether anything has happened. If nothing has, and the simulation runs in the main thread, that one is sent a SIGINT,
which ends what it waits in, and the handler raises what is wrong there. In any other thread nothing can be ended; then
it is logged.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from locks.runtime.native import is_main_thread, start_new_thread
from locks.sim.application import Application
from locks.sim.host import Violation
from locks.sim.places import of_frame

__all__ = ["PATIENCE", "Hang", "watched"]

logger = logging.getLogger("locks.testing")

PATIENCE = 30.0  # seconds without an event


class Hang(Violation):
    """A client does not come back."""


class _Watch:
    """One run that is watched."""

    def __init__(self, application: Application, patience: float) -> None:
        self.application = application
        self.patience = patience
        self.thread = threading.get_ident()
        self.events = -1
        self.barked = False
        self.is_main = False

    def look(self) -> bool:
        """Whether nothing has happened since the last look."""
        before, self.events = self.events, self.application.events
        return before == self.events

    def complaint(self) -> str:
        """What is wrong."""
        application = self.application
        client = application.running
        place = of_frame(sys._current_frames().get(self.thread))
        name = "nobody" if client is None else client.name
        where = "" if place is None else f" at {place} in {place.function}"
        others = [line for line in application.standing() if not line.startswith(f"{name} ")]
        return "\n".join(
            [
                f"{name} has not come back for {self.patience:g} s of real time: it stands{where}. It waits for something that "
                "a simulation does not know, or goes round in circles without a call of locks. "
                "With patch=True a simulation knows time.sleep, threading and queue; replace what else waits in the test",
                *(f"  {line}" for line in others),
            ]
        )


class _Watchdog:
    """The thread that looks."""

    def __init__(self) -> None:
        self._watch: weakref.ref[_Watch] | None = None
        self._changed = threading.Event()
        self._process = 0  # where the thread runs

    def watch(self, watch: _Watch | None) -> None:
        self._watch = None if watch is None else weakref.ref(watch)
        if self._process != os.getpid():
            self._process = os.getpid()
            start_new_thread(self._run, ())
        elif watch is not None and watch.patience < PATIENCE:
            self._changed.set()  # else it looks soon enough

    def _run(self) -> None:
        while True:
            watch = None if self._watch is None else self._watch()
            patience = PATIENCE if watch is None else watch.patience
            del watch
            if self._changed.wait(patience):
                self._changed.clear()
                continue
            watch = None if self._watch is None else self._watch()
            if watch is not None and watch.look() and not watch.barked:
                watch.barked = True
                if watch.is_main:
                    signal.pthread_kill(watch.thread, signal.SIGINT)
                else:
                    logger.error("%s", watch.complaint())
            del watch


_watchdog = _Watchdog()


@contextmanager
def watched(application: Application, patience: float) -> Iterator[None]:
    """Have a run watched that goes on in this thread."""
    watch = _Watch(application, patience)
    before: Any = None
    if is_main_thread():
        before = signal.getsignal(signal.SIGINT)
        watch.is_main = callable(before)
    if watch.is_main:
        signal.signal(signal.SIGINT, _handler(watch, before))
    _watchdog.watch(watch)
    try:
        yield
    finally:
        _watchdog.watch(None)
        if watch.is_main:
            signal.signal(signal.SIGINT, before)


def _handler(watch: _Watch, before: Callable[[int, FrameType | None], Any]) -> Callable[..., Any]:
    def on_interrupt(number: int, frame: FrameType | None) -> Any:
        if not watch.barked:
            return before(number, frame)
        watch.barked = False
        if not watch.look():
            return None  # it has gone on
        violation = Hang(watch.complaint())
        watch.application.fail(violation)
        raise violation

    return on_interrupt
