"""One scope of process groups on one node: the shell around a `GroupTable`.

It lives in the node's turn. It is a process with a pid, registered under the scope's name; the scopes of
that name on other nodes send it messages and watch it. A node without other nodes has no such process. An
actor gets its pid when it is first reported to another node.

Members are actors' references here and pids elsewhere; users get references for all of them. The node's
executor notifies users and their watchers, in the order of events.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pykka

from locks.errors import MisuseError, assert_never
from locks.groups import wire
from locks.groups.table import (
    Discover,
    Effect,
    GroupTable,
    Join,
    Message,
    Send,
    Sync,
    Tell,
    UnwatchMember,
    WatchMember,
    WatchPeer,
)
from locks.groups.wire import Group
from locks.net.budgets import MOST_MEMBERSHIPS, Tally
from locks.node.client.clients import label_of
from locks.node.node import Node
from locks.node.services import Member
from locks.otp.bytes import etf
from locks.otp.bytes.control import StrangeMessage, check_speaker
from locks.otp.bytes.terms import Pid
from locks.otp.process.processes import Local
from locks.runtime.identity import Listener
from locks.runtime.monitor import Monitor, watch_end

__all__ = ["GroupMonitor", "Joined", "Left", "Ref", "Scope", "Watcher", "scope_of"]

Ref = pykka.ActorRef[Any]


class Joined(NamedTuple):
    """Members have joined a group; see `monitor`.

    Attributes:
        group: The group, as passed to `monitor`.
        members: Their references; one that has joined several times is listed as often.
    """

    group: Any
    members: list[Ref]


class Left(NamedTuple):
    """Members have left a group: on purpose, by their end, or because their node is lost.

    Attributes:
        group: The group, as passed to `monitor`.
        members: Their references; one that has left several times is listed as often.
    """

    group: Any
    members: list[Ref]


Watcher = Ref | Callable[[Joined | Left], object]


class GroupMonitor:
    """Notifies a watcher of changes of one group. `monitor` creates it.

    Attributes:
        group: The group, as passed to `monitor`.
        members: The references of its members when the monitor began; later changes are reported.
        never_blocks: Whether the watcher never blocks (`locks.runtime.identity.Listener`).
    """

    def __init__(self, scope: Scope, group: Group, watcher: Watcher) -> None:
        self.group = group.given
        self.members: list[Ref] = []
        self._key = group
        self._scope = scope
        self._listener = Listener(watcher)
        self.never_blocks = self._listener.never_blocks
        self._watching: Monitor | None = None
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<GroupMonitor of {self.group!r} for {self._listener.target!r}>"

    def cancel(self) -> None:
        """Stop notifying the watcher, also of changes that have already happened.

        Earlier messages may still be in an actor's inbox.
        """
        self._cancelled = True
        if self._watching is not None:
            self._watching.cancel()
        self._scope.node.turn.post(self._scope.demonitor, self._key, self)

    def watch_watcher(self) -> None:
        """Begin to watch the watcher, so that the monitor ends with it."""
        if self._listener.is_actor:
            self._watching = watch_end(self._listener.target, lambda _: self.cancel())

    def tell_watcher(self, news: Joined | Left) -> None:
        """Notify the watcher; called by the node's executor."""
        if not self._cancelled:
            self._listener(news)


class Scope:
    """The groups of one name space, on one node. All its methods must be called in the node's turn.

    Args:
        node: The node.
        name: The scope's name.

    Raises:
        MisuseError: Something else has that name on this node.
    """

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self._table = GroupTable()
        self._watches: dict[Any, Monitor] = {}  # of this node's members
        self._pids: dict[Any, Pid] = {}  # of the members that were reported to other nodes
        self._tallies: dict[str, Tally] = {}  # of the members of each other node
        self._me: Pid | None = None
        self._ended = False
        cluster = node.cluster
        if cluster is None:
            return
        self._cluster = cluster
        processes = cluster.processes
        if processes.registered(name) is not None:
            raise MisuseError(
                f"can't create a scope with the name {name!r}, which is in use on {node.name}; "
                "choose another name",
                name=name,
            )
        local = Local(self._receive)
        self._me = processes.add(node.new_number(), local)
        processes.register(name, local)
        cluster.on_connected.append(self._discover)
        for other in [*cluster.distribution.links, *cluster.distribution.relayed]:
            self._discover(other)

    # --- What users do --------------------------------------------------------------------------

    def join(self, group: Group, members: tuple[Ref, ...]) -> None:
        """Add actors of this node to a group."""
        self._perform(self._table.join(group, members))

    def leave(self, group: Group, members: tuple[Ref, ...]) -> bool:
        """Remove actors of this node from a group; return whether one of them was in it."""
        was_in_it = any(self._table.has_joined(group, member) for member in members)
        self._perform(self._table.leave(group, members))
        return was_in_it

    def members(self, group: Group) -> list[Ref]:
        """The members of a group."""
        return self._refs(self._table.members(group))

    def local_members(self, group: Group) -> list[Ref]:
        """The members of a group that live on this node."""
        return self._refs(self._table.local_members(group))

    def groups(self) -> list[Any]:
        """The groups that have members."""
        return [_value(group) for group in self._table.groups()]

    def members_here(self) -> Iterator[Member]:
        """The actors of this node that are members, for observers."""
        for group, members in self._table.content():
            assert isinstance(group, Group)
            for member in members:
                ref: Any = member
                yield Member(group.value, len(group), label_of(ref))

    def monitor(self, group: Group, watcher: Watcher) -> GroupMonitor:
        """Notify a watcher of the changes of a group."""
        made = GroupMonitor(self, group, watcher)
        made.members = self._refs(self._table.monitor(group, made))
        made.watch_watcher()
        return made

    def demonitor(self, group: Group, ended: GroupMonitor) -> None:
        """Forget a monitor."""
        self._table.demonitor(group, ended)

    def node_stopped(self) -> None:
        """End the scope: the node has stopped."""
        self._ended = True
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()

    # --- Peers ----------------------------------------------------------------------------------

    def _discover(self, node: str) -> None:
        """Send `Discover` to a newly connected node, in case it has the scope."""
        assert self._me is not None
        encoded = etf.encode(wire.pack(Discover(), self._me, self._pid_of))
        self._cluster.processes.send_named(node, self.name, encoded, self._me)

    def _receive(self, message: Any, sender: Pid | None) -> None:
        try:
            peer, said = wire.unpack(message)
        except StrangeMessage as error:
            text = "scope %s of %s ignored a message: %s"
            self._cluster.ignored(text, self.name, self.node.name, error)
            return
        check_speaker(peer, self._cluster.processes.speaker)
        self._count(peer, said)
        self._perform(self._table.handle(peer, said))

    def _count(self, peer: Pid, said: Message) -> None:
        """Raise `OverBudget`, before any change, if a node would exceed its limit of memberships here."""
        if isinstance(said, Join):
            more = len(said.members)
        elif isinstance(said, Sync):  # replaces its earlier members
            more = sum(len(members) for _, members in said.groups) - self._table.size(peer)
        elif isinstance(said, Discover):
            more = 1  # the peer itself, if it is new
        else:
            return
        tally = self._tallies.get(peer.node)
        if tally is None:
            count = partial(self._memberships, peer.node)
            tally = Tally(MOST_MEMBERSHIPS, "memberships of process groups", count)
            self._tallies[peer.node] = tally
        tally.add(max(more, 0))

    def _memberships(self, node: str) -> int:
        peers = [peer for peer in self._table.peers() if _pid(peer).node == node]
        return len(peers) + sum(map(self._table.size, peers))

    def _peer_down(self, peer: Pid, reason: Any) -> None:
        self._perform(self._table.peer_down(peer))
        if not any(_pid(each).node == peer.node for each in self._table.peers()):
            self._tallies.pop(peer.node, None)

    def _member_down(self, member: Ref) -> None:
        if self._ended:
            return
        self._watches.pop(member, None)
        self._perform(self._table.member_down(member))
        self._pids.pop(member, None)

    # --- Effects --------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        left: list[Any] = []
        message: Message | None = None
        for effect in effects:
            if isinstance(effect, Send):
                if effect.message is not message:  # it is the same for all peers
                    message = effect.message
                    terms = self._terms(message)
                for term in terms:
                    self._cluster.processes.send(_pid(effect.peer), term)
            elif isinstance(effect, Tell):
                self._tell(effect)
            elif isinstance(effect, WatchMember):
                member: Any = effect.member
                self._watches[member] = watch_end(member, partial(self._member_ended, member))
            elif isinstance(effect, UnwatchMember):
                self._watches.pop(effect.member).cancel()
                left.append(effect.member)
            elif isinstance(effect, WatchPeer):
                peer = _pid(effect.peer)
                told = partial(self._peer_down, peer)
                self._cluster.processes.monitor(peer.node, peer, told)
            else:
                assert_never(effect)
        for member in left:
            self._pids.pop(member, None)  # only after the others were informed

    def _member_ended(self, member: Ref, down: Any) -> None:
        self.node.turn.post(self._member_down, member)

    def _tell(self, effect: Tell) -> None:
        kind = Joined if effect.joined else Left
        told = effect.monitor
        assert isinstance(told, GroupMonitor)
        call = self.node.executor.run_soon if told.never_blocks else self.node.executor.tell
        call(told.tell_watcher, kind(told.group, self._refs(effect.members)))

    def _terms(self, message: Message) -> list[bytes]:
        """The encoded terms of a message: several if it is too large, with thousands of groups or members."""
        assert self._me is not None
        try:
            return [etf.encode(wire.pack(message, self._me, self._pid_of))]
        except etf.EncodeError:
            return [
                etf.encode(wire.pack(piece, self._me, self._pid_of))
                for piece in wire.pieces(message)
            ]

    # --- References and pids --------------------------------------------------------------------

    def _pid_of(self, member: Any) -> Pid:
        # Kept as long as it is a member: the pid of an ended actor is forgotten elsewhere.
        pid = self._pids.get(member)
        if pid is None:
            pid = self._pids[member] = self._cluster.remotes.pid_of(member)
        return pid

    def _refs(self, members: Iterable[Any]) -> list[Ref]:
        return [
            self._cluster.remotes.ref(member.node, member) if isinstance(member, Pid) else member
            for member in members
        ]


def _value(group: Hashable) -> Any:
    assert isinstance(group, Group)
    return group.value


def _pid(peer: Hashable) -> Pid:
    assert isinstance(peer, Pid)
    return peer


def scope_of(node: Node, name: str) -> Scope:
    """The scope of a name on a node; created on first use. Call it in the turn.

    Raises:
        MisuseError: Something else has the name.
        NodeNotRunning: The node was stopped.
    """
    scope: Scope = node.service("process groups", name, lambda: Scope(node, name))
    return scope
