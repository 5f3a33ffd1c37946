"""The rules that the machines play by, and others.

`OURS` is what `locks` does. The others are not used by the product. Most are wrong in one point: they
show that the simulator finds what is wrong, and what each part of our rules is for. Two are right,
and need more messages: they show what is saved.

Each is a small variant of one class, and takes the place of that class in the machines:

    Resolver, WaitGraph   what an agent does about deadlocks, and what it knows   (AgentMachine)
    Informer              whom a lock server tells what                           (ServerMachine)

Where a docstring says that deadlocks stay for ever, `tests/model/test_rules.py` has the smallest
world that we know in which one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from locks.agent_machine import AgentMachine
from locks.errors import LocksError
from locks.informer import Informer, News, _Edge
from locks.lock_tree import Asker, Entry
from locks.messages import AgentEffect
from locks.model import AgentId, Edge, RequestRecord
from locks.resolver import Resolver
from locks.server_machine import ServerMachine
from locks.wait_graph import Exploration, WaitGraph

__all__ = ["OURS", "RULES", "Rule"]


class Rule(NamedTuple):
    """Which machines a world is made of.

    Attributes:
        name: Its name on the command line.
        about: What is different, in one line.
        agent: The agents' machine.
        server: The lock servers' machine.
    """

    name: str
    about: str
    agent: type[AgentMachine] = AgentMachine
    server: type[ServerMachine] = ServerMachine


# --- Right, with more messages ------------------------------------------------------------------


class _EveryoneGraph(WaitGraph):
    """All that is known is sent to everyone who occurs in it."""

    def explore(self, me: AgentId) -> Exploration:
        edges = [edge for agent in self._by_agent for edge in self.waiters(agent)]
        return super().explore(me)._replace(targets=set(self._by_agent) - {me}, edges=edges)


class _EveryoneResolver(Resolver):
    graph_class = _EveryoneGraph


class _EveryoneAgent(AgentMachine):
    resolver_class = _EveryoneResolver


class _TellAllInformer(Informer):
    """Every agent is told each change of each request that is related to one of its own.

    With a new request, or when it begins to wait, an agent is told all that is related.
    """

    def after(
        self, changed: list[Entry], new: Sequence[Entry] = (), asker: Asker | None = None
    ) -> News:
        news: News = {}
        moved = dict.fromkeys(changed)
        for each in dict.fromkeys([e.asker for e in changed] + [a for a in (asker,) if a]):
            if each.waits != each.waited:
                self._table.version += 1
                each.waited, each.turned = each.waits, self._table.version
                moved |= dict.fromkeys(each.all())
                if each.waits:
                    self._tell_around(each, each.all(), news)
        for entry in moved:
            if not entry.gone:
                self._tell(entry.asker, entry, news)
            for other in self._table.related(entry.slot.lock_id):
                for told in self._told_of(entry):
                    self._tell(other.asker, told, news)
        for entry in new:
            self._tell_around(entry.asker, [entry], news)
        return news

    def again(self, asker: Asker) -> News:
        news: News = {}
        if asker.waits:
            self._tell_around(asker, asker.all(), news)
        return news

    def _told_of(self, entry: Entry) -> Iterable[Entry]:
        """What is told when a request changes."""
        return (entry,)

    def _tell_around(self, asker: Asker, entries: Iterable[Entry], news: News) -> None:
        for entry in entries:
            for other in self._table.related(entry.slot.lock_id):
                self._tell(asker, other, news)


class _TellAllServer(ServerMachine):
    informer_class = _TellAllInformer


# --- The original's way -------------------------------------------------------------------------


class _OriginalGraph(WaitGraph):
    """What is known, by lock id, as the original keeps it."""

    def holders(self) -> set[AgentId]:
        """The agents that hold something."""
        return {r.agent for r in self._records.values() if r.state == "granted"}

    def queues(self) -> list[list[RequestRecord]]:
        """The requests on each lock id that more than one agent wants."""
        queues = [list(there.values()) for there in self._by_id.values()]
        return [queue for queue in queues if len({record.agent for record in queue}) > 1]

    def cycle(self) -> tuple[AgentId, Exploration] | None:
        """A cycle in all that is known, with the agent that must yield."""
        for agent in sorted(self._by_agent):
            found = self.explore(agent)
            if found.closing:
                return agent, found
        return None

    def drop(self, edge: Edge) -> None:
        """Forget all requests on the lock id that is waited for."""
        holder = edge.holder
        for record in list(self._by_id[holder.node, holder.lock_id].values()):
            self._take_out(record)
            del self._records[record.key]


class _OriginalResolver(Resolver):
    """Keeps all that it is told, as long as the agent lives."""

    graph_class = _OriginalGraph
    _graph: _OriginalGraph

    def __init__(self, me: AgentId, out: list[AgentEffect]) -> None:
        super().__init__(me, out)
        self._graph = _OriginalGraph()

    def begin(self) -> None:
        pass

    def cease(self) -> None:
        pass

    def forget(self, nodes: Iterable[str]) -> None:
        pass

    def settle(self, claimed: Callable[[Edge], bool], abort_on_deadlock: bool) -> None:
        if not self.unsettled or self.surrendering:
            return
        self.unsettled = False
        self._graph.news.clear()
        found = self._graph.cycle()
        if found is None:
            for holder in self._graph.holders():
                if holder > self._me:
                    for queue in self._graph.queues():
                        if all(record.agent != holder for record in queue):
                            self._tell(holder, queue)
            return
        agent, cycle = found
        edge = cycle.closing[0]
        if agent == self._me:
            self._yield(edge, cycle.cycle(edge), abort_on_deadlock and claimed(edge))
        else:
            self._graph.drop(edge)


class _OriginalAgent(AgentMachine):
    """Passes on what it knows only to holders with a larger reference.

    That is to those agents of which it knows that they hold something; they are told of the lock
    ids that they have no request on. An agent that finds a cycle in which another one must yield
    drops what it knows of the lock id to be given up, and tells nobody. So the largest agent of a
    ring of four never gets to know the whole ring, in two of the six orders however messages travel,
    and in two more when some of them are fast.
    """

    resolver_class = _OriginalResolver

    def settle(self) -> list[AgentEffect]:
        return [] if self._idle() else super().settle()

    def end(self, reason: LocksError | None = None) -> list[AgentEffect]:
        effects = super().end(reason)
        self._resolver = Resolver(self.id, self._out)  # keeps nothing
        return effects


class _QueueInformer(_TellAllInformer):
    """With each change, all requests that are related to the one that changed are told."""

    def _told_of(self, entry: Entry) -> Iterable[Entry]:
        return (entry, *self._table.related(entry.slot.lock_id))


class _QueueServer(ServerMachine):
    informer_class = _QueueInformer


# --- Wrong in one point -------------------------------------------------------------------------


class _OutdatedGraph(WaitGraph):
    """What is heard last counts, whatever its version.

    Something known is overwritten when an older message takes longer than a newer one, on another
    way. So an agent may not see a wait that is real, and pass nothing on.
    """

    def learn(self, record: RequestRecord) -> bool:
        known = self._records.get(record.key)
        if known is None or known == record:
            return known is None and super().learn(record)
        if known.state != "gone":
            self._take_out(known)
        del self._records[record.key]
        return super().learn(record)


class _OutdatedResolver(Resolver):
    graph_class = _OutdatedGraph


class _OutdatedAgent(AgentMachine):
    resolver_class = _OutdatedResolver


class _AllYieldGraph(WaitGraph):
    """Each agent that sees a cycle through itself yields, not only the largest one.

    Two of them give way to each other, and are in the same deadlock again, the other way round.
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


class _AllYieldResolver(Resolver):
    graph_class = _AllYieldGraph


class _AllYieldAgent(AgentMachine):
    resolver_class = _AllYieldResolver


class _FewInformer(Informer):
    """Only the agent that waits is told of an edge of the graph, not the one that it waits for.

    So nobody knows both who reaches it and whom it reaches.
    """

    def _tell_edge(self, edge: _Edge, news: News) -> None:
        super()._tell_edge(edge._replace(to=edge.by), news)


class _FewServer(ServerMachine):
    informer_class = _FewInformer


class _UntoldInformer(Informer):
    def _tell_change(self, entry: Entry, news: News) -> None:
        pass


class _UntoldServer(ServerMachine):
    informer_class = _UntoldInformer


class _UncorrectedResolver(Resolver):
    def _correct(self, graph: WaitGraph) -> None:
        graph.news.clear()


class _UncorrectedAgent(AgentMachine):
    resolver_class = _UncorrectedResolver


class _ForgetfulResolver(Resolver):
    def forget(self, nodes: Iterable[str]) -> None:
        super().forget(())


class _ForgetfulAgent(AgentMachine):
    resolver_class = _ForgetfulResolver


class _SilentResolver(Resolver):
    def begin(self) -> None:
        self._tellers.clear()
        super().begin()


class _SilentAgent(AgentMachine):
    resolver_class = _SilentResolver


class _LargerGraph(WaitGraph):
    def explore(self, me: AgentId) -> Exploration:
        edges = [edge for agent in self._by_agent for edge in self.waiters(agent)]
        return (
            super().explore(me)._replace(targets={a for a in self._by_agent if a > me}, edges=edges)
        )


class _LargerResolver(Resolver):
    graph_class = _LargerGraph


class _LargerAgent(AgentMachine):
    resolver_class = _LargerResolver


OURS = Rule("ours", "the rules of locks")

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        OURS,
        Rule("everyone", "", agent=_EveryoneAgent),
        Rule("larger", "", agent=_LargerAgent),
        Rule("tell-all", "", server=_TellAllServer),
        Rule("original", "", _OriginalAgent, _QueueServer),
        Rule("outdated", "", _OutdatedAgent),
        Rule("all-yield", "", _AllYieldAgent),
        Rule("few", "", server=_FewServer),
        Rule("untold", "", server=_UntoldServer),
        Rule("uncorrected", "", _UncorrectedAgent),
        Rule("forgetful", "", _ForgetfulAgent),
        Rule("silent", "", _SilentAgent),
    )
}
