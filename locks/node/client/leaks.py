"""Forgotten releases: a client has ended, and had not released a lock. It is released then, but nobody meant that.

It is reported as Python reports an open file or socket that is dropped: by a `ResourceWarning`, which Python shows with `-X dev`, in pytest, and
where a program's filters say so. Nothing is noted when a lock is taken: the line is found by `tracemalloc`, in the trace of the record that
the agent's history has of the request.

A client was *forgetful* if it has ended by itself: its function has returned or raised an exception. One that was killed or cancelled had no time
to release anything; an actor may hold locks as long as it lives; and `Owner.end()` is a release.
"""

from __future__ import annotations

import os
import tracemalloc
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import gevent
import pykka

from locks.model import LockInfo, Mode, show
from locks.runtime.monitor import Down, Ending

__all__ = ["LEFT", "TIED", "TRACED", "Held", "Line", "held_at", "is_forgetful", "warn_of_leak"]

LEFT: Final = "its block was left"  # why an owner has ended
TIED: Final = "the object that it was tied to has ended"
TRACED: Final = "run Python with -X tracemalloc=25 to see the line"

_INNER: Final = tuple(
    os.path.join(folder, "")
    for folder in (
        os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
        os.path.dirname(gevent.__file__),
        os.path.dirname(pykka.__file__),
    )
)
_LIBRARY: Final = tuple(
    os.path.join(os.path.dirname(os.__file__), name)
    for name in ("asyncio" + os.sep, "contextlib.py", "functools.py", "threading.py")
)

_warned: set[object] = set()
MOST: Final = 1000  # places that are kept in mind


class Line(NamedTuple):
    """A line of the program.

    Attributes:
        file: The file's path.
        number: The line's number.
    """

    file: str
    number: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.number}"


class Held(NamedTuple):
    """A lock that was not released.

    Attributes:
        mode: Its mode.
        lock_id: Its id.
        line: Where it was taken, if that is known.
    """

    mode: Mode
    lock_id: tuple[Any, ...]
    line: object | None = None

    def __str__(self) -> str:
        where = "" if self.line is None else f", taken at {self.line}"
        return f"{self.mode} {show(self.lock_id)}{where}"


def is_forgetful(down: Down) -> bool:
    """Whether a client has ended by itself."""
    if isinstance(down.subject, pykka.ActorRef):
        return False
    if isinstance(down.subject, Ending):
        return down.reason in (LEFT, TIED)
    return down.reason == "normal" or isinstance(down.reason, Exception)


def held_at(left: Iterable[LockInfo], history: Sequence[tuple[Any, Any]]) -> list[Held]:
    """Locks that were not released, with the lines that took them, if memory is traced.

    Args:
        left: The locks.
        history: The events of their agent.
    """
    if not tracemalloc.is_tracing():
        return [Held(each.mode, each.lock_id) for each in left]
    return [
        Held(each.mode, each.lock_id, _line_of(_requests(each.lock_id, history))) for each in left
    ]


def _requests(lock_id: object, history: Sequence[tuple[Any, Any]]) -> list[object]:
    """The records of requests for an id, the first one first."""
    found: list[object] = []
    for record in history:
        event, args = record
        name = event.__name__
        objects = args[0] if name == "ask_all" else args[:1] if name == "ask_told" else ()
        if any(each[0] == lock_id for each in objects):
            found += [args, record]
    return found


def _line_of(made: Iterable[object]) -> Line | None:
    """The innermost line of the program that has made the first one of these for which that is known."""
    for each in made:
        for frame in reversed(tracemalloc.get_object_traceback(each) or ()):
            if not frame.filename.startswith((*_INNER, *_LIBRARY, "<frozen")):
                return Line(frame.filename, frame.lineno)
    return None


def warn_of_leak(client: str, held: Sequence[Held]) -> None:
    """Warn of locks that a client has not released, once for each place; outside of the turn."""
    line = held[0].line
    place = line or held[0].lock_id[:1]
    if place in _warned or len(_warned) >= MOST:
        return
    _warned.add(place)
    named = ", ".join(map(str, held))
    text = f"{client} ended while it held {named}; only its end released that. Release it in a finally block, or use with"
    if line is None and not tracemalloc.is_tracing():
        text += f" ({TRACED} that took it)"
    # Without a line of the program, none is named: the one that warns here has nothing to do with it.
    where = line if isinstance(line, Line) else Line("locks", 1)
    warnings.warn_explicit(text, ResourceWarning, where.file, where.number)
