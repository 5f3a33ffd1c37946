"""What a node counts. A new counter is a field of both classes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from locks.core.server.counters import TableStatistics
from locks.node.times import TimesStatistics

__all__ = ["Counters", "Leading", "NodeStatistics"]


class Leading(NamedTuple):
    """Whether an instance of this node leads an election.

    Attributes:
        leads: Whether one does.
        term: Its term, or that of the last leader that is known.
    """

    leads: bool
    term: int


class NodeStatistics(NamedTuple):
    """Counters of a node since it was started, and its size now.

    Attributes:
        name: The node's name.
        transactions: Transactions begun.
        aborted: Transactions that were aborted to resolve a deadlock.
        deadlocks: Deadlocks in which an agent of this node yielded, by surrender or abort.
        agents: Agents alive now.
        knowledge: Messages by which agents passed knowledge on.
        table: Counters of the lock table.
        broken: Deadlocks that this node's lock server has broken, by what was done: `"surrendered"`, `"aborted"`.
        times: How long locks of this node were waited for and held.
        timeouts: Waits of this node's clients that were given up as their time was over.
        lost: Locks that this node's clients were told they have, and that were lost.
        connections_lost: Connections with other nodes that were lost.
        leaders: The elections in which instances of this node take part, by what these are about.
    """

    name: str
    transactions: int
    aborted: int
    deadlocks: int
    agents: int
    knowledge: int
    table: TableStatistics
    broken: Mapping[str, int]
    times: TimesStatistics
    timeouts: int
    lost: int
    connections_lost: int
    leaders: Mapping[str, Leading]


class Counters:
    """What a node counts as it runs: fields of `NodeStatistics`, under the same names."""

    __slots__ = (
        "aborted",
        "broken",
        "connections_lost",
        "deadlocks",
        "knowledge",
        "leaders",
        "lost",
        "timeouts",
        "transactions",
    )

    def __init__(self) -> None:
        self.transactions = self.aborted = self.deadlocks = self.knowledge = 0
        self.timeouts = self.lost = self.connections_lost = 0
        self.broken = {"surrendered": 0, "aborted": 0}
        self.leaders: dict[tuple[str, str], Leading] = {}

    def leading(self, name: str, instance: str, leads: bool, term: int) -> None:
        """An instance of an election leads, or does not, or knows another term."""
        self.leaders[name, instance] = Leading(leads, term)

    def left(self, name: str, instance: str) -> None:
        """An instance has left an election."""
        self.leaders.pop((name, instance), None)

    def _leaders(self) -> dict[str, Leading]:
        """By what elections are about: whether one of this node's instances leads."""
        found: dict[str, Leading] = {}
        for (name, _), each in list(self.leaders.items()):
            other = found.get(name, each)
            found[name] = Leading(each.leads or other.leads, max(each.term, other.term))
        return found

    def statistics(
        self, name: str, agents: int, table: TableStatistics, times: TimesStatistics
    ) -> NodeStatistics:
        """All counters, with what is not counted but looked up."""
        return NodeStatistics(
            name=name,
            transactions=self.transactions,
            aborted=self.aborted,
            deadlocks=self.deadlocks,
            agents=agents,
            knowledge=self.knowledge,
            table=table,
            broken=MappingProxyType(dict(self.broken)),
            times=times,
            timeouts=self.timeouts,
            lost=self.lost,
            connections_lost=self.connections_lost,
            leaders=MappingProxyType(self._leaders()),
        )
