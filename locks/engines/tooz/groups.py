"""The groups of tooz, as they are in the lock table; pure.

They are kept nowhere else. A member of a group *holds a lock* in it, and when the member ends, in any way, it leaves the
group. The capabilities of a member are in the id of another lock. So the holders of the locks in a group, as reported by the
lock servers, are the group, and the guarantees of locks hold for groups: no node must be elected to keep them, and
they survive the loss of a minority of the lock servers.

Below `(..., group)` there are

    ("change",)                             write: held while changing the group, by one at a time
    ("kept",)                               read: held by each coordinator that created the group or was in it; without one there is no group
    ("member", member)                      write: held by a member
    ("capabilities", member, n, bytes)      write: its capabilities, changed n times
    ("leader",), ("leader is", member)      write, read: held by the leader, and its name
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
        base: The prefix of all of them.
    """

    base: LockId

    @property
    def change(self) -> LockId:
        """The lock for changing the group."""
        return (*self.base, "change")

    @property
    def kept(self) -> LockId:
        """The shared lock of those who keep the group."""
        return (*self.base, "kept")

    @property
    def leader(self) -> LockId:
        """The leader's lock."""
        return (*self.base, "leader")

    def leader_is(self, member: bytes) -> LockId:
        """The leader's second lock, with its name."""
        return (*self.base, "leader is", member)

    def member(self, member: bytes) -> LockId:
        """A member's lock."""
        return (*self.base, "member", member)

    def capabilities(self, member: bytes, number: int, said: bytes) -> LockId:
        """A member's second lock, with its capabilities and their number."""
        return (*self.base, "capabilities", member, number, said)


class Member(NamedTuple):
    """A member of a group.

    Attributes:
        agent: The agent that holds its locks.
        number: How often it has changed its capabilities.
        capabilities: The capabilities, in bytes.
        joined: When it joined, in microseconds since 1970, by a lock server's clock.
        updated: When it last changed the capabilities, likewise.
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
        leader: Its leader, if there is one; it need not be a member.
    """

    keepers: frozenset[AgentId]
    members: dict[bytes, Member]
    leader: bytes | None


def groups_of(facts: Iterable[RequestFact], above: int) -> dict[bytes, Group]:
    """The groups in the answers of lock servers.

    A lock counts if at least one of them has granted it: a majority of answers thus includes every lock that a majority has granted.

    Args:
        facts: The answers.
        above: How many elements of a lock id precede the group's.
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


_Held = dict[tuple[LockId, AgentId], int]  # the time since which each holds its locks


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
                pass  # a change in progress, or a lock that is not of tooz
    members = {
        member: Member(agent, *said[member, agent][:2], since, said[member, agent][2])
        for (member, agent), since in joined.items()
        if (member, agent) in said  # otherwise it is about to join
    }
    leaders = [member for agent, member in candidates.items() if agent in leads]
    return Group(frozenset(keepers), members, leaders[0] if leaders else None)
