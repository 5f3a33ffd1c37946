"""Ends clients because something that they are linked to has failed."""

from __future__ import annotations

from typing import Any

import gevent
import greenlet
import pykka
from gevent.hub import Hub

from locks.runtime.monitor import Client, Ending, Killed, Mortal, NativeThread
from locks.runtime.port import world
from locks.runtime.waiter import get_hub_if_exists, run_in_hub

__all__ = ["exit_client", "kill_greenlet"]


def exit_client(subject: Client, reason: object) -> None:
    """Stop a client because something that it is linked to has failed. Doesn't wait.

    A `GeventActor` or a greenlet is killed with the reason; another actor is asked to stop; an owner ends.

    Raises:
        TypeError: for a thread or a greenlet outside of gevent, which can't be stopped.
    """
    if isinstance(subject, pykka.ActorRef):
        inbox = subject.actor_inbox
        if isinstance(inbox, Mortal):
            inbox.kill(reason)
        else:
            subject.stop(block=False)
    elif isinstance(subject, greenlet.greenlet):
        kill_greenlet(subject, Killed(reason))
    elif isinstance(subject, Ending):
        subject.end(reason)
    elif isinstance(subject, NativeThread):
        raise TypeError(f"can't link {subject!r}: a thread can't be stopped")
    else:
        raise TypeError(f"{subject!r} is not a client")


def kill_greenlet(subject: greenlet.greenlet, error: BaseException) -> None:
    """Throw `error` into a greenlet soon. From any thread, without waiting."""
    if world().kill(subject, error):
        return
    hub: Any = subject.parent
    while hub is not None and not isinstance(hub, Hub):
        hub = hub.parent
    if hub is None or hub.loop is None:
        if subject.dead:
            return
        raise TypeError(f"can't stop {subject!r}: the greenlet has no hub")
    if not isinstance(subject, gevent.Greenlet):
        run_in_hub(hub, _throw, subject, error)
    elif get_hub_if_exists() is hub:
        subject.kill(error, block=False)
    else:
        run_in_hub(hub, subject.kill, error, False)


def _throw(subject: greenlet.greenlet, error: BaseException) -> None:
    if not subject.dead:
        subject.throw(error)
