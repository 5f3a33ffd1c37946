"""One scope of process groups on one node: the shell around a `GroupTable`.

It lives in the node's turn. It is registered under the scope's name, so that the scopes of that name on other nodes send it
messages and monitor it; each is a peer, known by its node. The node's executor notifies users and their watchers, in the order of
events.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pykka

from locks.errors import MisuseError, assert_never
from locks.groups.table import (
    AnyMessage,
    Discover,
    Effect,
    GroupTable,
    Join,
    Leave,
    Send,
    Sync,
    Tell,
    UnwatchMember,
    WatchMember,
    WatchPeer,
)
from locks.lock_ids import size_of
from locks.net.actors import Local
from locks.net.budgets import MOST_MEMBERSHIPS, Tally
from locks.net.messages import Tell as Letter
from locks.net.messages import check_speaker
from locks.node.client.clients import label_of
from locks.node.node import Node
from locks.node.services import Member
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

    def __init__(self, scope: Scope, group: Hashable, watcher: Watcher) -> None:
        self.group = group
        self.members: list[Ref] = []
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
        self._scope.node.turn.post(self._scope.demonitor, self.group, self)

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
        self._tallies: dict[str, Tally] = {}  # of the members of each other node
        self._ended = False
        cluster = node.cluster
        if cluster is None:
            return
        self._cluster = cluster
        if cluster.actors.registered(name) is not None:
            raise MisuseError(
                f"can't create a scope with the name {name!r}, which is in use on {node.name}; "
                "choose another name",
                name=name,
            )
        self._decode = cluster.actors.values.decoder(AnyMessage)
        cluster.actors.register(name, Local(None, self._receive))
        cluster.on_connected.append(self._discover)
        for other in [*cluster.network.links, *cluster.network.relayed]:
            self._discover(other)

    # --- What users do --------------------------------------------------------------------------

    def join(self, group: Hashable, members: tuple[Ref, ...]) -> None:
        """Add actors of this node to a group."""
        self._perform(self._table.join(group, members))

    def leave(self, group: Hashable, members: tuple[Ref, ...]) -> bool:
        """Remove actors of this node from a group; return whether one of them was in it."""
        was_in_it = any(self._table.has_joined(group, member) for member in members)
        self._perform(self._table.leave(group, members))
        return was_in_it

    def members(self, group: Hashable) -> list[Ref]:
        """The members of a group."""
        return self._refs(self._table.members(group))

    def local_members(self, group: Hashable) -> list[Ref]:
        """The members of a group that live on this node."""
        return self._refs(self._table.local_members(group))

    def groups(self) -> list[Any]:
        """The groups that have members."""
        return list(self._table.groups())

    def members_here(self) -> Iterator[Member]:
        """The actors of this node that are members, for observers."""
        for group, members in self._table.content():
            for member in members:
                ref: Any = member
                yield Member(group, size_of((group,)), label_of(ref))

    def monitor(self, group: Hashable, watcher: Watcher) -> GroupMonitor:
        """Notify a watcher of the changes of a group."""
        made = GroupMonitor(self, group, watcher)
        made.members = self._refs(self._table.monitor(group, made))
        made.watch_watcher()
        return made

    def demonitor(self, group: Hashable, ended: GroupMonitor) -> None:
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
        self._send(node, Discover())

    def _send(self, node: str, message: AnyMessage) -> None:
        payload = self._cluster.actors.values.encode(message)
        self._cluster.exchange.send(node, Letter(self.name, payload))

    def _receive(self, payload: bytes, peer: str) -> None:
        said: AnyMessage = self._decode(payload)
        if isinstance(said, (Join, Leave)):
            self._check_members(said.members, peer)
        elif isinstance(said, Sync):
            for _, members in said.groups:
                self._check_members(members, peer)
        self._count(peer, said)
        self._perform(self._table.handle(peer, said))

    def _check_members(self, members: Iterable[Any], peer: str) -> None:
        for member in members:
            check_speaker(getattr(member, "node", self.node.name), peer)

    def _count(self, peer: str, said: AnyMessage) -> None:
        """Raise `OverBudget`, before any change, if a node would exceed its limit of memberships here."""
        if isinstance(said, Join):
            more = len(said.members)
        elif isinstance(said, Sync):  # replaces its earlier members
            more = sum(len(members) for _, members in said.groups) - self._table.size(peer)
        else:
            return
        tally = self._tallies.get(peer)
        if tally is None:
            count = partial(self._table.size, peer)
            tally = Tally(MOST_MEMBERSHIPS, "memberships of process groups", count)
            self._tallies[peer] = tally
        tally.add(max(more, 0))

    def _peer_down(self, peer: str, reason: Any) -> None:
        self._tallies.pop(peer, None)
        self._perform(self._table.peer_down(peer))

    def _member_down(self, member: Ref) -> None:
        if self._ended:
            return
        self._watches.pop(member, None)
        self._perform(self._table.member_down(member))

    # --- Effects --------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                peer: Any = effect.peer
                self._send(peer, effect.message)
            elif isinstance(effect, Tell):
                self._tell(effect)
            elif isinstance(effect, WatchMember):
                member: Any = effect.member
                self._watches[member] = watch_end(member, partial(self._member_ended, member))
            elif isinstance(effect, UnwatchMember):
                self._watches.pop(effect.member).cancel()
            elif isinstance(effect, WatchPeer):
                node: Any = effect.peer
                self._cluster.actors.monitor(node, self.name, partial(self._peer_down, node))
            else:
                assert_never(effect)

    def _member_ended(self, member: Ref, down: Any) -> None:
        self.node.turn.post(self._member_down, member)

    def _tell(self, effect: Tell) -> None:
        kind = Joined if effect.joined else Left
        told = effect.monitor
        assert isinstance(told, GroupMonitor)
        call = self.node.executor.run_soon if told.never_blocks else self.node.executor.tell
        call(told.tell_watcher, kind(told.group, self._refs(effect.members)))

    def _refs(self, members: Iterable[Any]) -> list[Ref]:
        return list(members)


def scope_of(node: Node, name: str) -> Scope:
    """The scope of a name on a node; created on first use. Call it in the turn.

    Raises:
        MisuseError: Something else has the name.
        NodeNotRunning: The node was stopped.
    """
    scope: Scope = node.service("process groups", name, lambda: Scope(node, name))
    return scope
