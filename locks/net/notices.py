"""Warnings about other nodes, few and short, whatever these nodes do.

Other nodes and strangers must not be able to fill a disk. So a warning has a *cause* and is *about*
a node or a host. Of each kind, one is logged in a minute. The next one says how many were left out
before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from locks.lock_ids import shown
from locks.ranges import plain
from locks.runtime.clock import monotonic

__all__ = ["Notices"]

logger = logging.getLogger("locks.nodes")

PERIOD = 60.0  # seconds
MOST = 100  # kinds that are distinguished within a minute; all others are one kind for each cause


class _Kind:
    """Warnings with one cause about one node or host."""

    __slots__ = ("left_out", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.left_out = 0


class Notices:
    """The warnings of one node.

    Args:
        run_soon: Calls a function outside of the turn; returns whether it will: not when the node has
            stopped.
        clock: Returns the time, in seconds.
    """

    def __init__(
        self,
        run_soon: Callable[[Callable[[], object]], bool],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._run_soon = run_soon
        self._clock = clock
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def warn(
        self,
        cause: str,
        about: str,
        text: str,
        *args: object,
        level: int = logging.WARNING,
        error: BaseException | None = None,
    ) -> None:
        """Log a warning, or count it. From any thread, in a turn or not.

        Args:
            cause: What is wrong, in a word or two.
            about: The node or host that it is about.
            text: What to log; all of it is cut.
            *args: A value for each `%s` in it.
            level: Its level.
            error: An exception whose traceback is logged, too, for a fault of our own.
        """
        now = self._clock()
        kind = self._kinds.get((cause, about))
        if kind is None and len(self._kinds) >= MOST:
            self._forget(now)
            if len(self._kinds) >= MOST:
                about = "others"
                kind = self._kinds.get((cause, about))
        if kind is not None and now - kind.since < PERIOD:
            kind.left_out += 1
            return
        line = plain(text % tuple(map(_short, args)))
        if kind is not None and kind.left_out:
            line += f" ({kind.left_out} similar messages before it are not shown)"
        self._log(level, line, error)  # first: if interrupted, it is logged twice rather than never
        self._kinds[cause, about] = _Kind(now)

    def _forget(self, now: float) -> None:
        for key, kind in list(self._kinds.items()):
            if now - kind.since >= PERIOD:
                self._kinds.pop(key, None)

    def _log(self, level: int, line: str, error: BaseException | None) -> None:
        if not self._run_soon(partial(_write, level, line, error)):
            _write(level, line, error)


def _write(level: int, line: str, error: BaseException | None) -> None:
    logger.log(level, "%s", line, exc_info=error)


def _short(value: Any) -> str:
    """A value as a short text, made with little work however large it is."""
    if isinstance(value, (tuple, list, dict, set, frozenset, bytes)):
        return shown(value)
    return plain(str(value))
