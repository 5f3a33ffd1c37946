"""How much of this node's time watchers on other nodes get, and when: a port of `locks.node.views.sender`.

This is the real one. A simulated node has its own (`locks.testing.cluster`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from locks.otp.links.budgets import Share
from locks.otp.links.line import Line
from locks.runtime.clock import monotonic
from locks.runtime.executor import Executor
from locks.runtime.waiter import run_in_hub

__all__ = ["Slices"]


class Slices:
    """Slices of this node's time, for work that other nodes cause and that is done outside of their own messages.

    Args:
        line: The line in which nodes wait for this node's time.
        executor: Its hub serves the line.
    """

    def __init__(self, line: Line, executor: Executor) -> None:
        self._line = line
        self._executor = executor

    def share(self, node: str) -> Share:
        """The share of a node."""
        return self._line.pace.share(node)

    def serve(
        self, share: Share, seconds: float, work: Callable[[Callable[[], bool]], object]
    ) -> None:
        """Do work for a node at its expense, unless others are ahead of it in the line.

        Args:
            share: Its share.
            seconds: How long the work may take.
            work: Does the work. It gets a function that returns whether the time is over.
        """
        pace = self._line.pace
        if not pace.is_ahead(share):
            return
        until = monotonic() + seconds
        begin = time.thread_time()
        try:
            work(lambda: monotonic() > until)
        finally:
            pace.served_elsewhere(share, time.thread_time() - begin)

    def wait(self, who: object, share: Share, go_on: Callable[[], object]) -> None:
        """Have `go_on` called in the hub when it is the turn of `who` in the line."""
        run_in_hub(self._executor.hub, self._line.enter, who, share, go_on)
