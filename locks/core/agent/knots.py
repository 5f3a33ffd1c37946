"""Deadlocks where somebody waits for a unit of a counted lock: knots, not circles.

Who waits for a lock waits for each of those in its way. Who waits for a unit waits for *any* of those who have
one: it gets one as soon as fewer of them, and of those ahead of it, are in the way than there are units
(`locks.model.how_many_block`). So a circle in the wait-for graph need not be a deadlock. An agent is *stuck* when

* it waits for a lock, and one of those in its way is stuck, or
* it waits for a unit of a lock that has n of them, and n of those who have one or stand ahead are stuck.

Who is stuck can't go on unless one who is stuck gives way: each of those ahead that is not stuck lets go some
day, and each that is takes a unit for good. The largest set for which this holds is found by striking out agents
who are not stuck, as long as there are any. An agent is in a *knot* with those of the set that it reaches, and
that reach it, by the edges of requests that are stuck. The largest agent of a knot must yield.

So it must get to know the knot, and not one of its circles alone. It does, by the very rule for circles
(`locks.core.agent.wait_graph`): each edge of a knot lies on a way from its largest agent through smaller ones back
to itself, perhaps through some of them twice. Take the agents on that way in increasing order. Each one, in its
turn, tells the smaller one of those before and behind it, and what it tells has all edges between these in it. In the end
the largest is left, and it knows all edges of all such ways.

What others have told may be outdated. Where a circle is none any more, a surrender does little harm: it hands a lock to
somebody older who waits for it. In a knot that is not so sure, for who waits may be about to get another unit. So
a surrender names the requests of the knot at its lock server, and is refused if one of them has changed.

One thing is more than is needed: an agent may be the largest of a knot whose others are stuck without it as well, in
another one. Then it yields, although it would have been enough that the other knot is resolved. To hold back until then
would be wrong: nobody tells it when an edge there is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from locks.core.agent.exploration import Exploration
from locks.model import AgentId, Edge, RequestKey, how_many_block

__all__ = ["only_knots", "stuck_edges"]


def only_knots(found: Exploration, me: AgentId) -> Exploration:
    """Of the circles that were found through `me` and smaller agents, keep those that lie in a knot."""
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
    """A waiting request: its edges, and how many there are of those of which it takes so many to let it wait."""

    __slots__ = ("edges", "left")

    def __init__(self) -> None:
        self.edges: list[Edge] = []
        self.left: dict[int, int] = {}

    @property
    def is_stuck(self) -> bool:
        return any(count >= enough for enough, count in self.left.items())


def stuck_edges(edges: Iterable[Edge]) -> list[Edge]:
    """Of these edges those by which an agent is stuck that waits, for one that is stuck itself."""
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
