"""One agent's knowledge of the wait-for graph, and the search for deadlocks in it.

`WaitGraph` keeps the newest record of each request, by agent and by lock id. Edges are not stored.
There is an edge from A to B when a known request of A waits for a known request of B by the rule of
the lock table (`locks.model.blocks`).

`explore(me)` follows edges forwards and backwards from `me`, but only through agents *smaller* than
`me`. It stops at larger agents. Why is this enough? Take the agents of a deadlock in increasing
order. Each in turn informs the smaller of its two neighbours about the other one. From then on
these two are neighbours. Each agent needs only paths through smaller agents for this. The last
agent, the largest, sees the whole cycle. So

* If `me` reaches itself through smaller agents, `me` is the largest agent of a cycle and must
  yield. `closing` are the edges that lead back to `me`.
* Otherwise take each pair of a larger agent `p` that reaches `me` and a larger agent `n` that `me`
  reaches. The smaller of the two (in `targets`) is sent the edges that were found (`edges`).

A ring of K agents takes K - 1 such messages if each agent searches only after all messages to it
have arrived. On one node that is always so. Otherwise it takes a few more.

An agent that waits for a unit of a counted lock needs any one unit. Then a cycle need not be a
deadlock (`locks.core.agent.knots`).

Rejected: sending to all larger agents that occur (the same result with many more messages); sending
whole views of lock ids (outdated views hide newer ones); strongly connected components of all known
edges (the largest agent of a component may know only one of its cycles).
"""

from __future__ import annotations

from collections.abc import Iterator

from locks.core.agent.exploration import Exploration, smaller_of_pairs
from locks.core.agent.knots import only_knots
from locks.model import AgentId, Edge, LockId, RequestKey, RequestRecord, blocks, units_of

__all__ = ["Exploration", "WaitGraph"]

_SlotKey = tuple[str, LockId]


class WaitGraph:
    """The newest known record of each request, and queries on them."""

    def __init__(self) -> None:
        self._records: dict[RequestKey, RequestRecord] = {}
        self._by_agent: dict[AgentId, dict[RequestKey, RequestRecord]] = {}
        self._by_id: dict[_SlotKey, dict[RequestKey, RequestRecord]] = {}
        self._below: dict[_SlotKey, dict[LockId, None]] = {}
        self._counted = 0  # requests that wait for a unit of a counted lock

    def learn(self, record: RequestRecord) -> bool:
        """Take a record in if it is newer than the known one; return whether it was.

        A request that is gone stays gone, because numbers are not used again.
        """
        key = (record.node, record.number)
        latest = self._records.get(key)
        if latest is not None:
            gone = record.state == "gone"
            if latest.state == "gone" or (latest.version >= record.version and not gone):
                return False
            self._take_out(latest)
        self._records[key] = record
        if record.state != "gone":
            self._put_in(record)
        return True

    def put(self, record: RequestRecord) -> None:
        """Replace the record of a known request that is not gone, whatever its version."""
        latest = self._records.get((record.node, record.number))
        if latest is not None and latest.state != "gone":
            self._take_out(latest)
            self._records[record.node, record.number] = record
            self._put_in(record)

    def get(self, key: RequestKey) -> RequestRecord | None:
        """The known record of a request."""
        return self._records.get(key)

    def related(self, node: str, lock_id: LockId) -> Iterator[RequestRecord]:
        """The known requests on ids related to this one on this node."""
        for depth in range(1, len(lock_id) + 1):
            yield from self._by_id.get((node, lock_id[:depth]), _NOTHING).values()
        for below in self._below.get((node, lock_id), ()):
            yield from self._by_id[node, below].values()

    def blockers(self, agent: AgentId, me: AgentId) -> Iterator[Edge]:
        """The edges from an agent to `me`, and to agents that wait themselves."""
        for waiter in self._by_agent.get(agent, _NOTHING).values():
            if waiter.state == "waiting":
                for holder in self.related(waiter.node, waiter.lock_id):
                    alive = holder.blocked or holder.agent == me
                    if alive and blocks(holder, waiter):
                        yield Edge(waiter, holder)

    def waiters(self, agent: AgentId) -> Iterator[Edge]:
        """The edges that lead to an agent."""
        own = self._by_agent.get(agent, _NOTHING)
        if len(own) <= len(self._records) - len(own):
            for holder in own.values():
                for waiter in self.related(holder.node, holder.lock_id):
                    if blocks(holder, waiter):
                        yield Edge(waiter, holder)
        else:  # for an agent with thousands of locks, go through the waiting requests instead
            for waiter in self._records.values():
                if waiter.state == "waiting" and waiter.agent != agent:
                    for holder in self.related(waiter.node, waiter.lock_id):
                        if holder.agent == agent and blocks(holder, waiter):
                            yield Edge(waiter, holder)

    def explore(self, me: AgentId) -> Exploration:
        """Search the graph around `me`, through agents smaller than `me`."""
        edges: list[Edge] = []
        before = self._waiting_for(me, edges)
        if not edges:  # no agent waits for it: no cycle goes through it
            return Exploration([], {}, set(), edges)
        closing: list[Edge] = []
        path: dict[AgentId, Edge] = {}
        behind: set[AgentId] = set()
        agents = [me]
        for agent in agents:
            for edge in self.blockers(agent, me):
                other = edge.holder.agent
                edges.append(edge)
                if other == me:
                    closing.append(edge)
                elif other > me:
                    behind.add(other)
                elif other not in path:
                    path[other] = edge
                    agents.append(other)
        found = Exploration(closing, path, smaller_of_pairs(before, behind), edges)
        return only_knots(found, me) if self._counted else found

    def _waiting_for(self, me: AgentId, edges: list[Edge]) -> set[AgentId]:
        """The larger agents that reach `me` through smaller ones; appends their edges to `edges`."""
        larger: set[AgentId] = set()
        seen = {me}
        agents = [me]
        for agent in agents:
            for edge in self.waiters(agent):
                other = edge.waiter.agent
                edges.append(edge)
                if other > me:
                    larger.add(other)
                elif other not in seen:
                    seen.add(other)
                    agents.append(other)
        return larger

    def _put_in(self, record: RequestRecord) -> None:
        self._counted += record.state == "waiting" and units_of(record.lock_id) > 0
        key = (record.node, record.number)
        self._by_agent.setdefault(record.agent, {})[key] = record
        slot = (record.node, record.lock_id)
        records = self._by_id.get(slot)
        if records is None:
            records = self._by_id[slot] = {}
            for depth in range(1, len(record.lock_id)):
                above = (record.node, record.lock_id[:depth])
                self._below.setdefault(above, {})[record.lock_id] = None
        records[key] = record

    def _take_out(self, record: RequestRecord) -> None:
        self._counted -= record.state == "waiting" and units_of(record.lock_id) > 0
        key = (record.node, record.number)
        slot = (record.node, record.lock_id)
        by_agent = self._by_agent[record.agent]
        del by_agent[key]
        if not by_agent:
            del self._by_agent[record.agent]
        by_id = self._by_id[slot]
        del by_id[key]
        if not by_id:
            del self._by_id[slot]
            for depth in range(1, len(record.lock_id)):
                above = (record.node, record.lock_id[:depth])
                below = self._below[above]
                del below[record.lock_id]
                if not below:
                    del self._below[above]


_NOTHING: dict[RequestKey, RequestRecord] = {}
