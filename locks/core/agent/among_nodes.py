"""What happens to an agent because nodes are connected with its own, or lost."""

from __future__ import annotations

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.ledger import Ledger
from locks.core.agent.requests import LockRequest, locks_lost
from locks.core.messages import AgentEffect, Ended, Lost, Notify
from locks.errors import LocksError
from locks.model import AgentId, Notification

__all__ = ["AmongNodes"]


class AmongNodes:
    """The events of an agent's machine that are about other nodes."""

    __slots__ = ()

    id: AgentId
    await_nodes: bool
    ended: Ended | None
    monitor_nodes: bool
    notify: bool
    _ledger: Ledger
    _out: list[AgentEffect]
    _resolver: Resolver

    def _conclude(self) -> list[AgentEffect]:
        raise NotImplementedError

    def end(self, reason: LocksError | None = None) -> list[AgentEffect]:
        """End the transaction."""
        raise NotImplementedError

    def node_up(self, node: str) -> list[AgentEffect]:
        """The lock server of a node is there (again)."""
        if self.ended is None and node not in self._ledger.alive:
            if self.monitor_nodes:
                self._out.append(Notify(Notification(self.id, "nodeup", node)))
            self._resolver.node_up(node)
            self._ledger.node_up(node)
        return self._conclude()

    def node_down(self, node: str) -> list[AgentEffect]:
        """The lock server of a node is gone, and with it all that it had granted.

        What the client was told it has, and is granted on too few nodes now, is `Lost`, before
        anything else is said. Then what can't be granted any more ends the transaction, unless
        nodes are awaited.
        """
        if self.ended is None and node in self._ledger.alive:
            lost = self._ledger.node_down(node)
            missing = None if self.await_nodes else self._ledger.unservable()
            if lost:
                self._lose(lost, missing is not None and missing.lost is not None)
            if self.monitor_nodes:
                self._out.append(Notify(Notification(self.id, "nodedown", node)))
            self._resolver.node_down(node, self._ledger.used)
            if missing is not None:
                return self.end(self._ledger.ending(missing))
        return self._conclude()

    def node_silent(self, node: str) -> list[AgentEffect]:
        """A node is connected and says nothing: what needs a majority waits for another one first, until it speaks."""
        return self._hear(self._ledger.silent | {node})

    def node_speaks(self, node: str) -> list[AgentEffect]:
        """A node that was silent says something again."""
        return self._hear(self._ledger.silent - {node})

    def _hear(self, silent: frozenset[str]) -> list[AgentEffect]:
        if self.ended is None:
            silent &= self._ledger.alive
            self._resolver.silent = silent
            self._ledger.hear(silent)
            self._resolver.unsettled = self._resolver.graph is not None
        return self._conclude()

    @property
    def in_touch(self) -> bool:
        """Whether it has told other agents something, or was told: else `peer_up` and `peer_down` do nothing."""
        return self._resolver.in_touch

    def peer_up(self, node: str) -> list[AgentEffect]:
        """A node is connected: there may be other ways to agents."""
        self._resolver.node_up(node)
        return self._conclude()

    def peer_down(self, node: str) -> list[AgentEffect]:
        """A node is gone that had no lock server, and perhaps what agents there were told."""
        self._resolver.peer_down(node)
        return self._conclude()

    def _lose(self, lost: list[LockRequest], ends: bool) -> None:
        """Tell the client of locks that are lost."""
        error = locks_lost(self.id, lost, ends)
        first: list[AgentEffect] = [Lost(error.lock_ids, error)]
        if self.notify:
            first.append(Notify(Notification(self.id, "lost", error.lock_ids)))
        self._out[:0] = first
