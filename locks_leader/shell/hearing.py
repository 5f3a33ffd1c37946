"""An instance asks the nodes that are there when it begins, so that it may leave them out (`Bystanders`).

The question is what is locked there by the name of the merge lock, which is little. Nodes of the original don't
understand it, and are never left out.

The other instances are asked, too, who leads. Whoever answers that nobody does knows the newcomer by then, and can't come to
lead without the lock on its node. All others may lead: these are the elders (`locks_leader.core.contest`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import pykka

from locks import Atom, LocksError, Node
from locks.runtime import Waiter, tell
from locks.runtime.elsewhere import new_greenlet
from locks_leader.core.bystanders import Bystanders
from locks_leader.wire import messages as wire

__all__ = ["Heard", "Hearing"]

PATIENCE = 0.25  # seconds after which an instance takes part though somebody has not answered


class Heard(NamedTuple):
    """To an instance: there is an answer, or there will be none.

    Attributes:
        of: The node or the instance that was asked; `None` if it waits for no answers any more.
        settled: Whether the node is told of the instance, or the other instance knows that nobody leads.
    """

    of: Any
    settled: bool


class Hearing:
    """What one instance does to know which nodes it may leave out. It has joined the process groups.

    Args:
        node: Its node.
        instance: The instance, which is told `Heard`.
        lock_id: What the others are asked about.

    Attributes:
        bystanders: Which nodes are left out.
    """

    def __init__(self, node: Node, instance: pykka.ActorRef[Any], lock_id: tuple[Any, ...]) -> None:
        self.bystanders = Bystanders(node.name, node.alive)
        self._node = node
        self._instance = instance
        self._lock_id = lock_id
        self._elders: dict[Any, str] = {}  # instances that may lead, and their nodes
        self._open: set[Any] = set()  # who was asked, and has not answered
        for name in self.bystanders.unheard:
            if not node.runs_original(name):
                self._open.add(name)
                new_greenlet(self._ask, name).start()
        if self.waits:
            new_greenlet(self._lose_patience).start()

    @property
    def waits(self) -> bool:
        """Whether the instance does not take part yet."""
        return bool(self._open)

    @property
    def elders(self) -> frozenset[str]:
        """Nodes with instances that may lead."""
        return frozenset(self._elders.values())

    def joined(self, member: pykka.ActorRef[Any], node: str) -> None:
        """Another instance takes part."""
        self.bystanders.joined(member, node)
        if self.waits and member not in self._elders and not self._node.runs_original(node):
            self._elders[member] = node
            self._open.add(member)
            new_greenlet(self._ask_who_leads, member).start()

    def down(self, member: pykka.ActorRef[Any]) -> None:
        """An instance has ended, or is cut off."""
        self.bystanders.down(member)
        self._elders.pop(member, None)

    def heard(self, news: Heard) -> bool:
        """There is an answer, or there will be none; returns whether the instance takes part from now on."""
        waited = self.waits
        if news.of is None:
            self._open.clear()
        self._open.discard(news.of)
        if news.settled:
            self.bystanders.heard(news.of)
            self._elders.pop(news.of, None)
        return waited and not self.waits

    @property
    def asked(self) -> frozenset[str]:
        """The nodes that are up, and on which the lock is asked for."""
        alive = self._node.alive
        originals = (name for name in alive if self._node.runs_original(name))
        return self.bystanders.asked(alive).union(originals)

    def _lose_patience(self) -> None:
        Waiter().wait(PATIENCE, idle=True)
        self._tell(Heard(None, False))

    def _ask(self, name: str) -> None:
        settled = False
        with suppress(LocksError):  # it was lost, which will be told
            self._node.view(self._lock_id, name)
            settled = True
        self._tell(Heard(name, settled))

    def _ask_who_leads(self, member: pykka.ActorRef[Any]) -> None:
        settled = False
        with suppress(LocksError, pykka.ActorDeadError, pykka.Timeout):
            settled = (Atom("leader"), None) in member.ask(wire.INFO, timeout=PATIENCE)
        self._tell(Heard(member, settled))

    def _tell(self, news: Heard) -> None:
        """Tell the instance, after all that process groups have told the node by now."""
        with suppress(RuntimeError):  # the node was stopped
            self._node.executor.run_soon(tell, self._instance, news)
