"""Positions in the user's code: the innermost line that belongs neither to us nor to our dependencies."""

from __future__ import annotations

import os
from types import FrameType, TracebackType
from typing import Any, NamedTuple

__all__ = [
    "Place",
    "entry_of",
    "is_inner",
    "is_within_finaliser",
    "of_coroutine",
    "of_frame",
    "of_function",
    "without_inner",
]

INNER = frozenset(
    (
        *(
            "locks",
            "locks_leader",
            "locks_lab",
            "asyncio",
            "concurrent",
            "contextlib",
            "functools",
            "gevent",
        ),
        *("greenlet", "pykka", "queue", "threading", "_pytest", "pluggy"),
    )
)
"""Packages and modules whose lines mean nothing to users."""


class Place(NamedTuple):
    """A line.

    Attributes:
        file: The file's whole path.
        line: The line's number.
        function: The function.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


def of_frame(frame: FrameType | None) -> Place | None:
    """The innermost line of the user's, from a frame outwards."""
    while frame is not None:
        if not is_inner(frame):
            return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def of_coroutine(coroutine: Any) -> Place | None:
    """Where a coroutine waits or runs: the innermost line of the user's."""
    found = None
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None and not is_inner(frame):
            found = Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        coroutine = getattr(coroutine, "cr_await", None)
    return found


def of_function(function: Any) -> Place | None:
    """Where a function or a method is defined, if it is one of Python's."""
    code = getattr(function, "__code__", None)
    return None if code is None else Place(code.co_filename, code.co_firstlineno, code.co_name)


def without_inner(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without our lines; `None` if no others are left."""
    if trace is None:
        return None
    rest = without_inner(trace.tb_next)
    if is_inner(trace.tb_frame):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def entry_of(frame: FrameType | None) -> str:
    """The name of our function that the user's code has called."""
    found = "this"
    while frame is not None and is_inner(frame):
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
        if not name.startswith("_"):
            found = f"{frame.f_globals.get('__name__')}.{name}"
        frame = frame.f_back
    return found


def is_within_finaliser(frame: FrameType | None) -> bool:
    """Whether Python collects something there, in the middle of any other code."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def is_inner(frame: FrameType) -> bool:
    """Whether the code of a frame is ours, or belongs to our dependencies."""
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in INNER
