"""The transactions of clients who have begun none: one for the `locks.Lock`s of each, one for what each locks by the lock server.

Several threads may act for one owner (`locks.Owner`): they are one client. If they begin at the same moment, the
transaction of one of them stays, and the others' end before anything is asked for in them. Where two were in use,
the owner would wait for itself, and threads would not have what they have just acquired.

Whoever takes one out (`ByClient.forget`) does so in the turn in which it ends. So one that has ended is found here by other
threads until that turn is over, and by what is called from within it (a finaliser, a signal handler).
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from locks.node.ports import NodePort
from locks.runtime import Client
from locks.runtime.identity import ByClient

__all__ = ["Holders"]


class Holder(Protocol):
    """What has to be known of an agent; `locks.node.client.agent.Agent` is the real one."""

    client_key: object
    kept_by: Any  # the `Holders` that has it, if one has
    blocks: Any  # of generators, by which its client holds something, if it does

    def is_alive(self) -> bool:
        """Whether its transaction has not ended."""

    def has_parted(self) -> bool:
        """Whether it belongs to blocks of generators that its client has left to others."""


A = TypeVar("A", bound=Holder)


class _HasBegun(Exception):
    """Another thread of the same owner has begun a transaction for its locks meanwhile."""


class Holders(ByClient[A], Generic[A]):
    """For each client that has such locks its agent.

    Args:
        node: The node.
        **options: What agents are made with.
    """

    __slots__ = ("_node", "_options")

    def __init__(self, node: NodePort, **options: Any) -> None:
        super().__init__()
        self._node = node
        self._options = options

    def living(self, client: Client) -> A | None:
        """The agent of a client, unless it has ended; `None` if there is none."""
        agent = self.get(client)
        if agent is None or not agent.is_alive() or (agent.blocks and agent.has_parted()):
            return None
        return agent

    def begin(self, client: Client, label: str | None = None) -> A:
        """The agent of a client; a new one, with this label, if it has none."""
        while True:
            agent = self.living(client)
            if agent is not None:
                return agent
            try:
                begun: A = self._node.spawn_agent(
                    client, keep=self._keep, label=label, **self._options
                )
            except _HasBegun:
                continue
            if not begun.is_alive():  # its owner has ended before it was put in
                self._node.turn.run(self.forget, begun.client_key, begun)
            return begun

    def _keep(self, agent: A) -> None:
        agent.kept_by = self
        first = self.put_first(agent.client_key, agent)
        if first is not agent and (
            first.is_alive() or not self._node.turn.run(self._follow, agent)
        ):
            raise _HasBegun

    def _follow(self, agent: A) -> bool:
        """Put an agent in after one that has ended; whether no other one has come first. In a turn."""
        first = self.put_first(agent.client_key, agent)
        if first is not agent and not first.is_alive():  # it ends within this very turn
            self.put(agent.client_key, agent)
            return True
        return first is agent
