"""Wrong variants of the rules: exploring small worlds catches each of them.

So the exploration can fail, and each rule that is left out here is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from locks import lock_table
from locks.informer import Informer
from locks.lock_table import LockTable
from locks.lock_tree import Asker, Entry
from locks.model import AgentId, RequestRecord
from locks.resolver import Resolver
from locks.wait_graph import Exploration, WaitGraph
from tests.model.explore import explore
from tests.model.test_rings import orders, scripts
from tests.model.world import Step, Violation, World

A, B = ("a",), ("b",)
OPPOSITE: list[list[Step]] = [
    [("lock", A, "write"), ("lock", B, "write")],
    [("lock", B, "write"), ("lock", A, "write")],
]
UPGRADES: list[list[Step]] = [[("lock", A, "read"), ("lock", A, "write")]] * 2


def ring(order: tuple[int, ...]) -> World:
    """A ring in which each agent has its first lock; the second ones are still to be asked for."""
    world = World(scripts(order))
    for client in world.clients:
        world.step(client.number)
        world.deliver()
    return world


def stuck_rings(size: int) -> int:
    """How many of the orders of a ring can get stuck."""
    found = 0
    for order in orders(size):
        try:
            explore(ring(order))
        except Violation as violation:
            found += "stuck" in str(violation)
    return found


def test_a_schedule_of_a_violation_can_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an exploration reports as wrong goes wrong in the world itself, step by step."""
    monkeypatch.setattr(Informer, "_tell_edge", lambda *args: None)
    with pytest.raises(Violation, match="stuck") as caught:
        explore(World(OPPOSITE))
    world = World(OPPOSITE)
    for choice in caught.value.schedule:  # type: ignore[attr-defined]
        world.do(choice)
    with pytest.raises(Violation, match="stuck"):
        world.check_end()


# --- Resolvers


def test_a_resolver_that_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without passing on, rings of 3 get stuck in either order.

    A ring of 2 does not: the lock server itself tells both agents both edges.
    """

    def tell(self: Resolver, partner: AgentId, records: Iterable[RequestRecord]) -> None:
        pass

    monkeypatch.setattr(Resolver, "_tell", tell)
    assert explore(ring((0, 1))).surrenders == (1, 1)
    assert stuck_rings(3) == 2


def test_a_resolver_that_tells_holders_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passing on to larger agents only where they hold something, as the original does.

    In a ring of 3, the smallest agent has to tell the smaller one of its neighbours: where that
    is the one that waits for it, nobody ever sees the whole ring. In the other order all is well.
    """
    whole = WaitGraph.explore

    def holders(self: WaitGraph, me: AgentId) -> Exploration:
        found = whole(self, me)
        holding = {edge.holder.agent for edge in found.edges if edge.holder.state == "granted"}
        return found._replace(targets=found.targets & holding)

    monkeypatch.setattr(WaitGraph, "explore", holders)
    assert stuck_rings(3) == 1


def test_a_resolver_that_yields_in_each_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """When not only the largest agent of a cycle yields, a ring of 2 costs more than one surrender."""
    whole = WaitGraph.explore

    def any_cycle(self: WaitGraph, me: AgentId) -> Exploration:
        closing = []
        path: dict[AgentId, Any] = {}
        agents = [me]
        for agent in agents:
            for edge in self.blockers(agent, me):
                other = edge.holder.agent
                if other == me:
                    closing.append(edge)
                elif other not in path:
                    path[other] = edge
                    agents.append(other)
        return whole(self, me)._replace(closing=closing, path=path)

    monkeypatch.setattr(WaitGraph, "explore", any_cycle)
    # In a ring of 3 it is one surrender, but by another agent: with so few messages only one agent
    # gets to know the whole ring. In a ring of 2 the lock server tells both.
    monkeypatch.setattr("tests.model.explore.check_yields", lambda report: None)
    with pytest.raises(Violation, match="more than 1 surrenders"):
        explore(ring((0, 1)), most=1)
    for order in orders(3):
        assert explore(ring(order)).surrenders == (1, 1)
    monkeypatch.undo()
    monkeypatch.setattr(WaitGraph, "explore", any_cycle)
    for order in orders(3):
        with pytest.raises(Violation, match="not the youngest"):
            explore(ring(order))


def test_a_graph_that_keeps_what_it_knew_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without taking in newer versions, two agents with one lock on two nodes each get stuck."""
    newer = WaitGraph.learn

    def first(self: WaitGraph, record: RequestRecord) -> bool:
        return self.get(record.key) is None and newer(self, record)

    monkeypatch.setattr(WaitGraph, "learn", first)
    nodes = ("n1", "n2")
    world = World([[("lock", A, "write", nodes, "all")]] * 2, nodes)
    world.step(1, 2)
    world.deliver_one(1, "n1")
    world.deliver_one(2, "n2")
    world.deliver(*nodes)
    with pytest.raises(Violation, match="stuck"):
        explore(world)


def test_a_graph_that_keeps_what_it_heard_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking in older versions as well is harmless in rings of 3.

    An agent hears of its own edges from the lock server, in order, and forgets everything once a
    deadlock is resolved: what is outdated lives only as long as a message is on its way. It takes
    several deadlocks at a time to do harm: one of the random worlds 0 to 5,999 gets stuck with it. So
    the rule is needed, and exploring worlds as small as these is no proof of it.
    """

    def last(self: WaitGraph, record: RequestRecord) -> bool:
        known = self._records.pop(record.key, None)
        if known is not None and known.state != "gone":
            self._take_out(known)
        return newest(self, record) and record != known

    newest = WaitGraph.learn
    monkeypatch.setattr(WaitGraph, "learn", last)
    for order in orders(3):
        outcome = explore(ring(order))
        assert outcome.surrenders == (1, 1)
        assert outcome.superfluous == 0


# --- Lock servers


def test_an_informer_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any edge told, two agents stay in their deadlock."""

    def tell_edge(self: Informer, edge: object, news: object) -> None:
        pass

    monkeypatch.setattr(Informer, "_tell_edge", tell_edge)
    for world in (World(OPPOSITE), World(UPGRADES)):
        with pytest.raises(Violation, match="stuck"):
            explore(world)


def test_a_surrender_whose_edge_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the edge is not looked at, more is surrendered than there are deadlocks.

    Two readers want to upgrade, and one of them may give up: one surrender at most is needed. A
    superfluous one can't be avoided altogether: an edge of the cycle elsewhere may be gone.
    """
    wanted: list[list[Step]] = [
        [("lock", A, "read"), ("try", A, "write"), ("await",)],
        [("lock", A, "read"), ("lock", A, "write")],
    ]
    explore(World(wanted), most=1)

    def stands(self: LockTable, asker: Asker, waiter: Any, holder: Any) -> bool:
        return True

    monkeypatch.setattr(LockTable, "edge_stands", stands)
    with pytest.raises(Violation, match="more than 1 surrenders"):
        explore(World(wanted), most=1)


def test_a_table_without_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade that stands behind somebody who waits for it makes a deadlock out of none."""
    wanted: list[list[Step]] = [
        [("lock", A, "read"), ("lock", A, "write")],
        [("lock", A, "write")],
    ]
    assert explore(World(wanted)).surrenders == (0, 0)
    monkeypatch.setattr(lock_table, "first_waiting_for", lambda *args: None)
    with pytest.raises(Violation, match="more than 0 surrenders"):
        explore(World(wanted), most=0)


def test_a_table_that_grants_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that overtakes a waiting write breaks the rule, though not exclusion."""
    wanted: list[list[Step]] = [[("lock", A, mode)] for mode in ("read", "write", "read")]
    explore(World(wanted))
    monkeypatch.setattr(lock_table, "last_ahead", lambda *args: None)
    with pytest.raises(Violation, match="granted too early"):
        explore(World(wanted))


def test_a_table_that_looks_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that grants at once, without the rule's own check: two are told of the same lock."""
    monkeypatch.setattr(LockTable, "_look", LockTable._grant)
    monkeypatch.setattr("tests.model.explore.check_rule", lambda *args: None)
    with pytest.raises(Violation, match=r"client . has write . and client . has"):
        explore(World(OPPOSITE))


def test_a_table_that_forgets_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """When nobody is looked at again after a release, somebody waits for nothing."""

    def consider(self: LockTable, candidates: dict[Entry, None], changed: list[Entry]) -> None:
        pass

    monkeypatch.setattr(LockTable, "_consider", consider)
    with pytest.raises(Violation, match="waits for nothing"):
        explore(World([[("lock", A, "write")]] * 2))
