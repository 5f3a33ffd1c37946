"""Which client nodes this one wants to be connected with, for as long as something here needs them.

An election among client programs needs its candidates to be connected with each other. Each of them *wishes* for
those that it sees in the view of the election's lock. Who is wished for is dialled as a node that the program has
named, over a tunnel if it has no address. Who is not wished for any more is forgotten after a while: a
candidate that stands for election anew is not in the view for a moment.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING

from locks.runtime.waiter import run_in_hub

if TYPE_CHECKING:
    from locks.otp.distribution import Distribution
    from locks.runtime import Executor
    from locks.runtime.inline import Turn

__all__ = ["Wishes"]

LINGER = 10.0  # seconds from the end of the last wish until the connection is closed
HEAD_START = 0.5  # seconds that the node with the larger name has: two that wish for each other don't both dial


class Wishes:
    """The wishes of one node. In the turn.

    Args:
        distribution: Its connections.
        turn: Its turn.
        executor: Where its greenlets live.
    """

    def __init__(self, distribution: Distribution, turn: Turn, executor: Executor) -> None:
        self._distribution = distribution
        self._turn = turn
        self._executor = executor
        self._by: dict[Hashable, frozenset[str]] = {}
        # Who is in the address book for this alone; since when nobody wishes for it.
        self._asked: dict[str, float | None] = {}

    def set(self, wisher: Hashable, names: Collection[str]) -> None:
        """From now on somebody wishes for these nodes, and for no others."""
        if names:
            self._by[wisher] = frozenset(names)
        else:
            self._by.pop(wisher, None)
        distribution, now = self._distribution, time.monotonic()
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
            run_in_hub(
                self._executor.hub, self._executor.spawn_later, LINGER, self._turn.run, self._look
            )

    def _look(self) -> None:
        """Forget whom nobody has wished for, for a while."""
        distribution, now = self._distribution, time.monotonic()
        for name, since in list(self._asked.items()):
            if since is None or now - since < 0.9 * LINGER:
                continue
            self._asked.pop(name)
            if name not in distribution.named:
                distribution.book.give_up(name)
                link = distribution.links.get(name)
                if link is not None and link.relay is not None:
                    link.lose("it is no longer needed here")
