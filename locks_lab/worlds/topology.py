"""Nodes that are never connected, and the ways that messages between agents take then.

Clients may live on nodes without a lock server: such *client nodes* are connected with lock servers only, as
far as these are not out of their reach, and never with each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

from locks.core.messages import Knowledge, Relay, ToAgent, Undelivered
from locks.core.paths import way
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, Edge
from locks_lab.worlds.checks import reached
from locks_lab.worlds.host import Mail
from locks_lab.worlds.network import Network, Pair

__all__ = ["cut_off", "never_linked", "route"]


def never_linked(
    servers: Iterable[str], homes: Iterable[str], unlinked: Iterable[Pair] = ()
) -> set[frozenset[str]]:
    """The pairs of nodes that are never connected.

    Args:
        servers: The nodes with lock servers.
        homes: Where clients live; those that are no lock servers are client nodes.
        unlinked: More pairs.
    """
    clients = sorted(set(homes) - set(servers))
    return {frozenset(pair) for pair in (*combinations(clients, 2), *unlinked)}


def route(network: Network, relays: Collection[str], sender: AgentId, effect: ToAgent) -> Mail:
    """What is sent, by whom and to whom, when an agent says something to another one.

    Args:
        network: The network.
        relays: The nodes with lock servers.
        sender: The agent.
        effect: What it says.
    """
    agent, message, over, own = effect
    home = sender.node

    def is_connected(node: str) -> bool:
        return network.is_connected(home, node)

    to = way(home, agent.node, over, own, is_connected, lambda n: n in relays and is_connected(n))
    if to == agent.node:
        return (sender, agent, message)
    if to is None:
        return (sender, sender, Undelivered("", agent))
    assert isinstance(message, Knowledge)
    others = tuple(node for node in over if node != to)
    return (sender, to, Relay(sender, agent, others, message))


def cut_off(
    stuck: Collection[AgentId],
    edges: Iterable[Edge],
    network: Network,
    servers: Mapping[str, ServerMachine],
) -> set[AgentId]:
    """Those of the agents that are stuck because there is no way between some of them.

    Args:
        stuck: The agents.
        edges: The wait-for graph.
        network: The network.
        servers: The lock servers that run.
    """
    follow: dict[AgentId, set[AgentId]] = {}
    behind: dict[AgentId, set[AgentId]] = {}
    for edge in edges:
        follow.setdefault(edge.waiter.agent, set()).add(edge.holder.agent)
        behind.setdefault(edge.holder.agent, set()).add(edge.waiter.agent)
    found: set[AgentId] = set()
    for agent in stuck:
        circle = reached(agent, follow) & reached(agent, behind)
        pairs = [(a, b) for a in circle for b in circle if a != b]
        if not all(_has_way(a, b, network, servers) for a, b in pairs):
            found |= {agent, *reached(agent, behind)}
    return found


def _has_way(
    one: AgentId, other: AgentId, network: Network, servers: Mapping[str, ServerMachine]
) -> bool:
    """Whether an agent can tell another one something: directly, or over one or two lock servers."""

    def linked(a: str, b: str) -> bool:
        return a == b or (network.is_connected(a, b) and network.is_connected(b, a))

    def where(agent: AgentId) -> list[str]:
        return [n for n, s in servers.items() if agent in s.table.owners and linked(agent.node, n)]

    last = where(other)
    first = [node for node in (*last, *where(one)) if linked(one.node, node)]
    return linked(one.node, other.node) or any(linked(a, b) for a in first for b in last)
