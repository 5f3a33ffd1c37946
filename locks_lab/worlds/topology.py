"""Client nodes, and agents that are stuck because two of them cannot reach each other.

Clients may live on nodes without a lock server. These *client nodes* are connected with the lock
servers that they can reach, and with each other through these servers (`locks_lab.worlds.network`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from locks.model import AgentId, Edge
from locks_lab.worlds.checks import reached
from locks_lab.worlds.network import Network

__all__ = ["client_nodes", "cut_off"]


def client_nodes(servers: Iterable[str], homes: Iterable[str]) -> frozenset[str]:
    """The nodes of clients that have no lock server."""
    return frozenset(homes) - frozenset(servers)


def cut_off(stuck: Collection[AgentId], edges: Iterable[Edge], network: Network) -> set[AgentId]:
    """The agents that are stuck because some of them are not connected.

    Args:
        stuck: All stuck agents.
        edges: The wait-for graph.
        network: The network.
    """
    follow: dict[AgentId, set[AgentId]] = {}
    behind: dict[AgentId, set[AgentId]] = {}
    for edge in edges:
        follow.setdefault(edge.waiter.agent, set()).add(edge.holder.agent)
        behind.setdefault(edge.holder.agent, set()).add(edge.waiter.agent)
    found: set[AgentId] = set()
    for agent in stuck:
        circle = reached(agent, follow) & reached(agent, behind)
        pairs = [(a.node, b.node) for a in circle for b in circle]
        if not all(a == b or network.is_connected(a, b) for a, b in pairs):
            found |= {agent, *reached(agent, behind)}
    return found
