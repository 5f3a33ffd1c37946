"""The rules of the machines: ours, and others.

`OURS` is the behaviour of `locks`. The product does not use the others. Five of them are right.
Most of these need more messages or surrenders, and show what our rules save (`docs/algorithm.md`).
The rest are wrong in one point each. They show that the simulator finds faults, and why we need
that part of our rules.

Each rule is a small variant of one class. Subclasses of the machines use it: `OtherAgent`,
`OtherServer`, and for a graph `OtherResolver`.

    Resolver, WaitGraph   what an agent does about deadlocks, and what it knows   (AgentMachine)
    Ledger, Tokens        its requests on each node, and its fencing tokens       (AgentMachine)
    LockTable, Notifier   the grants and the notifications of a lock server       (ServerMachine)

`tests/model/test_rules.py` has, for each wrong rule, the smallest world that we know in which it
fails. Some of them do no harm in thousands of random worlds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.fencing import Tokens
from locks.core.agent.ledger import Ledger
from locks.core.agent.machine import AgentMachine
from locks.core.agent.requests import LockRequest
from locks.core.agent.wait_graph import Exploration, WaitGraph
from locks.core.messages import Knowledge
from locks.core.server.machine import ServerMachine
from locks.core.server.notifier import News, Notifier
from locks.core.server.table import LockTable
from locks.core.server.tree import Entry, Requester
from locks.core.server.waits import WaitEdge
from locks.core.thin import Remote, Thin
from locks.model import AgentId, Edge, RequestRecord

__all__ = ["OURS", "RULES", "OtherAgent", "OtherResolver", "OtherServer", "Rule"]


class Rule(NamedTuple):
    """The machines of a world.

    Attributes:
        name: Its name on the command line.
        about: The difference, in one line.
        agent: The agents' machine.
        server: The lock servers' machine.
        right: Whether all deadlocks are resolved, by the agents that should do so.
        thin: The rule of thin locks, in a world with one node; `None` if there are none.
        remote: The rule of thin transactions at one other node, in a world with several; likewise.
    """

    name: str
    about: str
    agent: type[AgentMachine] = AgentMachine
    server: type[ServerMachine] = ServerMachine
    right: bool = False
    thin: type[Thin] | None = None
    remote: type[Remote] | None = None


# --- Machines with other parts --------------------------------------------------------------------


class OtherAgent(AgentMachine):
    """An agent's machine with other parts.

    Attributes:
        ledger_class: The class of its ledger.
        resolver_class: The class that resolves deadlocks.
        tokens_class: The class that establishes fencing tokens.
    """

    ledger_class: ClassVar[type[Ledger]] = Ledger
    resolver_class: ClassVar[type[Resolver]] = Resolver
    tokens_class: ClassVar[type[Tokens]] = Tokens

    def __init__(
        self, agent: AgentId, client: str, alive: Iterable[str], *args: Any, **options: Any
    ) -> None:
        super().__init__(agent, client, (), *args, **options)
        silent = self._ledger.silent
        self._resolver = self.resolver_class(agent, self._out)
        self._ledger = self.ledger_class(agent, client, alive, self._out, self._resolver)
        self._ledger.silent = self._resolver.silent = silent

    def _my_tokens(self) -> Tokens:
        if self._tokens is not None:
            return self._tokens
        return self.tokens_class(self.id, self._ledger.requests, self._out)


class OtherResolver(Resolver):
    """A resolver with another graph.

    Attributes:
        graph_class: The class of the graph.
    """

    graph_class: ClassVar[type[WaitGraph]] = WaitGraph

    def begin_search(self) -> None:
        """The agent waits; it may have been waiting for some time."""
        begins = self.graph is None
        super().begin_search()
        if begins:
            self.graph = self.graph_class()


class OtherServer(ServerMachine):
    """A lock server's machine with other parts.

    Attributes:
        table_class: The class of the lock table.
        notifier_class: The class that decides which agents are notified of what.
    """

    table_class: ClassVar[type[LockTable]] = LockTable
    notifier_class: ClassVar[type[Notifier]] = Notifier

    def _begin(self, version: int) -> None:
        super()._begin(version)
        self.table = self.table_class(version)
        self._notifier = self.notifier_class(self.table, self.node)


# --- Right, with more messages ------------------------------------------------------------------


class _LargerGraph(WaitGraph):
    """All knowledge is sent to every larger agent that occurs in it: our own first design."""

    def explore(self, me: AgentId) -> Exploration:
        edges = [edge for agent in self._by_agent for edge in self.waiters(agent)]
        return super().explore(me)._replace(targets=self._partners(me), edges=edges)

    def _partners(self, me: AgentId) -> set[AgentId]:
        return {agent for agent in self._by_agent if agent > me}


class _LargerResolver(OtherResolver):
    graph_class = _LargerGraph


class _LargerAgent(OtherAgent):
    resolver_class = _LargerResolver


class _EveryoneGraph(_LargerGraph):
    """All knowledge is sent to every agent that occurs in it."""

    def _partners(self, me: AgentId) -> set[AgentId]:
        return set(self._by_agent) - {me}


class _EveryoneResolver(OtherResolver):
    """An agent does not send knowledge back to the agent that it came from."""

    graph_class = _EveryoneGraph

    def learn_from(self, message: Knowledge) -> None:
        super().learn_from(message)
        if self.graph is not None:
            known = self._passed_on.setdefault(message.sender, {})
            for record in message.records:
                known[record.key] = max(record.version, known.get(record.key, -1))


class _EveryoneAgent(OtherAgent):
    resolver_class = _EveryoneResolver


class _TellAllInformer(Notifier):
    """Every agent is notified of each change of each request that is related to one of its own.

    When it requests a lock, begins to wait, or has dropped its knowledge, it is notified of all
    related requests.
    """

    def after(self, changed: list[Entry], requester: Requester | None = None) -> News:
        news: News = {}
        moved = dict.fromkeys(changed)
        owners = dict.fromkeys(entry.requester for entry in changed)
        for each in owners if requester is None else owners | {requester: None}:
            if each.waits != each.waited:
                self._waiting_changed(each, news)
                moved |= dict.fromkeys(each.all())
                self.closers[each] = None
        for entry in changed:
            self.closers[entry.requester] = None
        for entry in moved:
            for other in self._table.related(entry.slot.lock_id):
                self._notify(other.requester, entry, news)
        self._table.looked = []
        self._look_for_cycles(news)
        if self._table.spares:
            self._notify_of_spares(changed, news)
        return news

    def _look_for_cycles(self, news: News) -> None:
        for requester in self.closers:
            for entry in requester.all():
                for other in self._table.related(entry.slot.lock_id):
                    self._notify(requester, other, news)
        self.closers.clear()


class _TellAllServer(OtherServer):
    notifier_class = _TellAllInformer


class _PiecewiseInformer(Notifier):
    """Even for a long cycle, each agent is notified of its own part."""

    long = few = sys.maxsize


class _PiecewiseServer(OtherServer):
    notifier_class = _PiecewiseInformer


class _WholeInformer(Notifier):
    """Even for a short cycle, only the largest agent is notified, of the whole cycle."""

    long = 0


class _WholeServer(OtherServer):
    notifier_class = _WholeInformer


# --- Wrong in one point: agents -----------------------------------------------------------------


class _OutdatedGraph(WaitGraph):
    """The last message counts, whatever its version.

    If a message takes long, and a newer one comes another way, the older one overwrites the newer
    knowledge. So an agent does not see a real wait, and does not send it on.
    """

    def learn(self, record: RequestRecord) -> bool:
        known = self._records.get(record.key)
        if known == record:
            return False
        if known is not None:
            if known.state != "gone":
                self._take_out(known)
            del self._records[record.key]
        return super().learn(record)


class _OutdatedResolver(OtherResolver):
    graph_class = _OutdatedGraph


class _OutdatedAgent(OtherAgent):
    resolver_class = _OutdatedResolver


class _AllYieldGraph(WaitGraph):
    """Each agent that sees a cycle through itself gives way, not only the largest one.

    Two agents that give way to each other at the same time are again in the same deadlock, in the
    opposite direction, and this can continue for ever.
    """

    def explore(self, me: AgentId) -> Exploration:
        closing = []
        path: dict[AgentId, Edge] = {}
        agents = [me]
        for agent in agents:
            for edge in self.blockers(agent, me):
                other = edge.holder.agent
                if other == me:
                    closing.append(edge)
                elif other not in path:
                    path[other] = edge
                    agents.append(other)
        return super().explore(me)._replace(closing=closing, path=path)


class _AllYieldResolver(OtherResolver):
    graph_class = _AllYieldGraph


class _AllYieldAgent(OtherAgent):
    resolver_class = _AllYieldResolver


class _SilentResolver(Resolver):
    """An agent that begins to wait does not inform the agents that sent it knowledge before.

    They assume that it still has this knowledge, and do not send it again.
    """

    def begin_search(self) -> None:
        if self.graph is None:
            self._sources.clear()
        super().begin_search()


class _SilentAgent(OtherAgent):
    resolver_class = _SilentResolver


class _DeafResolver(Resolver):
    """Messages that were lost with the connection between two agents are not repeated."""

    def _tell_anew(self, node: str) -> None:
        pass


class _DeafAgent(OtherAgent):
    resolver_class = _DeafResolver


class _ContentClaims(Ledger):
    """A held lock is not requested on other nodes: requests that wait there are withdrawn for good.

    So a contended lock may be granted on only two of three servers for as long as it is held, and
    is lost with one of them.
    """

    def _adjust_node_requests(self, request: LockRequest) -> None:
        if not request.held:
            super()._adjust_node_requests(request)
            return
        for each in request.node_requests.values():
            if each.grant(request.mode) is None:
                self._withdraw(request, each)


class _ContentAgent(OtherAgent):
    ledger_class = _ContentClaims


class _StubbornAgent(AgentMachine):
    """A queued agent does not give way to an agent that holds the lock by the other servers.

    A restarted server may grant its lock to the queued agent. Then the holder has only the grants
    of the other servers.
    """

    def _give_way(self, spare: RequestRecord) -> None:
        pass


class _HastyTokens(Tokens):
    """The fencing token of a lock on several nodes is the largest version of its grants.

    No node confirms it. The next holder's grants may be on other nodes, with smaller versions: the
    node that both holders share need not be the one with the largest version.
    """

    def known(self, request: LockRequest) -> int | None:
        super().known(request)
        return max(request.grants().values())


class _HastyAgent(OtherAgent):
    tokens_class = _HastyTokens


# --- Wrong in one point: lock servers -----------------------------------------------------------


class _FewInformer(Notifier):
    """Only the waiting agent is notified of an edge, and not the agent that it waits for.

    So no agent knows both the agents that wait for it and those that it waits for.
    """

    def _notify_edge(self, edge: WaitEdge, news: News) -> None:
        super()._notify_edge(edge._replace(to=edge.by), news)


class _FewServer(OtherServer):
    notifier_class = _FewInformer


class _ConstantInformer(Notifier):
    """An agent that was notified of a request is not notified of its later changes.

    If a holder gives up its lock, and then stands behind an agent that was notified of it, this
    agent does not see that the former holder waits for it.
    """

    def _notify_change(self, entry: Entry, news: News) -> None:
        pass


class _ConstantServer(OtherServer):
    notifier_class = _ConstantInformer


class _OnceInformer(Notifier):
    """Agents that drop their knowledge, because a deadlock was resolved, are not notified again.

    If they are in another deadlock, too, nobody finds it.
    """

    def forgotten(self, agents: Iterable[AgentId]) -> None:
        pass


class _OnceServer(OtherServer):
    notifier_class = _OnceInformer


# --- All of them --------------------------------------------------------------------------------

OURS = Rule("ours", "the rules of locks", right=True)

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        OURS,
        Rule(
            "larger",
            "an agent passes on all that it knows to every larger agent in it",
            _LargerAgent,
            right=True,
        ),
        Rule(
            "everyone",
            "an agent passes on all that it knows to every agent in it",
            _EveryoneAgent,
            right=True,
        ),
        Rule(
            "tell-all",
            "lock servers tell each change to all who have a related request",
            server=_TellAllServer,
            right=True,
        ),
        Rule(
            "piecewise",
            "lock servers tell each agent of a long circle its own part of it",
            server=_PiecewiseServer,
            right=True,
        ),
        Rule(
            "whole",
            "lock servers tell a short circle to its largest agent only, as they do with a long one",
            server=_WholeServer,
            right=True,
        ),
        Rule(
            "thin",
            "on a single node, or on one other node, clients hold free locks without an agent until something else happens",
            right=True,
            thin=Thin,
            remote=Remote,
        ),
        Rule("outdated", "an agent takes in outdated versions, too", _OutdatedAgent),
        Rule("all-yield", "smaller agents of a cycle yield, too", _AllYieldAgent),
        Rule("content", "what is held is requested nowhere else", _ContentAgent),
        Rule("stubborn", "who queues does not give way to who holds", _StubbornAgent),
        Rule("hasty", "fencing tokens are not confirmed by lock servers", _HastyAgent),
        Rule("silent", "an agent does not say that it has forgotten", _SilentAgent),
        Rule("deaf", "what was lost with a connection of agents is not said again", _DeafAgent),
        Rule("few", "lock servers tell edges only to the agent that waits", server=_FewServer),
        Rule("constant", "lock servers do not tell changes", server=_ConstantServer),
        Rule("once", "lock servers do not tell again after a deadlock", server=_OnceServer),
    )
}
