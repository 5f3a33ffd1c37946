"""Implicit transactions of clients, for their `locks.Lock`s and for locks by the lock server.

Several threads may act for one owner (`locks.Owner`), which is one client. If they begin at the
same time, the transaction of one of them stays. The others end before anything is requested in
them. If two were in use, the owner would wait for itself, and a thread would not hold the locks
that it has just acquired.

A transaction is taken out (`ByClient.forget`) in the turn in which it ends. Until that turn is
over, other threads still find the ended transaction here, and so do finalisers and signal handlers
that run within the turn.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from locks.node.ports import NodePort
from locks.runtime.identity import ByClient
from locks.runtime.monitor import Client

__all__ = ["Holders"]


class Holder(Protocol):
    """The part of `locks.node.client.agent.Agent` that is needed here."""

    client_key: object
    kept_by: Any  # the `Holders` that keeps it, if one does
    blocks: Any  # of generators, by which its client holds something, if it does

    def is_alive(self) -> bool:
        """Whether its transaction has not ended."""

    def has_parted(self) -> bool:
        """Whether it belongs to blocks of generators that its client has left to others."""


A = TypeVar("A", bound=Holder)


class _HasBegun(Exception):
    """Another thread of the same owner has begun an implicit transaction meanwhile."""


class Holders(ByClient[A], Generic[A]):
    """The agents of these transactions, by client.

    Args:
        node: The node.
        **options: The options of the agents.

    Attributes:
        options: The same.
    """

    __slots__ = ("_node", "options")

    def __init__(self, node: NodePort, **options: Any) -> None:
        super().__init__()
        self._node = node
        self.options = options

    def living(self, client: Client) -> A | None:
        """The agent of a client, unless it has ended; `None` if there is none."""
        agent = self.get(client)
        if agent is None or not agent.is_alive() or (agent.blocks and agent.has_parted()):
            return None
        return agent

    def living_or_new(self, client: Client, label: str | None = None) -> A:
        """The agent of a client; a new one, with this label, if it has none."""
        while True:
            agent = self.living(client)
            if agent is not None:
                return agent
            try:
                begun: A = self._node.spawn_agent(
                    client, keep=self._keep, label=label, **self.options
                )
            except _HasBegun:
                continue
            if not begun.is_alive():  # its owner has ended before it was put in
                self._node.turn.run(self.forget, begun.client_key, begun)
            return begun

    def _keep(self, agent: A) -> None:
        agent.kept_by = self
        first = self.put_first(agent.client_key, agent)
        if first is not agent and (first.is_alive() or not self._node.turn.run(self.follow, agent)):
            raise _HasBegun

    def follow(self, agent: A) -> bool:
        """Replace an agent that has ended; return whether no other one was first. In a turn."""
        first = self.put_first(agent.client_key, agent)
        if first is agent:
            return True
        if not first.is_alive():  # it ends within this very turn
            self.put(agent.client_key, agent)
            return True
        return False
