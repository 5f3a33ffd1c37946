"""The membership plane: who takes part in the election, and whom the leader has told that it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from locks_leader.core.messages import Kind, Member

__all__ = ["MemberEntry", "Membership"]


class MemberEntry(NamedTuple):
    """A member's node, and as what it takes part."""

    node: str
    kind: Kind


class Membership:
    """The other instances that one instance knows.

    Attributes:
        entries: All of them, in the order in which they were met.
        synced: Those that were told that this instance leads; empty if it doesn't. `False` for those
            who are to be told again: until then they may follow, or not.
    """

    __slots__ = ("entries", "synced")

    def __init__(self) -> None:
        self.entries: dict[Member, MemberEntry] = {}
        self.synced: dict[Member, bool] = {}

    def add(self, member: Member, entry: MemberEntry) -> bool:
        """Somebody is met; returns whether it was not known."""
        if member in self.entries:
            return False
        self.entries[member] = entry
        return True

    def remove(self, member: Member) -> bool:
        """Somebody is gone; returns whether it was known."""
        self.synced.pop(member, None)
        return self.entries.pop(member, None) is not None

    def those(self, kind: Kind) -> list[Member]:
        """All candidates, or all workers."""
        return [member for member, entry in self.entries.items() if entry.kind == kind]

    def unsynced(self, may_be_told: Callable[[str], bool]) -> list[Member]:
        """Those on certain nodes that were not told who leads, or are to be told again."""
        return [
            member
            for member, entry in self.entries.items()
            if not self.synced.get(member) and may_be_told(entry.node)
        ]
