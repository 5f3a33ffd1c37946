"""Serves the line of a node (`locks.otp.links.budgets.Pace`), one slice after another.

Between two slices the hub has control, and notices the input of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent

from locks.otp.links.backlog import KindOf
from locks.otp.links.budgets import Pace, Share

__all__ = ["Line"]


def _unknown(frame: bytes) -> None:
    """The kind of a frame of unknown kind: it keeps its order with all others."""


class Line:
    """The line of one node. All its methods run in the hub of the node's executor.

    Args:
        pace: Chooses the next one.
        kind_of: Returns the kind of a frame: whether it may overtake others of its link. None may
            by default.
    """

    __slots__ = ("_timer", "kind_of", "pace")

    def __init__(self, pace: Pace, kind_of: KindOf = _unknown) -> None:
        self.pace = pace
        self.kind_of = kind_of
        self._timer: Any = None

    def enter(self, who: object, share: Share, go: Callable[[], object]) -> None:
        """Put `who`, which has input or other work, into the line; `go` is called when it is next."""
        self.pace.enter(who, share, go)
        if self._timer is None:
            self._timer = gevent.get_hub().loop.timer(0.0)
            self._timer.start(self._serve_next)

    def leave(self, who: object) -> None:
        """Take `who`, which has no more work, out of the line."""
        self.pace.leave(who)
        if self.pace.is_free:
            self._stop()

    def _serve_next(self) -> None:
        go = self.pace.next()
        try:
            if go is not None:
                go()
        finally:
            if self.pace.is_free:
                self._stop()
            elif self._timer is not None:
                self._timer.stop()
                self._timer.start(self._serve_next)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None
