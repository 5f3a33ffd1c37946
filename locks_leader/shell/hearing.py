"""The question of a new instance to all nodes that are up, so that it may leave them out (`Bystanders`).

The question is whether there are requests for the election's lock on that node.

The answers also decide where the contest begins (`locks_leader.core.contest`). If a node has no
requests for the lock, no leader is there. An instance that gets the lock there later knows the
newcomer by then, and can't lead without the lock on the newcomer's node. All other nodes are the
elders, where a leader may hold the lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import pykka

from locks import LocksError
from locks.node import Node
from locks.runtime.actor import tell
from locks.runtime.waiter import Waiter
from locks_leader.core.bystanders import Bystanders

__all__ = ["Heard", "Hearing"]

PATIENCE = 0.25  # seconds after which an instance takes part even if answers are missing


class Heard(NamedTuple):
    """To an instance: all nodes have answered, or it stops waiting for answers; later, each answer."""


class Hearing:
    """How one instance finds the nodes that it may leave out; made in the turn in which it joins the process groups.

    Args:
        node: Its node.
        instance: The instance, which receives `Heard`.
        lock_id: The election's lock.

    Attributes:
        bystanders: The nodes that are left out.
        elders: The nodes on one of which it should begin: the lock is requested there, or they have
            not answered.
        waits: Whether the instance does not take part yet.
    """

    def __init__(self, node: Node, instance: pykka.ActorRef[Any], lock_id: tuple[Any, ...]) -> None:
        self.bystanders = Bystanders(node.name, node.alive)
        self.elders: frozenset[str] = frozenset()
        self._node = node
        self._instance = instance
        self._lock_id = lock_id
        # Answers: which node was asked, `None` when patience is lost; and whether the election's lock is
        # requested there, `None` if the node was lost.
        self._answers: list[tuple[str | None, bool | None]] = []
        self._open: set[str] = set()  # asked, and not answered yet
        self._asked = {node.name}
        self.waits = True
        self._ask(self.bystanders.unheard)
        self.waits = bool(self._open)

    def joined(self, member: pykka.ActorRef[Any], node: str) -> None:
        """Another instance takes part."""
        self.bystanders.joined(member, node)
        if self.waits and node not in self._asked:  # it has come later
            self._node.turn.run(self._ask, {node})

    def down(self, member: pykka.ActorRef[Any]) -> None:
        """An instance has ended, or is cut off."""
        self.bystanders.down(member)

    def heard(self) -> bool:
        """Take the answers in; returns whether the instance takes part from now on."""
        waited = self.waits
        while self._answers:
            node, wanted = self._answers.pop(0)
            if node is None:
                self.elders |= self._open
                self.waits = False
            elif wanted is not None:
                self.bystanders.heard(node)
                if wanted:
                    self.elders |= {node}
        self.waits = self.waits and bool(self._open)
        return waited and not self.waits

    @property
    def asked(self) -> frozenset[str]:
        """The nodes that are up, and on which the lock is requested."""
        return self.bystanders.asked(self._node.alive)

    def lose_patience(self) -> None:
        """Have the instance take part soon, even if answers are missing."""
        Waiter().wait(PATIENCE, idle=True)
        self._tell(None, None)

    def _ask(self, names: Iterable[str]) -> None:
        """Ask nodes that were not asked before; in the turn."""
        new = [name for name in sorted(names) if name not in self._asked]
        for name in new:
            assert self._node.cluster is not None
            self._asked.add(name)
            self._open.add(name)
            try:
                told = partial(self._tell, name)
                self._node.cluster.views.ask_whether_wanted(name, self._lock_id, told)
            except LocksError:  # it was lost, which another event reports
                self._tell(name, None)

    def _tell(self, of: str | None, wanted: bool | None) -> None:
        """Notify the instance, after all present news of process groups; once of all answers that it waits for."""
        self._answers.append((of, wanted))
        if of is not None:
            self._open.discard(of)
        if of is None or not (self.waits and self._open):
            self._node.executor.run_soon(tell, self._instance, Heard())
