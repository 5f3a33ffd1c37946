"""The part of a node that its connections with other nodes need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AgentEffect
from locks.core.statistics import NodeStatistics
from locks.model import AgentId
from locks.node.client.agent import Agent
from locks.node.ports import NodePort
from locks.node.server import Server
from locks.node.services import Services
from locks.otp.notices import Notices

__all__ = ["LocalNode"]


class LocalNode(NodePort, Protocol):
    """The part of a node that its connections with other nodes need.

    Attributes:
        running: Whether it was not stopped.
        notices: Logs warnings about others.
        server: Its lock server.
        agents_by_id: Its agents.
        services: Its other services.
    """

    running: bool
    notices: Notices
    server: Server
    services: Services
    agents_by_id: dict[AgentId, Agent]

    def new_number(self) -> int:
        """The number of a new process."""

    def statistics(self) -> NodeStatistics:
        """Counters and present size."""

    def tell_agents(
        self,
        event: Callable[[AgentMachine, str], list[AgentEffect]],
        node: str,
        in_touch: bool = False,
    ) -> None:
        """Notify all agents, or those in touch with others, that another node is up or gone."""
