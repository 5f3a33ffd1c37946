"""A call to another node, for a caller that waits for the answer in any thread or greenlet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from locks.otp.terms import Reference
from locks.runtime import Waiter

if TYPE_CHECKING:
    from locks.otp.processes import Processes, Target
    from locks.runtime.inline import Turn

__all__ = ["BlockingCall"]


class BlockingCall:
    """One call whose caller waits.

    Args:
        processes: Makes the call.
        turn: The node's turn.
        given_up: Called with the call's reference when the caller gives up, in the turn.
    """

    __slots__ = ("_given_up", "_outcome", "_processes", "_reference", "_turn", "_waiter")

    def __init__(
        self,
        processes: Processes,
        turn: Turn,
        given_up: Callable[[Reference], object] | None = None,
    ) -> None:
        self._processes = processes
        self._turn = turn
        self._given_up = given_up
        self._waiter = Waiter()
        self._outcome: tuple[bool, Any] | None = None
        self._reference: Reference | None = None

    def begin(self, node: str, target: Target, request: Any) -> None:
        """Make the call; see `Processes.call`. In the turn."""
        self._reference = self._processes.call(node, target, request, self._told)

    def wait(self, timeout: float | None) -> tuple[bool, Any] | None:
        """Wait for the outcome. A wait that ends without one gives the call up.

        Args:
            timeout: Seconds; `None` waits for ever.

        Returns:
            `(True, answer)`, or `(False, reason)` if there is no answer; `None` if time ran out.
        """
        try:
            self._waiter.wait(timeout)
        finally:
            if self._outcome is None:
                self._turn.run(self._give_up)
        return self._outcome

    def _told(self, answered: bool, answer: Any) -> None:
        self._outcome = (answered, answer)
        self._waiter.wake()

    def _give_up(self) -> None:
        reference = self._reference
        if reference is not None:
            self._processes.give_up(reference)
            if self._given_up is not None:
                self._given_up(reference)
