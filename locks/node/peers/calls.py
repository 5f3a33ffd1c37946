"""Calls to other nodes whose caller waits for the answers, in any thread or greenlet."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from locks.runtime.port import world
from locks.runtime.waiter import Waiter

if TYPE_CHECKING:
    from locks.net.exchange import Exchange
    from locks.net.messages import AnyQuestion
    from locks.node.peers.local_node import Connections

__all__ = ["BlockingCalls"]


class BlockingCalls:
    """Calls whose caller takes their outcomes as they come. Calls left at the end are given up.

    Args:
        cluster: The node's relations with others; `None` if no call is made.
    """

    def __init__(self, cluster: Connections | None) -> None:
        self._cluster = cluster
        self._nodes: dict[str, str] = {}
        self._waiter = Waiter()
        self._outcomes: deque[tuple[str, bool, Any]] = deque()
        self.open: dict[str, int] = {}
        """The calls whose outcomes were not taken yet, by name."""

    def __enter__(self) -> BlockingCalls:
        return self

    def __exit__(self, *_: object) -> None:
        cluster = self._cluster
        if cluster is not None:
            cluster.silence.told.pop(self._is_silent, None)
            if self.open:
                cluster.node.turn.run(self._give_up, cluster.exchange)

    def begin_call(self, name: str, node: str, question: AnyQuestion) -> None:
        """Make a call; see `Exchange.call`. In the turn."""
        assert self._cluster is not None
        silence = self._cluster.silence
        self._nodes[name] = node
        silence.told[self._is_silent] = None
        silence.doubt(node)  # before the request, which may take a while
        self.open[name] = self._cluster.exchange.call(node, question, partial(self._told, name))

    @property
    def all_silent(self) -> bool:
        """Whether all nodes whose outcomes are missing are silent."""
        cluster = self._cluster
        return cluster is not None and all(
            self._nodes[name] in cluster.silence.silent for name in self.open
        )

    def take_outcome(
        self, timeout: float | None, *, of_silent: bool = True
    ) -> tuple[str, bool, Any] | None:
        """Take the next outcome: the call's name, and `True` and the answer, or `False` and the error.

        Args:
            timeout: Seconds to wait for it, after which `None` is returned; `None` waits for ever.
            of_silent: Whether to wait if all remaining nodes are silent; otherwise `None` is
                returned.
        """
        clock = world().clock()
        deadline = None if timeout is None else clock() + timeout
        while not self._outcomes:
            # Make the waiter before the look: an outcome that comes in between wakes it.
            self._waiter = Waiter()
            if self._outcomes:
                break
            left = None if deadline is None else deadline - clock()
            if (left is not None and left <= 0) or (not of_silent and self.all_silent):
                return None
            self._waiter.wait(left)
        outcome = self._outcomes.popleft()
        self.open.pop(outcome[0], None)
        return outcome

    def _is_silent(self, _: str) -> None:
        self._waiter.wake()

    def _told(self, name: str, answered: bool, answer: Any) -> None:
        self._outcomes.append((name, answered, answer))
        self._waiter.wake()

    def _give_up(self, exchange: Exchange) -> None:
        for number in self.open.values():
            exchange.give_up(number)
