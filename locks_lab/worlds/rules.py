"""The rules that the machines play by, and others.

`OURS` is what `locks` does. The others are not used by the product. Five of them are right; most need
more messages or surrenders: they show what is saved (`docs/messages.md`). The rest are wrong in one point each:
they show that the simulator finds what is wrong, and what that part of our rules is for.

Each is a small variant of one class, of which subclasses of the machines are made (`OtherAgent`, `OtherServer`; for a graph `OtherResolver`):

    Resolver, WaitGraph   what an agent does about deadlocks, and what it knows   (AgentMachine)
    Ledger, Tokens        what it wants where, how it gets fencing tokens         (AgentMachine)
    LockTable, Notifier   what is granted, and whom a lock server tells what      (ServerMachine)

`tests/model/test_rules.py` has the smallest world that we know in which each wrong one goes wrong.
Some of them do no harm in thousands of random worlds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
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
from locks.core.server.tree import Entry, EntryOwner
from locks.core.server.waits import WaitEdge
from locks.form import require_interpreted
from locks.model import AgentId, Edge, RequestRecord

require_interpreted("the simulator")

__all__ = ["OURS", "RULES", "OtherAgent", "OtherResolver", "OtherServer", "Rule"]


class Rule(NamedTuple):
    """Which machines a world is made of.

    Attributes:
        name: Its name on the command line.
        about: What is different, in one line.
        agent: The agents' machine.
        server: The lock servers' machine.
        right: Whether all deadlocks are resolved, by the agents that should do so.
    """

    name: str
    about: str
    agent: type[AgentMachine] = AgentMachine
    server: type[ServerMachine] = ServerMachine
    right: bool = False


# --- Machines that are made of other parts --------------------------------------------------------


class OtherAgent(AgentMachine):
    """An agent's machine that is made of other parts.

    Attributes:
        ledger_class: What keeps its lock requests.
        resolver_class: What it does about deadlocks.
        tokens_class: How it gets fencing tokens.
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
    """What an agent does about deadlocks, with another graph.

    Attributes:
        graph_class: What keeps its knowledge.
    """

    graph_class: ClassVar[type[WaitGraph]] = WaitGraph

    def begin(self) -> None:
        """The agent waits, perhaps for some time already."""
        begins = self.graph is None
        super().begin()
        if begins:
            self.graph = self.graph_class()


class OtherServer(ServerMachine):
    """A lock server's machine that is made of other parts.

    Attributes:
        table_class: The lock table.
        notifier_class: What decides which agents are notified of what.
    """

    table_class: ClassVar[type[LockTable]] = LockTable
    notifier_class: ClassVar[type[Notifier]] = Notifier

    def _begin(self, version: int) -> None:
        super()._begin(version)
        self.table = self.table_class(version)
        self._notifier = self.notifier_class(self.table, self.node)


# --- Right, with more messages ------------------------------------------------------------------


class _LargerGraph(WaitGraph):
    """All that is known is for every larger agent that occurs in it: our own first design."""

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
    """All that is known is for every agent that occurs in it."""

    def _partners(self, me: AgentId) -> set[AgentId]:
        return set(self._by_agent) - {me}


class _EveryoneResolver(OtherResolver):
    """What it was told by somebody it need not pass on to that one."""

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
    """Every agent is told each change of each request that is related to one of its own.

    When it asks for something, begins to wait, or has forgotten, it is told all that is related.
    """

    def after(
        self, changed: list[Entry], new: Sequence[Entry] = (), owner: EntryOwner | None = None
    ) -> News:
        news: News = {}
        moved = dict.fromkeys(changed)
        owners = dict.fromkeys(entry.owner for entry in changed)
        for each in owners if owner is None else owners | {owner: None}:
            if each.waits != each.waited:
                self._turn(each, news)
                moved |= dict.fromkeys(each.all())
                self.closers[each] = None
        for entry in new:
            self.closers[entry.owner] = None
        for entry in moved:
            for other in self._table.related(entry.slot.lock_id):
                self._notify(other.owner, entry, news)
        self._look_for_cycles(news)
        if self._table.spares:
            self._notify_of_spares(changed, news)
        return news

    def _look_for_cycles(self, news: News) -> None:
        for owner in self.closers:
            for entry in owner.all():
                for other in self._table.related(entry.slot.lock_id):
                    self._notify(owner, other, news)
        self.closers.clear()


class _TellAllServer(OtherServer):
    notifier_class = _TellAllInformer


class _PiecewiseInformer(Notifier):
    """Of a long circle, too, each agent is told its own part."""

    long = few = sys.maxsize


class _PiecewiseServer(OtherServer):
    notifier_class = _PiecewiseInformer


class _WholeInformer(Notifier):
    """Of a short circle, too, only the largest agent is told: all of it."""

    long = 0


class _WholeServer(OtherServer):
    notifier_class = _WholeInformer


# --- Wrong in one point: agents -----------------------------------------------------------------


class _OutdatedGraph(WaitGraph):
    """What is heard last counts, whatever its version.

    When a message takes long, and a newer one comes another way, the older one overwrites what is
    known. So an agent does not see a wait that is real, and does not pass it on.
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
    """Each agent that sees a cycle through itself yields, not only the largest one.

    Two that give way to each other at the same time are in the same deadlock again, the other way
    round, and this can go on for ever.
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
    """An agent that begins to wait does not let those know who told it something before.

    They think that it knows, and do not tell it again.
    """

    def begin(self) -> None:
        if self.graph is None:
            self._sources.clear()
        super().begin()


class _SilentAgent(OtherAgent):
    resolver_class = _SilentResolver


class _DeafResolver(Resolver):
    """What was lost with the connection between two agents is not said again."""

    def _tell_anew(self, node: str) -> None:
        pass


class _DeafAgent(OtherAgent):
    resolver_class = _DeafResolver


class _ContentClaims(Ledger):
    """What is held is not requested at other nodes: what waits there is withdrawn for good.

    So a contended lock may stand on two of three servers for as long as it is held, and is lost with one of them.
    """

    def _take_turns(self, request: LockRequest) -> None:
        if not request.held:
            super()._take_turns(request)
            return
        for each in request.node_requests.values():
            if not each.withdrawn and each.waits(request.mode):
                self._withdraw(request, each)


class _ContentAgent(OtherAgent):
    ledger_class = _ContentClaims


class _StubbornAgent(AgentMachine):
    """An agent that queues does not give way to one that holds the lock by the other servers.

    A server that was restarted may grant its lock to who queued. Then who holds it stands on the others alone.
    """

    def _give_way(self, spare: RequestRecord) -> None:
        pass


class _HastyTokens(Tokens):
    """The fencing token of a lock on several nodes is the largest version of its grants.

    Nobody confirms it. The next holder's grants may be on other nodes, with smaller versions: the one
    that both have in common need not be the one with the largest version.
    """

    def known(self, request: LockRequest) -> int | None:
        super().known(request)
        return max(request.grants().values())


class _HastyAgent(OtherAgent):
    tokens_class = _HastyTokens


# --- Wrong in one point: lock servers -----------------------------------------------------------


class _FewInformer(Notifier):
    """Only the agent that waits is told of an edge, and not the one that it waits for.

    So nobody knows both who reaches it and whom it reaches.
    """

    def _notify_edge(self, edge: WaitEdge, news: News) -> None:
        super()._notify_edge(edge._replace(to=edge.by), news)


class _FewServer(OtherServer):
    notifier_class = _FewInformer


class _ConstantInformer(Notifier):
    """Who was told of a request is not told what becomes of it.

    When one who holds a lock gives it up, and stands behind an agent that was told of it, the latter
    does not see that it is waited for.
    """

    def _notify_change(self, entry: Entry, news: News) -> None:
        pass


class _ConstantServer(OtherServer):
    notifier_class = _ConstantInformer


class _OnceInformer(Notifier):
    """Those who forget what they know, because a deadlock was resolved, are not told again.

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
