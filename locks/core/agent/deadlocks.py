"""An agent's part in finding and resolving deadlocks.

While the agent waits it keeps what it is told in a `WaitGraph`, and after taking in all that is
there (`settle`) it looks at its surroundings (`WaitGraph.explore`):

* If it is the largest in a cycle, it *yields*: it surrenders the lock id on which its neighbour in
  the cycle waits, or aborts, and waits for the lock server's answer before it looks again. The
  server carries it out only if that edge of the graph still stands, so outdated knowledge rarely
  does harm, and each refusal removes some of it. If its neighbour waits for no lock but is held up by it
  (`locks.core.agent.hold_ups`), there is nothing to surrender: it aborts.
* Otherwise it *passes on* what it found to the agents that `explore` names, which are all larger;
  nothing twice. If what it found has changed since, that is newer, and is passed on as well.

What it passed on and is not true any more is not taken back. Nobody who needs a record has an old
one for good: the lock servers tell each change to those whose own requests it concerns, and these
pass it on while it is part of what they find. An edge that is gone can make a circle out of what is
none. Then a surrender is superfluous, but the edge for which it is made is a real one, or the lock
server refuses it: so it hands a lock to an older agent that waits for it. (Decision 0004 has figures.)

An agent that ceases to wait, or whose deadlock is resolved, forgets all: so what is known stays as
small as the deadlocks that are going on. If it waits (again), it lets those know who told it
something, and they tell it anew (`Knowledge.forgot`); and after a deadlock it asks the lock servers
what still matters (`Inquire`), so that the next one is found. The one that has resolved it tells by
itself. When a node is lost, all begins anew in the same way.
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
from locks.ranges import MOST_IN_KNOT

__all__ = ["Resolver"]

YIELDS = "the youngest transaction of the cycle gives way"
ABORTS = YIELDS + "; it was aborted because its program had already been given the lock"
HELD_UP = (
    YIELDS
    + "; it was aborted because its program waits with it and cannot continue with its other transaction"
)


class Resolver:
    """What one agent knows about deadlocks, and does about them.

    Args:
        me: The agent.
        out: Where effects are put.

    Attributes:
        graph: What it knows, while the agent waits and has been told something that may concern it; else nothing.
        giving_up: What is given up by surrenders that are not answered, by node: an id, or everything.
        unsettled: Whether something was learned since it last settled.
        silent: The nodes that are up and say nothing; whoever makes it says so.
    """

    __slots__ = (
        *("_me", "_out", "_passed_on", "_sources"),
        *("giving_up", "graph", "silent", "unsettled"),
    )

    def __init__(self, me: AgentId, out: list[AgentEffect]) -> None:
        self._me = me
        self._out = out
        self.unsettled = False
        # Most agents never need it: they hold what they asked for, or nobody waits for them.
        self.graph: WaitGraph | None = None
        self.giving_up: dict[str, list[LockId | None]] = {}
        self._passed_on: dict[AgentId, dict[RequestKey, int]] = {}  # the versions, by receiver
        self._sources: dict[AgentId, None] = {}  # who has told the agent something since it forgot
        self.silent: frozenset[str] = frozenset()

    def given_up(self, lock_id: LockId) -> list[str]:
        """The nodes where this id is given up by a surrender that is not answered yet."""
        return [
            node
            for node, ids in self.giving_up.items()
            if any(each is None or related(each, lock_id) for each in ids)
        ]

    @property
    def is_in_doubt(self) -> bool:
        """Whether there are surrenders that a lock server is about to answer: until then, nothing else is done.

        One that is silent is not waited for, unless it may abort the transaction: what is given up there counts as gone.
        """
        giving_up = self.giving_up
        if not giving_up or not self.silent:
            return bool(giving_up)
        return any(node not in self.silent or None in ids for node, ids in giving_up.items())

    @property
    def in_touch(self) -> bool:
        """Whether it has told others something, or was told."""
        return bool(self._passed_on or self._sources)

    @property
    def partners(self) -> set[str]:
        """The nodes of the agents that it has told something that may still matter."""
        return {agent.node for agent in self._passed_on}

    def begin(self) -> None:
        """The agent waits, perhaps for some time already."""
        if self.graph is not None:
            return
        self.graph = WaitGraph()
        for source in sorted(self._sources):
            self._out.append(ToAgent(source, Knowledge(self._me, (), forgot=True)))
        self._sources.clear()

    def cease(self) -> None:
        """The agent waits for nothing (any more)."""
        if self.graph is not None:
            self._passed_on.clear()
            self.graph = None
            self.unsettled = False

    def forget(self, nodes: Iterable[str]) -> None:
        """A deadlock is resolved: what was known served it; be told again what still matters."""
        if self.graph is not None:
            self.cease()
            self.begin()
            self._out += [ToServer(node, Inquire(self._me)) for node in nodes]

    def learn(self, record: RequestRecord) -> None:
        """Take in what a lock server or another agent knows of a request."""
        if self.graph is not None and self.graph.learn(record):
            self.unsettled = True

    def spare(self, record: RequestRecord) -> None:
        """The agent waits with an own request no more, but leaves it where it is."""
        if self.graph is not None:
            self.graph.put(record)

    def gone(self, keys: Iterable[RequestKey]) -> None:
        """Own requests were taken out: the agent is in no circle over them any more."""
        if self.graph is not None:
            for key in keys:
                known = self.graph.get(key)
                if known is not None:
                    self.graph.learn(known._replace(state="gone"))

    def learn_from(self, message: Knowledge) -> None:
        """Take in what another agent passes on; without waiting, nothing is of interest."""
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

    def look(self) -> Exploration | None:
        """What is found in what is known; nothing if the agent does not wait."""
        return None if self.graph is None else self.graph.explore(self._me)

    def settle(self, acknowledged: Callable[[Edge], bool], abort_on_deadlock: bool) -> None:
        """Look for deadlocks; yield, or pass on what was found.

        Args:
            acknowledged: Whether yielding for an edge takes a lock that the client was told it has.
            abort_on_deadlock: Abort rather than surrender such a lock.
        """
        graph = self.graph
        if graph is None or not self.unsettled or self.is_in_doubt:
            return
        self.unsettled = False
        found = graph.explore(self._me)
        closing = found.closing
        if self.silent:  # nothing comes of a surrender there: either it speaks again, or it is lost
            closing = [e for e in closing if e.waiter.node not in self.silent]
        if closing:
            by_locks = [e for e in closing if not e.is_hold_up] or closing
            edge = next((e for e in by_locks if not acknowledged(e)), by_locks[0])
            abort = edge.is_hold_up or (abort_on_deadlock and acknowledged(edge))
            self._yield(edge, found.cycle(edge), abort, found.knot)
            return
        records = {record.key: record for edge in found.edges for record in edge}
        for target in sorted(found.targets):  # the same order in each process
            self._pass_on(target, records.values())

    def surrender(self, node: str, message: Surrender) -> None:
        """Send a surrender; until it is answered, nothing else is done about deadlocks."""
        given_up = None if message.aborts else message.lock_id
        self.giving_up.setdefault(node, []).append(given_up)
        self._out.append(ToServer(node, message))

    def expects(self, answer: Surrendered) -> bool:
        """Whether a lock server's answer is to a surrender that was not answered yet."""
        message = answer.message
        given_up = None if message.aborts else message.lock_id
        return given_up in self.giving_up.get(answer.node, ())

    def surrendered(self, answer: Surrendered) -> None:
        """Take in a lock server's answer to a surrender."""
        message = answer.message
        self.giving_up[answer.node].remove(None if message.aborts else message.lock_id)
        if not self.giving_up[answer.node]:
            del self.giving_up[answer.node]
        if self.graph is None:
            return
        present = {record.key: record for record in answer.records}
        for end in (message.waiter, message.holder):
            if end is not None:
                key = (answer.node, end[0])
                record = present.get(key)
                known = self.graph.get(key)
                if record is None and known is not None:
                    record = known._replace(state="gone", version=answer.version)
                if record is not None and known is not None:
                    self.learn(record)
        self.gone((answer.node, number) for number in answer.gone)
        self.unsettled = True

    def node_down(self, node: str, others: Iterable[str]) -> None:
        """A node is lost: begin anew with what the others know.

        What its lock server has is not known any more (it may go on, and come back with the same
        requests), and what was sent to agents there may not have arrived.
        """
        self.giving_up.pop(node, None)
        self.silent -= {node}
        self._forget_sources(node)
        self.forget(others)
        self.unsettled = self.graph is not None

    def node_up(self, node: str) -> None:
        """A node is connected (again): its agents know nothing of what they were told meanwhile."""
        self._tell_anew(node)

    def peer_down(self, node: str) -> None:
        """A node without a lock server is gone, and what was sent there may not have arrived."""
        self._forget_sources(node)
        self._tell_anew(node)

    def _forget_sources(self, node: str) -> None:
        """The agents of a node that is lost notice it, too: they need not be told that this one has forgotten."""
        for source in [source for source in self._sources if source.node == node]:
            del self._sources[source]

    def _tell_anew(self, node: str) -> None:
        """Of what was passed on to agents of a node, nothing counts."""
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
        # To users a hold-up is no lock: what is given up is the place that the agent waits at.
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
        """Send an agent those of the records that it was not sent yet, if there are any."""
        assert self.graph is not None
        sent = self._passed_on.setdefault(target, {})
        new = tuple(r for r in records if r.agent != target and sent.get(r.key, -1) < r.version)
        if new:
            self._out.append(ToAgent(target, Knowledge(self._me, new)))
            sent.update({record.key: record.version for record in new})
