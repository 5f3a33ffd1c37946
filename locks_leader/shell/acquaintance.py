"""How an instance on a client node finds the others, and gets its node connected with theirs.

Client nodes (`locks.start(..., mesh=False)`) are connected with servers only. The instance watches
the election's lock on all servers that count. It wishes for links with the nodes of the
candidates that it sees there (`locks.net.relay`), through the servers. From then on
everything is as between other nodes: process groups report the instances, and their ends.
Until then no harm is done, because the lock alone decides which candidate leads.
"""

from __future__ import annotations

from typing import Any

from locks.errors import InvalidOption
from locks.model import check_lock_id
from locks.node import Node
from locks.runtime.identity import Listener, Own
from locks.runtime.port import world
from locks.values import View
from locks.words import ELECTION_ID
from locks_leader.core.contenders import Contenders
from locks_leader.policy import Policy

__all__ = ["Acquaintance", "check_electorate", "is_client", "servers_of"]


def is_client(node: Node) -> bool:
    """Whether a node is of a client program: connected with servers only."""
    return node.cluster is not None and node.cluster.options.hidden


def servers_of(node: Node, resource: Any) -> tuple[str, ...]:
    """The servers on which a node takes the lock of an election, if it was started with any."""
    if node.cluster is None or node.servers is None or not node.cluster.options.servers:
        return ()
    return node.servers.at((ELECTION_ID, resource)).nodes


def check_electorate(node: Node, policy: Policy) -> None:
    """Check that a client program's policy names the servers of its election.

    Raises:
        InvalidOption: It does not.
        MisuseError: In a simulation, there are other nodes.
    """
    world().check_nodes(policy.electorate or ())
    if is_client(node) and (policy.electorate is None or node.name in policy.electorate):
        raise InvalidOption(
            f"{node.name} is a client node (mesh=False), which other nodes don't see; hold the election on lock "
            "servers, with locks.start(servers=[...]) or nodes=[the servers]; or start the node with mesh",
            node=node.name,
        )


class Acquaintance:
    """How one instance finds the others.

    Args:
        node: Its node.
        lock_id: The election's lock.
        servers: The nodes that count.
    """

    def __init__(self, node: Node, lock_id: tuple[Any, ...], servers: frozenset[str]) -> None:
        self._node = node
        self._lock_id = check_lock_id(lock_id)
        self._servers = servers
        self._contenders = Contenders(node.name, servers)
        self._listener = Listener(Own(self._viewed))
        self._watched: set[str] = set()

    def watch_servers(self) -> None:
        """Watch the lock on all servers that are up, and forget the views of others."""
        for server in self._servers - self._watched:
            if self._node.turn.run(self._watch, server):
                self._watched.add(server)  # the watch is renewed by itself when it comes back
        for server in self._watched - self._node.alive:
            self._wish(self._contenders.lost(server))

    def _watch(self, server: str) -> bool:
        """Watch the lock on a server, if it is up. In the turn."""
        assert self._node.cluster is not None
        is_there = server in self._node.alive
        if is_there:
            self._node.cluster.views.watch(server, self._lock_id, self._listener)
        return is_there

    def _viewed(self, view: View) -> None:
        if view.node in self._watched:
            nodes = (contender.agent.node for contender in view.requests)
            self._wish(self._contenders.viewed(view.node, nodes))

    def _wish(self, nodes: frozenset[str]) -> None:
        assert self._node.cluster is not None
        self._node.turn.run(self._node.cluster.relays.wish, self, nodes)

    def instance_ended(self) -> None:
        """The instance ends."""
        assert self._node.cluster is not None
        for server in self._watched:
            self._node.turn.run(
                self._node.cluster.views.unwatch, server, self._lock_id, self._listener
            )
        self._watched.clear()
        self._wish(frozenset())
