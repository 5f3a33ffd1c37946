"""The groups of tooz, as they stand in the lock table; pure.

There is no other place where they are kept. Who is in a group *has a lock* in it, and with its end, however it comes, it is out
of it. What a member says of itself, its capabilities, is in the id of another lock. So whoever asks the lock servers who has
what in a group knows the group, and what is true of locks is true of groups: nobody has to be elected to keep them, and
they outlive a minority of the lock servers.

Below `(..., group)` there are

    ("change",)                             write: whoever changes the group, one at a time
    ("kept",)                               read: each coordinator that has created the group, or was in it; no group without one
    ("member", member)                      write: a member
    ("capabilities", member, n, bytes)      write: what it says of itself, the nth time
    ("leader",), ("leader is", member)      write, read: the leader, and who that is
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from locks.core.facts import RequestFact
from locks.model import AgentId, LockId

__all__ = ["Group", "GroupIds", "Member", "groups_of"]


class GroupIds(NamedTuple):
    """The lock ids of a group.

    Attributes:
        base: What is above all of them.
    """

    base: LockId

    @property
    def change(self) -> LockId:
        """What whoever changes the group has alone."""
        return (*self.base, "change")

    @property
    def kept(self) -> LockId:
        """What those have together who keep the group."""
        return (*self.base, "kept")

    @property
    def leader(self) -> LockId:
        """What the leader has."""
        return (*self.base, "leader")

    def leader_is(self, member: bytes) -> LockId:
        """What the leader has, too: who it is."""
        return (*self.base, "leader is", member)

    def member(self, member: bytes) -> LockId:
        """What a member has."""
        return (*self.base, "member", member)

    def capabilities(self, member: bytes, number: int, said: bytes) -> LockId:
        """What a member has, too: what it has said of itself, the how many-th time."""
        return (*self.base, "capabilities", member, number, said)


class Member(NamedTuple):
    """A member of a group.

    Attributes:
        agent: Whose locks make it one.
        number: How many times it has changed its capabilities.
        capabilities: These, in bytes.
        joined: When it joined, in microseconds since 1970, by a lock server's clock.
        updated: When it said this, likewise.
    """

    agent: AgentId
    number: int
    capabilities: bytes
    joined: int
    updated: int


class Group(NamedTuple):
    """A group.

    Attributes:
        keepers: The transactions that keep it; without one it does not exist.
        members: Its members, by their ids.
        leader: Its leader, if there is one; that need not be a member.
    """

    keepers: frozenset[AgentId]
    members: dict[bytes, Member]
    leader: bytes | None


def groups_of(facts: Iterable[RequestFact], above: int) -> dict[bytes, Group]:
    """The groups that lock servers tell of.

    What one of them has granted, and another one not yet, counts: whoever asks a majority of them sees all that a majority has granted.

    Args:
        facts: What they have told.
        above: How many elements of a lock id stand before the group's.
    """
    found: dict[bytes, _Held] = {}
    for fact in facts:
        lock_id, agent = fact.request.lock_id, fact.request.agent
        if not fact.granted or len(lock_id) <= above:
            continue
        group, what = lock_id[above], lock_id[above + 1 :]
        if isinstance(group, bytes):
            held = found.setdefault(group, {})
            held[what, agent] = min(held.get((what, agent), fact.since), fact.since)
    return {group: _group(held) for group, held in found.items()}


_Held = dict[tuple[LockId, AgentId], int]  # since when each has what


def _group(held: _Held) -> Group:
    keepers: set[AgentId] = set()
    leads: set[AgentId] = set()
    candidates: dict[AgentId, bytes] = {}
    joined: dict[tuple[bytes, AgentId], int] = {}
    said: dict[tuple[bytes, AgentId], tuple[int, bytes, int]] = {}
    for (what, agent), since in held.items():
        match what:
            case ("kept",):
                keepers.add(agent)
            case ("leader",):
                leads.add(agent)
            case ("leader is", bytes(member)):
                candidates[agent] = member
            case ("member", bytes(member)):
                joined[member, agent] = since
            case ("capabilities", bytes(member), int(number), bytes(capabilities)):
                new = (number, capabilities, since)
                said[member, agent] = max(said.get((member, agent), new), new)
            case _:
                pass  # it is being changed; or a lock that is none of tooz
    members = {
        member: Member(agent, *said[member, agent][:2], since, said[member, agent][2])
        for (member, agent), since in joined.items()
        if (member, agent) in said  # otherwise it is about to join
    }
    leaders = [member for agent, member in candidates.items() if agent in leads]
    return Group(frozenset(keepers), members, leaders[0] if leaders else None)
