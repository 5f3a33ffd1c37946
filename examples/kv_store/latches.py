"""Latches: which requests work on which keys at this moment.

A latch is held for the length of one request, while it looks at the lock table and at the data, and
never while it waits for a lock. A request takes all its latches at once and lines up: it waits for
those of earlier requests that conflict with its own, and only for them. So there is no deadlock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from locks.mvcc import Span
from locks.runtime.waiter import Event

__all__ = ["Latches", "overlap"]


def overlap(one: Span, other: Span) -> bool:
    """Whether two spans have a key in common."""
    return starts_before_end(one, other) and starts_before_end(other, one)


def starts_before_end(one: Span, other: Span) -> bool:
    """Whether a span starts before the other one ends."""
    return bool(one.start < other.end if other.end is not None else one.start <= other.start)


class Latches:
    """The latches of a store, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._line: list[tuple[Sequence[Span], bool, Event]] = []

    @contextmanager
    def hold(self, spans: Sequence[Span], *, exclusive: bool) -> Iterator[None]:
        """Hold latches on spans in a `with` block; shared ones conflict only with exclusive ones."""
        mine = (spans, exclusive, Event())
        try:
            with self._mutex:
                before = [
                    gate
                    for others, theirs, gate in self._line
                    if (exclusive or theirs) and any(overlap(a, b) for a in spans for b in others)
                ]
                self._line.append(mine)
            for gate in before:
                gate.wait()
            yield
        finally:
            with self._mutex:
                self._line = [other for other in self._line if other is not mine]
            mine[2].open()
