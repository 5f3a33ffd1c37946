"""Turnover: a node whose servers have changed ends, and the next use of locks starts another one.

A node keeps its set of servers for life, and never mixes old and new ones. A `ChangingDiscovery` is
called again and again. When it has named other servers several times (`Sightings`), a server stops
at once, and its lock holders are notified. Any other node stops when it has no transactions, or
when too few of its servers run for it to hold anything. Decision 0034 gives the reasons.
"""

from __future__ import annotations

import logging

import gevent

from locks.core.agent.requests import servable
from locks.errors import TransactionEnded
from locks.node.peers.local_node import LocalNode
from locks.node.ports import Servers
from locks.otp.names.discovery import ChangingDiscovery, Sightings
from locks.otp.names.ways import Finder
from locks.runtime.executor import Executor
from locks.runtime.native import start_new_thread
from locks.runtime.waiter import Event

__all__ = ["Turnover"]

logger = logging.getLogger("locks.nodes")


class Turnover:
    """Watches whether one node's servers are still its own.

    Args:
        node: The node.
        executor: Runs the watch.
        finder: Calls the discovery.
        discovery: The discovery.
        servers: The node's servers.

    Attributes:
        reason: Why the node ends, in words; empty if it does not end because of this.
        ended: Opens when it has ended.
    """

    def __init__(
        self,
        node: LocalNode,
        executor: Executor,
        finder: Finder,
        discovery: ChangingDiscovery,
        servers: Servers,
    ) -> None:
        self.reason = ""
        self.ended = Event()
        self._node = node
        self._executor = executor
        self._finder = finder
        self._discovery = discovery
        self._servers = servers
        self._sightings = Sightings(servers.nodes)

    def start(self) -> None:
        """Begin to watch."""
        self._executor.run_soon(self._executor.spawn, self._keep_watching)

    def _keep_watching(self) -> None:
        while True:
            gevent.sleep(self._discovery.interval, ref=False)
            found = self._finder.ask_discovery() if self._node.running else None
            if not self._node.running:
                return
            if found is not None:
                self._sightings.take_names(found)
            others = self._sightings.others
            if others is not None and self._may_end():
                self._end(others)
                return

    def _may_end(self) -> bool:
        node, servers = self._node, self._servers
        if node.name in servers.nodes or not node.agents_by_id:
            return True
        return not servable(servers.require, servers.nodes, node.alive)

    def _end(self, others: frozenset[str]) -> None:
        node = self._node
        self.reason = (
            f"node {node.name} has ended: its servers were {', '.join(self._servers.nodes)}, but "
            f"{self._discovery.describe()} names {', '.join(sorted(others))} now"
        )
        text = "%s. The next call of locks starts a node with the new servers"
        self._executor.run_soon(logger.warning, text, self.reason)
        node.turn.run(self._end_agents)
        start_new_thread(self._stop, ())  # this hub ends with the node

    def _stop(self) -> None:
        try:
            self._node.stop()
        finally:
            self.ended.open()

    def _end_agents(self) -> None:
        for agent in list(self._node.agents_by_id.values()):
            agent.event(
                agent.machine.end_transaction, TransactionEnded(self.reason, agent=agent.id)
            )
