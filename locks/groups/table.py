"""Which actors are members of which groups: the decisions of one node, for one scope.

Theory of operation
-------------------
A node decides only on its own members. It also keeps a copy of the members of each *peer* (the process of
the same scope on another node), as reported by that peer. The members of a group are the node's own and those
of all copies; nothing is forwarded from one peer to another.

A copy is made and kept like this. A node that connects to another node sends `Discover`. The answer is `Sync`:
all members of the answering peer, which replace the copy. From then on the peer reports each change with `Join`
and `Leave`. Messages between two peers keep their order, so the copy stays right. If a peer is down (its
process, its node or the connection), its copy is dropped; at the next connection, this starts again.

A peer gets changes only after a `Sync`. OTP's own `pg` is less strict: it may tell a
peer that a member has left a group that the peer has never heard of, which crashes that peer.

A member may join a group several times, and is in it until it has left as often, as in `pg`.

Everything here is events in, effects out. Groups, members, peers and monitors are hashable values that
mean nothing here.

Source: the comments of `pg.erl` in OTP's application `kernel`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Meta

from locks.errors import assert_never
from locks.ranges import Message
from locks.words import Key

__all__ = [
    "AnyMessage",
    "Discover",
    "Effect",
    "GroupTable",
    "Join",
    "Leave",
    "Send",
    "Sync",
    "Tell",
    "UnwatchMember",
    "WatchMember",
    "WatchPeer",
]


MOST = 100_000  # groups, or members of a group, in one message
if TYPE_CHECKING:
    AnyMember = Hashable  # for the decisions here; between nodes it is a reference
else:
    from locks.net.values import Reference as AnyMember
Members = Annotated[tuple[AnyMember, ...], Meta(max_length=MOST)]


class Discover(Message, frozen=True):
    """Message to a peer: this node is connected; report your members."""


class Sync(Message, frozen=True):
    """Message to a peer: these are all my members.

    Attributes:
        groups: Each group with its members; one that has joined several times is listed as often.
    """

    groups: Annotated[tuple[tuple[Key, Members], ...], Meta(max_length=MOST)]


class Join(Message, frozen=True):
    """Message to a peer: members of mine have joined a group."""

    group: Key
    members: Members


class Leave(Message, frozen=True):
    """Message to a peer: each of these members of mine has left each of these groups once."""

    members: Members
    groups: Annotated[tuple[Key, ...], Meta(max_length=MOST)]


AnyMessage = Discover | Sync | Join | Leave


class Send(NamedTuple):
    """Effect: send a message to a peer."""

    peer: Hashable
    message: AnyMessage


class WatchPeer(NamedTuple):
    """Effect: call `peer_down` once, when this peer is down."""

    peer: Hashable


class WatchMember(NamedTuple):
    """Effect: call `member_down` when this member, an actor of this node, has ended."""

    member: Hashable


class UnwatchMember(NamedTuple):
    """Effect: stop watching this member."""

    member: Hashable


class Tell(NamedTuple):
    """Effect: notify a monitor of members that have joined or left its group."""

    monitor: Hashable
    joined: bool
    group: Hashable
    members: tuple[Hashable, ...]


Effect = Send | WatchPeer | WatchMember | UnwatchMember | Tell


class _Roster:
    """Groups with their members, each with the number of its joins."""

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: dict[Hashable, dict[Hashable, int]] = {}

    def add(self, group: Hashable, members: Iterable[Hashable]) -> None:
        counts = self.groups.get(group, {})
        for member in members:
            counts[member] = counts.get(member, 0) + 1
        if counts:
            self.groups[group] = counts

    def remove(self, group: Hashable, members: Iterable[Hashable]) -> tuple[Hashable, ...]:
        """Remove members, each once; return those that were in the group."""
        counts = self.groups.get(group, {})
        removed = []
        for member in members:
            if member in counts:
                removed.append(member)
                counts[member] -= 1
                if not counts[member]:
                    del counts[member]
        if not counts:
            self.groups.pop(group, None)
        return tuple(removed)

    def members(self, group: Hashable) -> tuple[Hashable, ...]:
        return _expand(self.groups.get(group, {}))

    def content(self) -> tuple[tuple[Hashable, tuple[Hashable, ...]], ...]:
        return tuple([(group, _expand(counts)) for group, counts in self.groups.items()])


class _Peer(_Roster):
    """The known members of a peer, and whether ours were sent to it."""

    __slots__ = ("told",)

    def __init__(self) -> None:
        super().__init__()
        self.told = False


class GroupTable:
    """The groups of one scope, as known by one node."""

    def __init__(self) -> None:
        self._own = _Roster()
        self._joined: dict[
            Hashable, list[Hashable]
        ] = {}  # the groups of each of this node's members
        self._peers: dict[Hashable, _Peer] = {}
        self._monitors: dict[Hashable, dict[Hashable, None]] = {}

    # --- Questions ------------------------------------------------------------------------------

    def members(self, group: Hashable) -> tuple[Hashable, ...]:
        """The members of a group: those of this node first, each in the order of joining."""
        there = [peer.groups[group] for peer in self._peers.values() if group in peer.groups]
        return sum(map(_expand, there), self._own.members(group))

    def local_members(self, group: Hashable) -> tuple[Hashable, ...]:
        """The members of a group that live on this node."""
        return self._own.members(group)

    def content(self) -> tuple[tuple[Hashable, tuple[Hashable, ...]], ...]:
        """The groups with members on this node, each with these members."""
        return self._own.content()

    def has_joined(self, group: Hashable, member: Hashable) -> bool:
        """Whether a member of this node is in a group."""
        return group in self._joined.get(member, ())

    def groups(self) -> tuple[Hashable, ...]:
        """The groups that have members."""
        found = dict.fromkeys(self._own.groups)
        for peer in self._peers.values():
            found.update(dict.fromkeys(peer.groups))
        return tuple(found)

    def peers(self) -> tuple[Hashable, ...]:
        """The known peers."""
        return tuple(self._peers)

    def size(self, peer: Hashable) -> int:
        """The number of known memberships of a peer."""
        known = self._peers.get(peer)
        return 0 if known is None else sum(sum(there.values()) for there in known.groups.values())

    # --- What happens on this node --------------------------------------------------------------

    def join(self, group: Hashable, members: tuple[Hashable, ...]) -> list[Effect]:
        """Add members of this node to a group."""
        effects: list[Effect] = []
        for member in members:
            if member not in self._joined:
                self._joined[member] = []
                effects.append(WatchMember(member))
            self._joined[member].append(group)
        self._own.add(group, members)
        return effects + self._tell(True, group, members) + self._to_peers(Join(group, members))

    def leave(self, group: Hashable, members: tuple[Hashable, ...]) -> list[Effect]:
        """Remove members of this node from a group; those that are not in it are ignored."""
        removed = self._own.remove(group, members)
        if not removed:
            return []
        effects: list[Effect] = []
        for member in removed:
            self._joined[member].remove(group)
            if not self._joined[member]:
                del self._joined[member]
                effects.append(UnwatchMember(member))
        effects += self._tell(False, group, removed)
        return effects + self._to_peers(Leave(removed, (group,)))

    def member_down(self, member: Hashable) -> list[Effect]:
        """Remove a member of this node that has ended from all its groups."""
        groups = self._joined.pop(member, [])
        effects: list[Effect] = []
        for group in dict.fromkeys(groups):
            removed = self._own.remove(group, [member] * groups.count(group))
            effects += self._tell(False, group, removed)
        return effects + (self._to_peers(Leave((member,), tuple(groups))) if groups else [])

    def monitor(self, group: Hashable, monitor: Hashable) -> tuple[Hashable, ...]:
        """Report each change of a group to a monitor from now on; return the current members."""
        self._monitors.setdefault(group, {})[monitor] = None
        return self.members(group)

    def demonitor(self, group: Hashable, monitor: Hashable) -> None:
        """Stop reporting to a monitor."""
        monitors = self._monitors.get(group, {})
        monitors.pop(monitor, None)
        if not monitors:
            self._monitors.pop(group, None)

    # --- What peers say -------------------------------------------------------------------------

    def handle(self, peer: Hashable, message: AnyMessage) -> list[Effect]:
        """Handle a message of a peer."""
        known = self._peers.get(peer)
        effects: list[Effect] = []
        match message:
            case Discover():
                effects.append(Send(peer, Sync(self._own.content())))
                if known is None:
                    known = self._peers[peer] = _Peer()
                    effects += [WatchPeer(peer), Send(peer, Discover())]
                known.told = True
            case Sync():
                if known is None:
                    known = self._peers[peer] = _Peer()
                    effects.append(WatchPeer(peer))
                effects += self._replace(known, message)
            case Join(group, members):
                if known is not None:  # otherwise a `Sync` with everything will follow
                    known.add(group, members)
                    effects += self._tell(True, group, members)
            case Leave(members, groups):
                if known is not None:
                    for group in groups:
                        effects += self._tell(False, group, known.remove(group, members))
            case _:
                assert_never(message)
        return effects

    def peer_down(self, peer: Hashable) -> list[Effect]:
        """Remove all members of a peer that is down or can't be reached."""
        lost = self._peers.pop(peer, None)
        effects: list[Effect] = []
        for group, members in lost.content() if lost is not None else ():
            effects += self._tell(False, group, members)
        return effects

    def _replace(self, known: _Peer, sync: Sync) -> list[Effect]:
        """Replace a peer's members by those of a `Sync`."""
        before = known.groups
        known.groups = {}
        for group, members in sync.groups:
            known.add(group, members)
        effects: list[Effect] = []
        for group in dict.fromkeys((*before, *known.groups)):
            old, new = before.get(group, {}), known.groups.get(group, {})
            effects += self._tell(False, group, _difference(old, new))
            effects += self._tell(True, group, _difference(new, old))
        return effects

    # --- Effects --------------------------------------------------------------------------------

    def _tell(self, joined: bool, group: Hashable, members: tuple[Hashable, ...]) -> list[Effect]:
        monitors = self._monitors.get(group, {}) if members else {}
        return [Tell(monitor, joined, group, members) for monitor in monitors]

    def _to_peers(self, message: AnyMessage) -> list[Effect]:
        return [Send(peer, message) for peer, known in self._peers.items() if known.told]


def _expand(counts: dict[Hashable, int]) -> tuple[Hashable, ...]:
    """Each member, as often as it has joined."""
    return tuple([member for member, count in counts.items() for _ in range(count)])


def _difference(ours: dict[Hashable, int], theirs: dict[Hashable, int]) -> tuple[Hashable, ...]:
    """The elements that `ours` has more often than `theirs`, repeated by the difference."""
    return _expand({member: count - theirs.get(member, 0) for member, count in ours.items()})
