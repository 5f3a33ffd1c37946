"""A watchdog in real time: it reports at which line a client of a hanging simulation hangs.

A client that waits for something outside of the simulation blocks everything, in its thread. So
another thread checks from time to time whether there was an event. If there was none, it sends the
main thread a SIGINT, which ends the wait, and the handler raises the error there. If a client waits
in gevent's hub, as all do in a monkey-patched program, the hub raises the error; the hub is
prevented from ending by itself before. A wait in any other thread can't be ended, so simulations
that run there are not watched.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

PATIENCE = 30.0  # seconds without an event


class Hang(Violation):
    """A client does not come back."""


class _Watch:
    """One run that is watched, in the thread that makes this."""

    def __init__(self, application: Application, patience: float) -> None:
        self.application = application
        self.patience = patience
        self.thread = get_ident()
        self.greenlet = getcurrent()
        self.events = -1
        self.barked = False
        self.over = native_lock()  # of the operating system, also in a monkey-patched program
        self.over.acquire()

    def run(self) -> None:
        """In a thread of its own, until `over` is released."""
        while not self.over.acquire(timeout=self.patience):
            if self.look() and not self.barked:
                self.barked = True
                send_interrupt(self.thread)
        self.over.release()

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


@contextmanager
def watched(application: Application, patience: float) -> Iterator[None]:
    """Watch a run, if it is in the main thread."""
    before: Any = signal.getsignal(signal.SIGINT) if is_main_thread() else None
    if not callable(before):
        yield
        return
    watch = _Watch(application, patience)
    start_new_thread(watch.run, ())
    signal.signal(signal.SIGINT, _handler(watch, before))
    try:
        with _kept_running():
            yield
    finally:
        watch.over.release()
        signal.signal(signal.SIGINT, before)


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
    if watch.over.locked():
        (watch.greenlet if client is None else client).throw(violation)
