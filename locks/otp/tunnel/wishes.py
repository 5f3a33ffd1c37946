"""Wishes: the client nodes with which this one needs connections now.

An election among client programs needs connections between its candidates. Each of them *wishes*
for the nodes that it sees in the view of the election's lock. A node that is wished for is dialled
like a node that the program has named, over a tunnel if it has no address. A node that is no longer
wished for is forgotten after a while. It is not forgotten at once, because a candidate that
competes again is missing in the view for a short time.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING

from locks.runtime.clock import monotonic

if TYPE_CHECKING:
    from locks.otp.distribution import Distribution
    from locks.runtime.executor import Executor
    from locks.runtime.inline import Turn

__all__ = ["Wishes"]

LINGER = 10.0  # seconds from the end of the last wish until the connection is closed
HEAD_START = 0.5  # seconds of the node with the larger name: of two nodes, not both should dial


class Wishes:
    """The wishes of one node. In the turn.

    Args:
        distribution: Its connections.
        turn: Its turn.
        executor: Runs its greenlets.
    """

    def __init__(self, distribution: Distribution, turn: Turn, executor: Executor) -> None:
        self._distribution = distribution
        self._turn = turn
        self._executor = executor
        self._by: dict[Hashable, frozenset[str]] = {}
        # The nodes that are in the address book only for wishes; each with the end of its last
        # wish.
        self._asked: dict[str, float | None] = {}

    def set(self, wisher: Hashable, names: Collection[str]) -> None:
        """Set the nodes for which `wisher` wishes from now on."""
        if names:
            self._by[wisher] = frozenset(names)
        else:
            self._by.pop(wisher, None)
        distribution, now = self._distribution, monotonic()
        wished = frozenset().union(*self._by.values()) - {distribution.name}
        for name in sorted(wished):
            if name not in self._asked and name not in distribution.book.known:
                delay = HEAD_START if name > distribution.name else 0.0
                distribution.ask_for({name: None}, delay)
                self._asked[name] = None
        dropped = False
        for name, since in list(self._asked.items()):
            if name in wished:
                self._asked[name] = None
            elif since is None:
                self._asked[name] = now
                dropped = True
        if dropped:
            self._executor.run_later(LINGER, self._turn.run, self._look)

    def _look(self) -> None:
        """Forget nodes for which there was no wish for a while."""
        distribution, now = self._distribution, monotonic()
        for name, since in list(self._asked.items()):
            if since is None or now - since < 0.9 * LINGER:
                continue
            self._asked.pop(name)
            if name not in distribution.named:
                distribution.book.forget(name)
                link = distribution.links.get(name)
                if link is not None and link.relay is not None:
                    link.lose("it is no longer needed here")
