"""Calls to other nodes, for a caller that waits for the answers in any thread or greenlet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from locks.otp.terms import Reference
from locks.runtime import Waiter

if TYPE_CHECKING:
    from locks.otp.processes import Processes, Target
    from locks.runtime.inline import Turn

__all__ = ["BlockingCalls"]


class BlockingCalls:
    """Some calls, or one, whose caller takes their outcomes as they come. Those left at the end are given up.

    Args:
        processes: Makes the calls; none, if none is made.
        turn: The node's turn.
        given_up: Called with the reference of each call that is given up, in the turn.
    """

    def __init__(
        self,
        processes: Processes | None,
        turn: Turn,
        given_up: Callable[[Reference], object] | None = None,
    ) -> None:
        self._processes = processes
        self._turn = turn
        self._given_up = given_up
        self._waiter = Waiter()
        self._outcomes: deque[tuple[str, bool, Any]] = deque()
        self.open: dict[str, Reference] = {}
        """The calls whose outcomes were not taken, by name."""

    def __enter__(self) -> BlockingCalls:
        return self

    def __exit__(self, *_: object) -> None:
        if self.open:
            self._turn.run(self._give_up)

    def begin(self, name: str, node: str, target: Target, request: Any) -> None:
        """Make a call; see `Processes.call`. In the turn."""
        assert self._processes is not None
        told = partial(self._told, name)
        self.open[name] = self._processes.call(node, target, request, told)

    def take(self, timeout: float | None) -> tuple[str, bool, Any] | None:
        """Take the next outcome: the call's name, and `True` and the answer, or `False` and why there is none.

        Args:
            timeout: Seconds to wait for it; after that, `None` is returned. With `None` it waits for ever.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._outcomes:
            # First this, then the look: an outcome that comes in between wakes it.
            self._waiter = Waiter()
            if self._outcomes:
                break
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._waiter.wait(left)
        outcome = self._outcomes.popleft()
        self.open.pop(outcome[0], None)
        return outcome

    def _told(self, name: str, answered: bool, answer: Any) -> None:
        self._outcomes.append((name, answered, answer))
        self._waiter.wake()

    def _give_up(self) -> None:
        assert self._processes is not None
        for reference in self.open.values():
            self._processes.give_up(reference)
            if self._given_up is not None:
                self._given_up(reference)
