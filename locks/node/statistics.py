"""What a node counts. A new counter is a field of both classes."""

from __future__ import annotations

from typing import NamedTuple

from locks.core.server.counters import TableStatistics

__all__ = ["Counters", "NodeStatistics"]


class NodeStatistics(NamedTuple):
    """Counters of a node since it was started, and its size now.

    Attributes:
        name: The node's name.
        transactions: Transactions begun.
        aborted: Transactions that were aborted to resolve a deadlock.
        deadlocks: Deadlocks resolved on this node, by surrender or abort.
        agents: Agents alive now.
        knowledge: Messages by which agents passed knowledge on.
        table: Counters of the lock table.
    """

    name: str
    transactions: int
    aborted: int
    deadlocks: int
    agents: int
    knowledge: int
    table: TableStatistics


class Counters:
    """What a node counts as it runs: fields of `NodeStatistics`, under the same names."""

    __slots__ = ("aborted", "deadlocks", "knowledge", "transactions")

    def __init__(self) -> None:
        self.transactions = self.aborted = self.deadlocks = self.knowledge = 0

    def statistics(self, name: str, agents: int, table: TableStatistics) -> NodeStatistics:
        """All counters, with what is not counted but looked up."""
        return NodeStatistics(
            name=name,
            transactions=self.transactions,
            aborted=self.aborted,
            deadlocks=self.deadlocks,
            agents=agents,
            knowledge=self.knowledge,
            table=table,
        )
