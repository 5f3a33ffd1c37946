"""Nodes with lock servers: faults of connections and nodes, and invariants of grants.

Every simulation of several nodes is a `Nodes`: a world (`locks_lab.worlds.world`), whose clients
run scripts, and an application (`locks_lab.applications.application`), whose clients are a
program's own functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from locks.core.messages import Remove, ServerMessage
from locks.core.server.machine import ServerMachine
from locks_lab.worlds.checks import check_exclusion, check_told
from locks_lab.worlds.host import Host, Message, Violation
from locks_lab.worlds.network import Change, Network, NodeChange, Party

__all__ = ["Nodes"]


class _Rule(Protocol):
    """Makes lock servers."""

    def server(self, node: str, first_version: int = 0) -> ServerMachine:
        """One of a node that begins."""


class Nodes:
    """Lock servers, and the network between them.

    Args:
        rule: Makes the lock servers.
        names: The nodes that have a lock server.
        network: The network.

    Attributes:
        servers: The running lock servers, by node.
        names: The nodes with lock servers, running or not.
        network: The messages in flight, and which nodes see each other.
        restarts: How often nodes were restarted.
    """

    def __init__(self, rule: _Rule, names: Sequence[str], network: Network) -> None:
        self.rule = rule
        self.names = tuple(names)
        self.network = network
        self.servers = {node: rule.server(node) for node in names}
        self.restarts = 0
        self._last_token: dict[str, int] = {}

    def _serve(self, server: ServerMachine, message: ServerMessage) -> None:
        """A lock server takes in a message."""
        raise NotImplementedError

    def _send(self, sender: Party, receiver: Party, message: Message) -> None:
        """Put a message on its way."""
        raise NotImplementedError

    # --- Connections and nodes

    def _notice_peer(self, server: ServerMachine, other: str, there: bool) -> None:
        """A lock server's node notices that another one is gone, or there."""
        if there and other in self.names:
            server.raise_to(self.servers[other].version)
        if not there:
            for agent in [agent for agent in server.table.requesters if agent.node == other]:
                self._serve(server, Remove(agent))

    def _may_break(self, cuts: bool, crashes: Iterable[str], restarts: bool) -> list[Change]:
        """The faults and repairs of connections and nodes that may happen next, but never need to.

        Args:
            cuts: Whether connections may be cut.
            crashes: The nodes that may crash.
            restarts: Whether crashed nodes may be restarted.
        """
        network = self.network
        found = network.breaks(cuts)
        found += [("crash", node) for node in crashes if node not in network.crashed]
        if restarts:
            found += [("restart", node) for node in sorted(network.crashed)]
        return found

    def _end_or_begin(self, change: NodeChange, node: str) -> None:
        """A node crashes or restarts.

        After a restart its table is empty, and its versions are larger than all earlier ones.
        """
        if change == "crash":
            self.servers.pop(node, None)
            return
        self.restarts += 1
        if node in self.names:
            self.servers[node] = self.rule.server(node, self.restarts << 32)

    # --- What must always be true

    def _check_tokens(self, node: str, new: Collection[int]) -> None:
        """Check that fencing tokens increase from grant to grant, also over restarts of the node."""
        if new and min(new) <= self._last_token.get(node, -1):
            raise Violation(f"fencing tokens of {node} fall: {min(new)}")
        if new:
            self._last_token[node] = max(new)

    def _check_told(self, host: Host, server: ServerMachine) -> None:
        """Check a client's locks, unless it has lost its connection and has not noticed yet."""
        if self.network.vouches(server.node, host.ref.node):
            check_told(host, server)

    def _check_exclusion(self, one: Host, other: Host) -> None:
        """Check that two clients hold no conflicting locks; a loss may still be unnoticed."""
        homes = one.ref.node, other.ref.node
        for node in self.servers:
            if all(self.network.vouches(node, home) for home in homes):
                check_exclusion(one, other, node)
