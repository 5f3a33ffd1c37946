"""An agent's part in finding and resolving deadlocks.

While an agent waits, it keeps the request records that it receives in a `WaitGraph`. When it has
taken in all messages that have arrived (`settle`), it searches the graph around itself
(`WaitGraph.explore`):

* If it is the largest agent of a cycle, it *yields*: it surrenders the lock id on which its
  neighbour in the cycle waits, or it aborts. It searches again only after the lock server has
  answered. The server carries out a surrender only if the edge still exists. So outdated knowledge
  rarely does harm, and each refusal removes some of it. If the neighbour waits for no lock but is
  held up by this agent (`locks.core.agent.hold_ups`), there is nothing to surrender, and this agent
  aborts.
* Otherwise it *passes on* the records that it found to the agents that `explore` names. These are
  all larger than itself. It sends nothing twice: a record is sent again only if it has changed.

An agent does not take back records that it passed on, even when they become outdated. Yet no agent
that needs a record keeps an old one for good. Lock servers report each change to the agents whose
own requests it concerns, and these pass the change on while it is part of what they find. An edge
that no longer exists can make a false cycle. Then a surrender is superfluous, but safe: the lock
server refuses it unless its own edge exists, so it can only hand a lock to an older agent that
waits for that lock. (Decision 0010 has figures.)

An agent that stops waiting, or whose deadlock is resolved, forgets all records. So agents know no
more than the current deadlocks require. If the agent still waits, or waits again, it notifies the
agents that sent it records (`Knowledge.forgot`), and they send them again. After a deadlock it also
queries the lock servers for the records that still matter (`Inquire`), so that the next deadlock is
found. The lock server that resolved the deadlock sends them without a query. After a node is lost,
the agent starts again in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from locks.core.agent.wait_graph import Exploration, WaitGraph
from locks.core.messages import (
    AgentEffect,
    Inquire,
    Knowledge,
    Surrender,
    Surrendered,
    ToAgent,
    ToServer,
)
from locks.core.parts import shown_cycle
from locks.model import (
    AgentId,
    Deadlock,
    Edge,
    LockId,
    RequestKey,
    RequestRecord,
    related,
)
from locks.ranges import MOST_IN_KNOT, replace

__all__ = ["Resolver"]

YIELDS = "the youngest transaction of the cycle gives way"
ABORTS = YIELDS + "; it was aborted because its program had already been given the lock"
HELD_UP = (
    YIELDS
    + "; it was aborted because its program waits with it and cannot continue with its other transaction"
)


class Resolver:
    """One agent's knowledge of deadlocks, and its decisions about them.

    Args:
        me: The agent.
        out: The list to which effects are appended.

    Attributes:
        graph: The records that it knows; `None` unless the agent waits and was notified of other
            agents' requests.
        giving_up: The ids of unanswered surrenders, by node; `None` stands for an abort, which
            gives up everything.
        unsettled: Whether knowledge has changed since the last `settle`.
        silent: The nodes that are connected but do not answer; set by the owner of this object.
    """

    __slots__ = (
        *("_me", "_out", "_passed_on", "_sources"),
        *("giving_up", "graph", "silent", "unsettled"),
    )

    def __init__(self, me: AgentId, out: list[AgentEffect]) -> None:
        self._me = me
        self._out = out
        self.unsettled = False
        # Most agents never need a graph: they do not wait, or no other agent waits for them.
        self.graph: WaitGraph | None = None
        self.giving_up: dict[str, list[LockId | None]] = {}
        self._passed_on: dict[AgentId, dict[RequestKey, int]] = {}  # versions sent, by receiver
        self._sources: dict[AgentId, None] = {}  # senders of records since it last forgot
        self.silent: frozenset[str] = frozenset()

    def given_up(self, lock_id: LockId) -> list[str]:
        """The nodes where an unanswered surrender gives up this id."""
        return [
            node
            for node, ids in self.giving_up.items()
            if any(each is None or related(each, lock_id) for each in ids)
        ]

    @property
    def is_in_doubt(self) -> bool:
        """Whether the agent must wait for the answer to a surrender before it does anything else.

        It does not wait for the answer of a silent lock server: the locks given up there count as
        gone. The exception is a surrender that aborts the transaction.
        """
        giving_up = self.giving_up
        if not giving_up or not self.silent:
            return bool(giving_up)
        return any(node not in self.silent or None in ids for node, ids in giving_up.items())

    @property
    def in_touch(self) -> bool:
        """Whether it has sent records to other agents, or received some."""
        return bool(self._passed_on or self._sources)

    @property
    def partners(self) -> set[str]:
        """The nodes of the agents to which it sent records that may still matter."""
        return {agent.node for agent in self._passed_on}

    def begin_search(self) -> None:
        """Start to keep knowledge, because the agent waits; calling it again has no effect."""
        if self.graph is not None:
            return
        self.graph = WaitGraph()
        for source in sorted(self._sources):
            self._out.append(ToAgent(source, Knowledge(self._me, (), forgot=True)))
        self._sources.clear()

    def end_search(self) -> None:
        """Forget all knowledge, because the agent waits for nothing."""
        if self.graph is not None:
            self._passed_on.clear()
            self.graph = None
            self.unsettled = False

    def forget(self, nodes: Iterable[str]) -> None:
        """Forget the records of a resolved deadlock; query these nodes for those that still matter."""
        if self.graph is not None:
            self.end_search()
            self.begin_search()
            self._out += [ToServer(node, Inquire(self._me)) for node in nodes]

    def learn(self, record: RequestRecord) -> None:
        """Take in a record from a lock server or another agent."""
        if self.graph is not None and self.graph.learn(record):
            self.unsettled = True

    def gone(self, keys: Iterable[RequestKey]) -> None:
        """Note that the agent's own requests were taken out, so that no cycle goes through them."""
        if self.graph is not None:
            for key in keys:
                record = self.graph.get(key)
                if record is not None:
                    self.graph.learn(replace(record, state="gone"))

    def learn_from(self, message: Knowledge) -> None:
        """Take in the records that another agent passes on; ignore them if this one does not wait."""
        sender = message.sender
        if message.records:
            self._sources[sender] = None
        if self.graph is None:
            return
        if message.forgot:
            self._passed_on.pop(sender, None)
            self.unsettled = True
        for record in message.records:
            if record.agent != self._me:
                self.learn(record)

    def explore(self) -> Exploration | None:
        """Search the known graph around the agent; `None` if the agent does not wait."""
        return None if self.graph is None else self.graph.explore(self._me)

    def settle(self, acknowledged: Callable[[Edge], bool], abort_on_deadlock: bool) -> None:
        """Look for deadlocks; yield, or pass on what was found.

        Args:
            acknowledged: Whether yielding for an edge gives up a lock that the client was told it
                holds.
            abort_on_deadlock: Abort instead of surrendering such a lock.
        """
        graph = self.graph
        if graph is None or not self.unsettled or self.is_in_doubt:
            return
        self.unsettled = False
        exploration = graph.explore(self._me)
        closing = exploration.closing
        if self.silent:  # they would not answer a surrender: wait until they do, or are lost
            closing = [e for e in closing if e.waiter.node not in self.silent]
        if closing:
            by_locks = [e for e in closing if not e.is_hold_up] or closing
            edge = next((e for e in by_locks if not acknowledged(e)), by_locks[0])
            abort = edge.is_hold_up or (abort_on_deadlock and acknowledged(edge))
            self._yield(edge, exploration.cycle(edge), abort, exploration.knot)
            return
        records = {record.key: record for edge in exploration.edges for record in edge}
        for target in sorted(exploration.targets):  # the same order in each process
            self._pass_on(target, records.values())

    def surrender(self, node: str, message: Surrender) -> None:
        """Send a surrender; until it is answered, nothing else is done about deadlocks."""
        given_up = None if message.aborts else message.lock_id
        self.giving_up.setdefault(node, []).append(given_up)
        self._out.append(ToServer(node, message))

    def is_answered(self, answer: Surrendered) -> bool:
        """Note that a surrender is answered; return whether it was unanswered."""
        message = answer.message
        given_up = None if message.aborts else message.lock_id
        if given_up not in self.giving_up.get(answer.node, ()):
            return False
        self.giving_up[answer.node].remove(given_up)
        if not self.giving_up[answer.node]:
            del self.giving_up[answer.node]
        return True

    def surrendered(self, answer: Surrendered) -> None:
        """Learn from a lock server's answer to a surrender."""
        if self.graph is None:
            return
        message = answer.message
        present = {record.key: record for record in answer.records}
        for end in (message.waiter, message.holder):
            if end is not None:
                key = (answer.node, end[0])
                record = present.get(key)
                known = self.graph.get(key)
                if record is None and known is not None:
                    record = replace(known, state="gone", version=answer.version)
                if record is not None and known is not None:
                    self.learn(record)
        self.gone((answer.node, number) for number in answer.gone)
        self.unsettled = True

    def node_down(self, node: str, others: Iterable[str]) -> None:
        """Start again with the knowledge of the other nodes, because a node is lost.

        The state of its lock server is unknown: the server may continue and return with the same
        requests. Messages to agents on that node may not have arrived.
        """
        self.giving_up.pop(node, None)
        self.silent -= {node}
        self._forget_sources(node)
        self.forget(others)
        self.unsettled = self.graph is not None

    def node_up(self, node: str) -> None:
        """Send records again to the agents of a node that connects: earlier ones may be lost."""
        self._tell_anew(node)

    def peer_down(self, node: str) -> None:
        """Forget what was exchanged with a node that is gone and had no lock server."""
        self._forget_sources(node)
        self._tell_anew(node)

    def _forget_sources(self, node: str) -> None:
        """Drop a lost node's agents from the sources.

        They notice the loss as well, so they need no message that this agent has forgotten their
        records.
        """
        for source in [source for source in self._sources if source.node == node]:
            del self._sources[source]

    def _tell_anew(self, node: str) -> None:
        """Treat records that were passed on to agents of this node as not sent."""
        for agent in [agent for agent in self._passed_on if agent.node == node]:
            del self._passed_on[agent]
        self.unsettled = self.graph is not None

    def _yield(
        self,
        edge: Edge,
        cycle: tuple[Edge, ...],
        abort: bool,
        knot: Iterable[RequestRecord] = (),
    ) -> None:
        """Give up the id on which the neighbour in the cycle waits."""
        waiter, holder = edge
        # Users do not see hold-ups as locks: the report names the lock that this agent waits for.
        given_up = cycle[1].waiter if edge.is_hold_up else waiter
        rule = (HELD_UP if edge.is_hold_up else ABORTS) if abort else YIELDS
        shown = shown_cycle(cycle)
        if len(shown) < len(cycle):
            rule += f" (the cycle has {len(cycle):,} edges; the first {len(shown)} are shown)"
        report = Deadlock(
            self._me,
            given_up.lock_id,
            given_up.node,
            "aborted" if abort else "surrendered",
            shown,
            rule,
        )
        ends = [(each.number, each.since) for each in knot if each.node == waiter.node]
        message = Surrender(
            self._me,
            waiter.lock_id,
            (waiter.number, waiter.since),
            (holder.number, holder.since),
            report,
            tuple(ends[:MOST_IN_KNOT]),
        )
        self.surrender(waiter.node, message)

    def _pass_on(self, target: AgentId, records: Iterable[RequestRecord]) -> None:
        """Send an agent the records that were not sent to it yet, if there are any."""
        assert self.graph is not None
        sent = self._passed_on.setdefault(target, {})
        new = tuple(r for r in records if r.agent != target and sent.get(r.key, -1) < r.version)
        if new:
            self._out.append(ToAgent(target, Knowledge(self._me, new)))
            sent.update({record.key: record.version for record in new})
