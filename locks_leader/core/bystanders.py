"""Nodes that an election with islands leaves out, because nobody there takes part in it.

The lock could be asked for on all nodes that are up. But then a program that only looks on, and hangs, would hold
up each election until it is taken for lost. So a node is left out as long as no instance on it is known. Two
instances must not leave out each other's node: both would lead.

Process groups tell who takes part, and messages between two nodes keep their order. A node that comes later is told
all memberships first of all. But where two instances begin at the same time, neither may be known to the other yet. So the
nodes that are there when an instance joins the groups are asked something, whatever it is, and are left out only
when they have *answered*. Either the membership was there before the question, and who begins there later knows it;
or who has begun there before is known here before the answer. So one of the two knows the other, asks on its
node, and the lock table of that node decides between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from locks_leader.core.messages import Member

__all__ = ["Bystanders"]


class Bystanders:
    """Which nodes one instance leaves out.

    Args:
        me: Its own node.
        alive: The nodes that are up when it has joined the process groups.

    Attributes:
        unheard: Those of them that have not answered.
    """

    __slots__ = ("_me", "_members", "unheard")

    def __init__(self, me: str, alive: Iterable[str]) -> None:
        self._me = me
        self._members: dict[Member, str] = {}
        self.unheard = set(alive) - {me}

    def joined(self, member: Member, node: str) -> None:
        """An instance on a node takes part."""
        self._members[member] = node

    def down(self, member: Member) -> None:
        """An instance has ended, or is cut off."""
        self._members.pop(member, None)

    def heard(self, node: str) -> None:
        """A node has answered, or was lost."""
        self.unheard.discard(node)

    def asked(self, alive: Set[str]) -> frozenset[str]:
        """On which of the nodes that are up the lock is asked for."""
        return frozenset(alive & {self._me, *self.unheard, *self._members.values()})
