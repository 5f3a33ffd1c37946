"""The result of an agent's search in the wait-for graph."""

from __future__ import annotations

from typing import NamedTuple

from locks.model import AgentId, Edge, RequestRecord

__all__ = ["Exploration", "smaller_of_pairs"]


class Exploration(NamedTuple):
    """The result of an agent's search in the wait-for graph.

    Attributes:
        closing: The edges that close a cycle in which this agent is the largest. In each of them, a
            smaller agent that this agent reaches waits for a request of this agent.
        path: For each smaller agent that this agent reaches, the edge that reached it first.
        targets: The larger agents to which the edges are passed on.
        edges: All edges found, from request to request.
        knot: With counted locks, the requests that make the deadlock; else empty.
    """

    closing: list[Edge]
    path: dict[AgentId, Edge]
    targets: set[AgentId]
    edges: list[Edge]
    knot: tuple[RequestRecord, ...] = ()

    def cycle(self, closing: Edge) -> tuple[Edge, ...]:
        """The cycle that `closing` closes; `closing` comes first."""
        me = closing.holder.agent
        edges = []
        agent = closing.waiter.agent
        while agent != me:
            edge = self.path[agent]
            edges.append(edge)
            agent = edge.waiter.agent
        return (closing, *reversed(edges))


def smaller_of_pairs(before: set[AgentId], behind: set[AgentId]) -> set[AgentId]:
    """The smaller agent of each pair of one of `before` and one of `behind`.

    An agent is the smaller one of some pair if it is not larger than the largest of the other set.
    """
    if not (before and behind):
        return set()
    last_before, last_behind = max(before), max(behind)
    return {p for p in before if p <= last_behind} | {n for n in behind if n <= last_before}
