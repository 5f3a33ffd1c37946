"""What the parts of a node that meet other nodes need of it, and of its relations with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AgentEffect
from locks.core.statistics import NodeStatistics
from locks.model import AgentId
from locks.net.notices import Notices
from locks.node.client.agent import Agent
from locks.node.ports import NodePort
from locks.node.server import Server
from locks.node.services import Services

if TYPE_CHECKING:
    from locks.net.actors import Actors
    from locks.net.exchange import Exchange
    from locks.net.messages import Limits
    from locks.net.network import Network
    from locks.node.peers.silence import Silence
    from locks.runtime.executor import Executor

__all__ = ["Connections", "LocalNode"]


class LocalNode(NodePort, Protocol):
    """The part of a node that its connections with other nodes need.

    Attributes:
        running: Whether it was not stopped.
        server: Its lock server.
        agents_by_id: Its agents.
        services: Its other services.
    """

    running: bool
    server: Server
    services: Services
    agents_by_id: dict[AgentId, Agent]

    @property
    def cluster(self) -> Connections | None:
        """Its relations with other nodes, if there may be any."""

    @property
    def notices(self) -> Notices:
        """Logs warnings about others."""

    def new_number(self) -> int:
        """The number of a new agent or actor."""

    def statistics(self) -> NodeStatistics:
        """Counters and present size."""

    def tell_agents(
        self,
        event: Callable[[AgentMachine, str], list[AgentEffect]],
        node: str,
        in_touch: bool = False,
    ) -> None:
        """Notify all agents, or those in touch with others, that another node is up or gone."""


class Connections(Protocol):
    """The part of `locks.node.peers.cluster.Cluster` that the modules which it is made of need.

    Attributes:
        node: The node.
        executor: Does its background work.
        members: The nodes with a lock server that can be asked.
        network: The connections.
        exchange: Sends frames over them.
        actors: The actors that can be reached over them.
        silence: Watches which connected nodes are silent.
        limits: What this node may have at the lock servers of connected nodes, as far as they said.
    """

    node: LocalNode
    executor: Executor
    members: set[str]
    network: Network
    exchange: Exchange
    actors: Actors
    silence: Silence
    limits: dict[str, Limits]
