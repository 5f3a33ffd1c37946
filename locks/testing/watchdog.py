"""A watchdog in real time: it reports at which line a client of a hanging simulation hangs.

A client that waits for something outside of the simulation blocks everything, in its thread. So
another thread checks from time to time whether there was an event. If there was none, and the
simulation runs in the main thread, it sends this thread a SIGINT, which ends the wait, and the
handler raises the error there. If a client waits in gevent's hub, as all do in a monkey-patched
program, the hub raises the error; the hub is prevented from ending by itself before. In any other
thread, a wait can't be ended; then the error is logged.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import gevent
from gevent import getcurrent, monkey

from locks.runtime.native import (
    get_ident,
    is_main_thread,
    native_lock,
    send_interrupt,
    start_new_thread,
)
from locks.runtime.waiter import get_hub_if_exists, mailbox_of
from locks_lab.applications.application import Application
from locks_lab.applications.places import of_frame
from locks_lab.worlds.host import Violation

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
        self.thread = get_ident()
        self.greenlet = getcurrent()
        self.over = False
        self.events = -1
        self.barked = False
        self.is_main = False

    def look(self) -> bool:
        """Whether nothing has happened since the last look."""
        before, self.events = self.events, self.application.events
        return before == self.events

    def is_here(self) -> bool:
        """Whether the run is executing in its thread now, and not the hub or another greenlet."""
        return getcurrent() is self.greenlet or self.application.here() is not None

    def complaint(self, frame: FrameType | None) -> str:
        """The text of the error; `frame` is that of the run, if it is not suspended."""
        application = self.application
        client = application.running
        place = of_frame(frame) or of_frame(None if client is None else client.gr_frame)
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
        self._unchanged = native_lock()  # of the operating system, also in a monkey-patched program
        self._unchanged.acquire()
        self._process = 0  # the process of the thread

    def watch(self, watch: _Watch | None) -> None:
        self._watch = None if watch is None else weakref.ref(watch)
        if self._process != os.getpid():
            self._process = os.getpid()
            start_new_thread(self._run, ())
        elif watch is not None and watch.patience < PATIENCE:
            with suppress(RuntimeError):  # it is about to look anyway
                self._unchanged.release()  # else it looks soon enough

    def _run(self) -> None:
        while True:
            watch = None if self._watch is None else self._watch()
            patience = PATIENCE if watch is None else watch.patience
            del watch
            if self._unchanged.acquire(timeout=patience):
                continue
            watch = None if self._watch is None else self._watch()
            if watch is not None and watch.look() and not watch.barked:
                watch.barked = True
                if watch.is_main:
                    send_interrupt(watch.thread)
                else:
                    frame = sys._current_frames().get(watch.thread)
                    logger.error("%s", watch.complaint(frame))
            del watch


_watchdog = _Watchdog()


@contextmanager
def watched(application: Application, patience: float) -> Iterator[None]:
    """Watch a run in this thread."""
    watch = _Watch(application, patience)
    before: Any = None
    if is_main_thread():
        before = signal.getsignal(signal.SIGINT)
        watch.is_main = callable(before)
    if not watch.is_main:
        with _looking(watch):
            yield
        return
    signal.signal(signal.SIGINT, _handler(watch, before))
    try:
        with _looking(watch), _kept_running():
            yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _looking(watch: _Watch) -> Iterator[None]:
    _watchdog.watch(watch)
    try:
        yield
    finally:
        watch.over = True
        _watchdog.watch(None)


@contextmanager
def _kept_running() -> Iterator[None]:
    """Keep the hub running: it would end with `LoopExit`, which does not name the waiting client."""
    hub = gevent.get_hub() if monkey.is_module_patched("threading") else get_hub_if_exists()
    if hub is None:
        yield
        return
    mailbox = mailbox_of(hub)
    mailbox.hold()
    try:
        yield
    finally:
        mailbox.release_hold()


def _handler(watch: _Watch, before: Callable[[int, FrameType | None], Any]) -> Callable[..., Any]:
    def on_interrupt(number: int, frame: FrameType | None) -> Any:
        if not watch.barked:
            return before(number, frame)
        watch.barked = False
        if not watch.look():
            return None  # it has gone on
        is_here = watch.is_here()
        violation = Hang(watch.complaint(frame if is_here else None))
        watch.application.fail(violation)
        if is_here:
            raise violation
        gevent.get_hub().loop.run_callback(_throw, watch, violation)
        return None

    return on_interrupt


def _throw(watch: _Watch, violation: Hang) -> None:
    """In the hub: raise the error in the client that waits there, if it still does."""
    client = watch.application.running
    if not watch.over:
        (watch.greenlet if client is None else client).throw(violation)
