"""What an agent finds when it looks at its surroundings in the wait-for graph."""

from __future__ import annotations

from typing import NamedTuple

from locks.model import AgentId, Edge, RequestRecord

__all__ = ["Exploration", "smaller_of_pairs"]


class Exploration(NamedTuple):
    """What an agent's look at its surroundings found.

    Attributes:
        closing: Edges that close a cycle in which the agent is the largest: a request of a
            smaller agent, reached from here, that waits for a request of this agent.
        path: For each smaller agent that is reached, the edge by which it was reached first.
        targets: The larger agents that are to be told.
        edges: All edges found, from request to request.
        knot: Where counted locks matter, the requests by which the agent is in a deadlock.
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
