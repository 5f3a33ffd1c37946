"""What a node counts. A new counter is a field of both classes; who counts it adds to `Counters`."""

from __future__ import annotations

from typing import NamedTuple

from locks.core.server.table import TableStatistics

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
        for name in self.__slots__:
            setattr(self, name, 0)

    aborted: int
    deadlocks: int
    knowledge: int
    transactions: int

    def statistics(self, name: str, agents: int, table: TableStatistics) -> NodeStatistics:
        """All counters, with what is not counted but looked up."""
        counted = {each: getattr(self, each) for each in self.__slots__}
        return NodeStatistics(name=name, agents=agents, table=table, **counted)
