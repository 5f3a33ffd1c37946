"""The membership plane: the instances of the election, and those to which the leader is announced."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from locks_leader.core.messages import Kind, Member

__all__ = ["MemberEntry", "Membership"]


class MemberEntry(NamedTuple):
    """A member's node, and whether it is a candidate or a worker."""

    node: str
    kind: Kind


class Membership:
    """The other instances that one instance knows.

    Attributes:
        entries: All of them, in the order in which they were met.
        synced: The instances to which this one has announced itself, in this order; empty if it does not lead.
    """

    __slots__ = ("entries", "synced")

    def __init__(self) -> None:
        self.entries: dict[Member, MemberEntry] = {}
        self.synced: dict[Member, None] = {}

    def add(self, member: Member, entry: MemberEntry) -> bool:
        """Add an instance; return whether it is new."""
        if member in self.entries:
            return False
        self.entries[member] = entry
        return True

    def remove(self, member: Member) -> bool:
        """Remove an instance; return whether it was known."""
        self.synced.pop(member, None)
        return self.entries.pop(member, None) is not None

    def those(self, kind: Kind) -> list[Member]:
        """All candidates, or all workers."""
        return [member for member, entry in self.entries.items() if entry.kind == kind]

    def unsynced(self, may_be_told: Callable[[str], bool]) -> list[Member]:
        """The instances on certain nodes that need an announcement."""
        return [
            member
            for member, entry in self.entries.items()
            if member not in self.synced and may_be_told(entry.node)
        ]
