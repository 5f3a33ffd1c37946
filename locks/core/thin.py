"""Thin locks, the rule: when a lock needs no agent, its token, and what the lock server takes in once it needs one.

A node has one thin lock, or one thin transaction, at a time. The lock table has neither it nor those before it, which are
counted. Its *inflation* puts the table where it would be: it counts those that are over, and requests the lock that is held,
for an agent of the age of its transaction. So the lock has the version that its client was given as a token.

`locks.node.client.thin` is the shell, which says what inflates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from locks.core.agent.machine import Object
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, agent_numbered

__all__ = ["Granted", "Holder", "Made", "Thin"]

Made = tuple[int, str, bool]
"""What an agent's machine is made of: its number, the name of its client, and whether a deadlock aborts it."""
Granted = tuple[Object, int, float, Any]
"""A lock as it was requested, its token, when it was granted, and the call that has got it."""


class Holder(Protocol):
    """What a client has instead of an agent.

    Attributes:
        granted: Its lock, once it has one.
    """

    granted: Granted | None

    @property
    def made(self) -> Made:
        """What its agent is made of."""


class Thin:
    """The thin locks of one node.

    Args:
        machine: The node's lock server.

    Attributes:
        held: What is thin now, if anything is.
        taken: How many locks were taken that the lock table does not have, the one that is held among them.
    """

    def __init__(self, machine: ServerMachine) -> None:
        self.machine = machine
        self.held: Any = None
        self.taken = 0

    def give(self, holder: Holder, wanted: Object, now: float, call: Any = None) -> bool:
        """Give a holder its first lock, if nothing else is thin and nobody has requested anything related; return whether it has it."""
        if holder.granted is not None or (self.held is not None and self.held is not holder):
            return False
        lock_id, table = wanted[0], self.machine.table
        # Nearly always there is nothing below the id's first element.
        if lock_id[0] in table.root.children and next(table.related(lock_id), None) is not None:
            return False
        self.taken += 1
        holder.granted = wanted, table.version + 2 * self.taken - 1, now, call
        return True

    def reference(self, holder: Holder) -> AgentId:
        """The reference of its agent."""
        return agent_numbered(holder.made[0], self.machine.node)

    def steps(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """The events of the lock server that were left out: what is over, and the request of what is held."""
        machine, thin = self.machine, self.held
        granted = None if thin is None else thin.granted
        over = self.taken - (granted is not None)
        if granted is None:
            return [(machine.pass_over, (over,))]
        request = self.reference(thin), thin.made[1], *granted[0][:2]
        return [(machine.pass_over, (over,)), (machine.request, request)]

    def conclude(self) -> None:
        """The lock server has taken them in."""
        self.held = None
        self.taken = 0
