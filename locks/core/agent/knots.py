"""Knots: deadlocks in which an agent waits for a unit of a counted lock.

An agent that waits for a lock waits for *every* agent whose request conflicts with it. An agent
that waits for one of n units waits for *any* of the agents that hold a unit: it gets one as soon as
fewer than n requests are granted or ahead of it (`locks.model.how_many_block`). So a cycle in the
wait-for graph need not be a deadlock. An agent is *stuck* when

* it waits for a lock, and an agent that it waits for is stuck, or
* it waits for one of n units, and n of the agents that hold one or are ahead in the queue are
  stuck.

Stuck agents continue only if one of them gives way. An agent that is not stuck releases its unit
sooner or later; a stuck agent never does. To find the largest set of stuck agents, start with all
agents, and remove those that are not stuck until none is left to remove. An agent forms a *knot*
with the agents of this set that it reaches, and that reach it, by edges of stuck requests. The
largest agent of a knot must yield.

So that agent must learn the whole knot, and not only one of its cycles. The rule for cycles
(`locks.core.agent.wait_graph`) is enough for this. Each edge of a knot lies on a path from the
largest agent through smaller ones back to itself, which may visit some of them twice. Take the
agents on that path in increasing order. Each in turn informs the smaller of its two neighbours on
the path, and its message contains all edges between them. In the end only the largest agent is
left, and it knows all edges of all such paths.

Records from other agents may be outdated. For a cycle this does little harm: a superfluous
surrender hands a lock to an older agent that waits for it. In a knot it could do harm, because the
waiting agent may be about to get another unit. So a surrender names the requests of the knot at its
lock server, and is refused if one of them has changed.

In one case an agent yields without need: it is the largest of a knot, and the other agents of that
knot are also stuck in a second knot without it. Resolving the second knot would be enough. But the
agent must not wait for that, because no message tells it when an edge of the second knot is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from locks.core.agent.exploration import Exploration
from locks.model import AgentId, Edge, RequestKey, how_many_block

__all__ = ["only_knots", "stuck_edges"]


def only_knots(found: Exploration, me: AgentId) -> Exploration:
    """Keep only those cycles through `me` and smaller agents that lie in a knot."""
    if not found.closing:
        return found
    follow: dict[AgentId, list[Edge]] = {}
    among = [edge for edge in found.edges if max(edge.waiter.agent, edge.holder.agent) <= me]
    for edge in stuck_edges(among):
        follow.setdefault(edge.waiter.agent, []).append(edge)
    closing: list[Edge] = []
    path: dict[AgentId, Edge] = {}
    agents = [me]
    for agent in agents:
        for edge in follow.get(agent, ()):
            other = edge.holder.agent
            if other == me:
                closing.append(edge)
            elif other not in path:
                path[other] = edge
                agents.append(other)
    ends = [end for agent in agents for edge in follow.get(agent, ()) for end in edge]
    knot = tuple({end.key: end for end in ends}.values())
    return found._replace(closing=closing, path=path, knot=knot)


class _Wait:
    """A waiting request.

    Attributes:
        edges: Its edges.
        left: How many of its edges lead to agents that may be stuck, by the number of them that is
            enough to block the request.
    """

    __slots__ = ("edges", "left")

    def __init__(self) -> None:
        self.edges: list[Edge] = []
        self.left: dict[int, int] = {}

    @property
    def is_stuck(self) -> bool:
        return any(count >= enough for enough, count in self.left.items())


def stuck_edges(edges: Iterable[Edge]) -> list[Edge]:
    """The edges from a stuck request to a stuck agent, among these edges."""
    waits: dict[RequestKey, _Wait] = {}
    edges_to: dict[AgentId, list[Edge]] = {}
    for edge in {(edge.waiter.key, edge.holder.key): edge for edge in edges}.values():
        wait = waits.setdefault(edge.waiter.key, _Wait())
        wait.edges.append(edge)
        _count(wait, edge, 1)
        edges_to.setdefault(edge.holder.agent, []).append(edge)
    own: dict[AgentId, list[_Wait]] = {}
    for wait in waits.values():
        own.setdefault(wait.edges[0].waiter.agent, []).append(wait)
    free = [a for a in {**own, **edges_to} if not any(wait.is_stuck for wait in own.get(a, ()))]
    seen = set(free)
    for agent in free:
        for edge in edges_to.get(agent, ()):
            _count(waits[edge.waiter.key], edge, -1)
            waiter = edge.waiter.agent
            if waiter not in seen and not any(wait.is_stuck for wait in own[waiter]):
                seen.add(waiter)
                free.append(waiter)
    return [
        edge
        for wait in waits.values()
        for edge in wait.edges
        if edge.holder.agent not in seen and wait.left[_enough(edge)] >= _enough(edge)
    ]


def _enough(edge: Edge) -> int:
    return how_many_block(edge.holder.lock_id, edge.waiter.lock_id)


def _count(wait: _Wait, edge: Edge, change: int) -> None:
    enough = _enough(edge)
    wait.left[enough] = wait.left.get(enough, 0) + change
