"""An instance asks the nodes that are there when it begins, so that it may leave them out (`Bystanders`).

The question is what is locked there by the name of the merge lock, which is little. Nodes of the original don't
understand it, and are never left out.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import gevent
import pykka

from locks import LocksError, Node
from locks.runtime import tell
from locks_leader.core.bystanders import Bystanders
from locks_leader.core.events import Started

__all__ = ["Heard", "Hearing"]

PATIENCE = 0.25  # seconds after which an instance takes part though somebody has not answered


class Heard(NamedTuple):
    """To an instance: a node has answered."""

    node: str


class Hearing:
    """What one instance does to know which nodes it may leave out. It has joined the process groups.

    It is told `Heard`, and `Started` when all have answered, or when it need not wait any longer.

    Args:
        node: Its node.
        instance: The instance.
        lock_id: What the others are asked about.

    Attributes:
        bystanders: Which nodes are left out.
    """

    def __init__(self, node: Node, instance: pykka.ActorRef[Any], lock_id: tuple[Any, ...]) -> None:
        self.bystanders = Bystanders(node.name, node.alive)
        self._node = node
        self._instance = instance
        asked = [
            gevent.spawn(self._ask, name, lock_id)
            for name in self.bystanders.unheard
            if not node.runs_original(name)
        ]
        gevent.spawn(self._wait, asked)

    @property
    def asked(self) -> frozenset[str]:
        """The nodes that are up, and on which the lock is asked for."""
        alive = self._node.alive
        originals = (name for name in alive if self._node.runs_original(name))
        return self.bystanders.asked(alive).union(originals)

    def _ask(self, name: str, lock_id: tuple[Any, ...]) -> None:
        with suppress(LocksError):  # it was lost, which will be told
            self._node.view(lock_id, name)
            self._tell(Heard(name))

    def _wait(self, asked: list[gevent.Greenlet[..., None]]) -> None:
        gevent.joinall(asked, timeout=PATIENCE)
        self._tell(Started())

    def _tell(self, news: Heard | Started) -> None:
        """Tell the instance, after all that process groups have told the node by now."""
        with suppress(RuntimeError):  # the node was stopped
            self._node.executor.run_soon(tell, self._instance, news)
