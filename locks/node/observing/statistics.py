"""The counters behind `NodeStatistics`. A new counter is a field of both classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from locks.core.server.table import TableStatistics
from locks.core.statistics import (
    MOST_ELECTIONS,
    MOST_OWNERSHIPS,
    BrokenStatistics,
    Leading,
    NodeStatistics,
    Owning,
    TimesStatistics,
    TrafficStatistics,
)
from locks.ranges import LONGEST_TEXT

__all__ = ["Counters"]


class Counters:
    """The counters of a running node: fields of `NodeStatistics`, under the same names.

    They are raised in turns, because threads would lose counts. So transactions are counted when they end (`ended`).
    """

    __slots__ = (
        *("aborted", "broken", "clients_lost", "connections_lost", "deadlocks", "elected", "ended"),
        *("knowledge", "leaders", "lost", "refused", "timeouts", "workers"),
    )

    def __init__(self) -> None:
        self.ended = self.aborted = self.deadlocks = self.knowledge = 0
        self.refused = self.timeouts = self.lost = self.connections_lost = self.elected = (
            self.clients_lost
        ) = 0
        self.broken: dict[Literal["surrendered", "aborted"], int] = dict.fromkeys(
            ("surrendered", "aborted"), 0
        )
        self.leaders: dict[tuple[str, str], Leading] = {}  # by election and instance
        self.workers: dict[object, Callable[[], tuple[str, int, int, int]]] = {}

    def take_back(self) -> None:
        """The last transaction that ended was refused as it began: it is not counted."""
        self.ended -= 1

    def leading(self, name: str, instance: str, leads: bool, term: int) -> None:
        """Note whether an instance of an election leads, and its term."""
        before = self.leaders.get((name, instance))
        self.elected += leads and not (before is not None and before.leads)
        self.leaders[name, instance] = Leading(name[:LONGEST_TEXT], leads, term)

    def left(self, name: str, instance: str) -> None:
        """An instance has left an election."""
        self.leaders.pop((name, instance), None)

    def _ownership(self) -> tuple[Owning, ...]:
        """The data of each worker, by name."""
        told = sorted(look() for look in list(self.workers.values()))
        return tuple(Owning(name[:LONGEST_TEXT], *rest) for name, *rest in told[:MOST_OWNERSHIPS])

    def _leaders(self) -> tuple[Leading, ...]:
        """The elections, by name; one of several instances may lead."""
        found: dict[str, Leading] = {}
        for each in list(self.leaders.values()):
            other = found.get(each.name, each)
            leads, term = each.leads or other.leads, max(each.term, other.term)
            found[each.name] = Leading(each.name, leads, term)
        return tuple(found[name] for name in sorted(found)[:MOST_ELECTIONS])

    def statistics(
        self,
        name: str,
        agents: int,
        table: TableStatistics,
        times: TimesStatistics,
        traffic: TrafficStatistics,
        watches: int,
        handed_on: int,
        fullest: int,
    ) -> NodeStatistics:
        """All counters, together with values that are looked up."""
        return NodeStatistics(
            name=name,
            transactions=self.ended + agents,
            aborted=self.aborted,
            deadlocks=self.deadlocks,
            agents=agents,
            knowledge=self.knowledge,
            table=table,
            broken=BrokenStatistics(**self.broken),
            times=times,
            timeouts=self.timeouts,
            lost=self.lost,
            connections_lost=self.connections_lost,
            leaders=self._leaders(),
            elected=self.elected,
            traffic=traffic,
            ownership=self._ownership(),
            watches=watches,
            clients_lost=self.clients_lost,
            handed_on=handed_on,
            refused=self.refused,
            fullest=fullest,
        )
