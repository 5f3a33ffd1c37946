"""How an instance on a client node finds the others, and gets its node connected with theirs.

Client nodes (`locks.start(..., mesh=False)`) are connected with servers only. The instance watches
the election's lock on all servers that count. It wishes for connections with the nodes of the
candidates that it sees there (`locks.otp.tunnel.wishes`), through the servers. From then on
everything is as between other nodes: process groups report the instances, and their ends.
Until then no harm is done, because the lock alone decides which candidate leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from locks.errors import InvalidOption
from locks.model import check_lock_id
from locks.node import Node
from locks.runtime.identity import Listener, Own
from locks.runtime.port import world
from locks.values import View
from locks_leader.core.contenders import Contenders
from locks_leader.policy import Policy, by_servers
from locks_leader.shell.transactions import LOCKS_LEADER

__all__ = ["Acquaintance", "Electorate", "check_electorate", "is_client", "servers_of"]


def is_client(node: Node) -> bool:
    """Whether a node is of a client program: connected with servers only."""
    return node.cluster is not None and node.cluster.distribution.options.hidden


def servers_of(node: Node, resource: Any) -> tuple[str, ...]:
    """The servers on which a node takes the lock of an election, if it was started with any."""
    if (
        node.cluster is None
        or node.servers is None
        or not node.cluster.distribution.options.servers
    ):
        return ()
    return node.servers.at((LOCKS_LEADER, resource)).nodes


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


class Electorate:
    """The nodes that count in one election, which may change if they are the node's servers.

    An election whose user has named exactly these servers keeps them, so it must end before the list changes.

    Args:
        node: The node.
        resource: The resource of the election.
        policy: Its policy.
        notice: Called when the servers have changed; by the executor.
    """

    def __init__(
        self, node: Node, resource: Any, policy: Policy, notice: Callable[[], object]
    ) -> None:
        self._node = node
        self._resource = resource
        self._policy = policy
        self._notice = notice
        self._rosters: Any = None  # of the node's cluster

    def begin(self) -> None:
        """The election begins, with the servers of `wanted`; in the turn.

        Raises:
            CannotServe: Its user has named the servers, and their list is being changed.
        """
        node, policy = self._node, self._policy
        if not servers_of(node, self._resource):
            return
        assert node.servers is not None
        assert node.cluster is not None
        if policy.roster is None:
            if policy.electorate not in [frozenset(each) for each in self._lists()]:
                return
            node.servers.check_settled(f"an election with nodes=[...], {self._resource}")
        self._rosters = node.cluster.rosters
        if self._rosters is not None:
            self._rosters.parties[self._notice] = self._rosters.used

    def wanted(self, policy: Policy) -> Policy:
        """The policy by the present servers.

        Args:
            policy: The last one that was returned.
        """
        if self._rosters is None or policy.roster in (None, self._rosters.used):
            return policy
        number = self._rosters.used  # before the servers, which may change meanwhile
        return by_servers(self._lists(), number)

    def _lists(self) -> list[tuple[str, ...]]:
        """The servers; while their list is being changed, the old ones and the new ones."""
        assert self._node.servers is not None
        lock_id = (LOCKS_LEADER, self._resource)
        return [each.at(lock_id).nodes for each in self._node.servers.each]

    def joined(self, policy: Policy) -> None:
        """The election goes by a policy."""
        if self._rosters is not None and policy.roster is not None:
            self._rosters.parties[self._notice] = policy.roster

    def end(self) -> None:
        """The election has ended here."""
        if self._rosters is not None:
            del self._rosters.parties[self._notice]
            self._rosters = None


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

    def move(self, servers: frozenset[str]) -> None:
        """Other servers count."""
        for server in self._watched - servers:
            self._unwatch(server)
            self._contenders.lost(server)
        self._watched &= servers
        self._servers = self._contenders.electorate = servers
        self.watch_servers()

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
        self._node.turn.run(self._node.cluster.wishes.set, self, nodes)

    def instance_ended(self) -> None:
        """The instance ends."""
        for server in self._watched:
            self._unwatch(server)
        self._watched.clear()
        self._wish(frozenset())

    def _unwatch(self, server: str) -> None:
        assert self._node.cluster is not None
        views = self._node.cluster.views
        self._node.turn.run(views.unwatch, server, self._lock_id, self._listener)
