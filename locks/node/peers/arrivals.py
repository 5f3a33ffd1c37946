"""Waits for nodes: for their lock servers, or just for the connections."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from math import inf

from locks.node.client.refusals import check_may_wait
from locks.node.ports import NodePort, Servers
from locks.runtime.clock import monotonic
from locks.runtime.waiter import Waiter

__all__ = ["Arrivals"]

MOMENT = 0.02  # seconds between two checks whether servers are up


class Arrivals:
    """Waits for the nodes of a cluster.

    Args:
        node: The node that waits.
        members: The nodes with a lock server that can be asked.
        has_failed: Whether a node could not be connected, by its name; in the turn.
    """

    def __init__(
        self, node: NodePort, members: Container[str], has_failed: Callable[[str], bool]
    ) -> None:
        self._node = node
        self._members = members
        self._has_failed = has_failed
        self._waiting: dict[str, list[tuple[Waiter, bool]]] = {}
        self._without_server: set[str] = set()  # connected, and known to have no lock server for us
        self._closed = False

    def await_node(self, name: str, timeout: float | None, *, server: bool) -> bool:
        """Wait for a node, outside of the turn: for its lock server, or just for the connection.

        Returns:
            Whether it is up.

        Raises:
            NodeNotRunning: This node was stopped.
        """
        waiter = self._node.turn.run(self._wait_for, name, server)
        if waiter is None:
            return True
        try:
            came = waiter.wait(timeout)
        finally:
            if not waiter.woken:
                self._node.turn.post(self._stop_waiting, name, waiter)
        if self._closed:
            self._node.check_running()
        return came

    def await_all(self, names: Iterable[str], timeout: float | None) -> bool:
        """Wait for nodes' lock servers, outside of the turn; return whether all were up at some time."""
        check_may_wait()
        deadline = None if timeout is None else monotonic() + timeout
        for name in names:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if name != self._node.name and not self.await_node(name, left, server=True):
                return False
        return True

    def await_servers(
        self, servers: Servers, timeout: float, *, found: bool, grace: float = inf
    ) -> None:
        """Wait until enough servers can be asked, or it is known why the others can't; outside of the turn.

        Args:
            servers: The servers, and how many are needed.
            timeout: Seconds to wait at most.
            found: Whether a locator finds their addresses, which may differ at the next attempt.
            grace: Seconds to wait for the remaining ones when enough can be asked.

        Raises:
            NodeNotRunning: This node was stopped.
        """
        nodes = servers.nodes
        deadline = monotonic() + timeout
        most = servers._replace(require="majority").enough
        while True:
            up = self._node.alive.intersection(nodes)
            away = [name for name in nodes if name not in up]
            if len(up) >= most:
                deadline, grace = min(deadline, monotonic() + grace), inf
            unknown = away if found else self._node.turn.ask(self._not_tried, away)
            left = deadline - monotonic()
            if len(up) >= servers.enough or not unknown or left <= 0:
                return
            self.await_node(unknown[0], min(left, MOMENT), server=True)

    def came(self, name: str, has_server: bool = True) -> None:
        """Wake the waits for a node that is up; in the turn."""
        if not has_server:
            self._without_server.add(name)
        waiting = self._waiting.pop(name, [])
        for waiter, needs_server in waiting:
            if has_server or not needs_server:
                waiter.wake()
        left = [entry for entry in waiting if not entry[0].woken]
        if left:
            self._waiting[name] = left

    def close(self) -> None:
        """This node has stopped: wake all waits; in the turn."""
        self._closed = True
        for waiting in self._waiting.values():
            for waiter, _ in waiting:
                waiter.wake()
        self._waiting.clear()

    def left(self, name: str) -> None:
        """A node is no longer connected; in the turn."""
        self._without_server.discard(name)

    def _not_tried(self, names: list[str]) -> list[str]:
        return [name for name in names if not self._has_failed(name)]

    def _wait_for(self, name: str, server: bool) -> Waiter | None:
        """A waiter for a node; `None` if it is up already."""
        if self._closed:
            self._node.check_running()
        if name in self._members or (not server and name in self._without_server):
            return None
        waiter = Waiter()
        self._waiting.setdefault(name, []).append((waiter, server))
        return waiter

    def _stop_waiting(self, name: str, waiter: Waiter) -> None:
        """A caller has given up."""
        left = [entry for entry in self._waiting.pop(name, []) if entry[0] is not waiter]
        if left:
            self._waiting[name] = left
