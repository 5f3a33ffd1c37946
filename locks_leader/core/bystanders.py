"""Bystanders: nodes that an election with islands leaves out, because no instance there takes part.

The lock could be requested on all nodes that are up. But then a program that only watches, and
hangs, would block each election until it counts as lost. So a node is left out as long as no
instance on it is known. Two instances must not leave out each other's node, because then both would
lead.

Process groups report the instances, and messages between two nodes keep their order. A node that
comes later receives all memberships first. But if two instances begin at the same time, neither may
know the other yet. So an instance that joins the groups sends a question (any will do) to the nodes
that are up, and leaves a node out only when it has *answered*. There are two cases. Either this
instance's membership reached the other node before an instance began there: then that instance
knows this one. Or an instance began there before: then its membership arrives here before the
answer. So one of the two knows the other, requests the lock on its node, and the lock table of that
node decides between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from locks_leader.core.messages import Member

__all__ = ["Bystanders"]


class Bystanders:
    """The nodes that one instance leaves out.

    Args:
        me: Its own node.
        alive: The nodes that were up when it joined the process groups.

    Attributes:
        unheard: The nodes among these that have not answered.
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
        """The nodes, of those that are up, on which the lock is requested."""
        return frozenset(alive & {self._me, *self.unheard, *self._members.values()})
