"""The checks of worlds can fail: each of these machines is broken in one point, and found out."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.ledger import Ledger
from locks.core.agent.machine import AgentMachine
from locks.core.agent.requests import LockRequest
from locks.core.server.table import LockTable
from locks.core.server.tree import Entry, Requester
from locks.model import Deadlock, Edge
from locks_lab.schedules.schedule import run
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import RULES
from locks_lab.worlds.world import Faults, World

OPPOSITE = ["write a; write b", "write b; write a"]
Patch = pytest.MonkeyPatch


def goes_wrong(make: Callable[[], World], what: str) -> None:
    """Some schedule of a world goes wrong in this way."""
    with pytest.raises(Violation, match=what):
        run_all(make, 200)


def run_all(make: Callable[[], World], seeds: int) -> None:
    """Run a world under many schedules."""
    for seed in range(seeds):
        run(make(), random.Random(seed))


def test_a_lock_that_is_needed_on_more_nodes(monkeypatch: Patch) -> None:
    """A client is told that it has a lock although fewer nodes than a majority have granted it."""
    monkeypatch.setattr(LockRequest, "serves", lambda self, mode, alive: any(
        node_request.grant(mode) for node_request in self.node_requests.values()
    ))  # fmt: skip
    goes_wrong(
        lambda: World(["write a on n1,n2,n3 majority"] * 2, ("n1", "n2", "n3")),
        "is told that it has",
    )


def test_a_report_that_is_not_kept(monkeypatch: Patch) -> None:
    """An agent of a deadlock does not keep the report for its client."""
    monkeypatch.setattr(AgentMachine, "_resolved", lambda self, report: None)
    goes_wrong(lambda: World(OPPOSITE), "will not hear of a deadlock")


def test_a_report_that_is_no_cycle(monkeypatch: Patch) -> None:
    """What is reported does not begin with the edge that was broken."""
    real = Resolver._yield

    def turned(self: Resolver, edge: Edge, cycle: tuple[Edge, ...], *rest: Any) -> None:
        real(self, edge, cycle[::-1], *rest)

    monkeypatch.setattr(Resolver, "_yield", turned)
    goes_wrong(lambda: World(OPPOSITE), "about something else")


def test_a_surrender_instead_of_an_abort(monkeypatch: Patch) -> None:
    """What its client was told it has is surrendered, although the agent is to abort."""
    monkeypatch.setattr(Ledger, "is_acknowledged", lambda self, edge: False)
    goes_wrong(
        lambda: World(OPPOSITE, abort_on_deadlock=True), "surrenders what its client was told"
    )


def test_a_surrender_for_an_edge_that_is_gone(monkeypatch: Patch) -> None:
    """A lock server carries a surrender out without looking whether its edge is still there."""
    monkeypatch.setattr(LockTable, "edge_stands", lambda *args: True)
    goes_wrong(
        lambda: World(["read a; try write a; await", "read a; write a"]),
        "though the edge stands: False",
    )


def test_tokens_that_begin_anew(monkeypatch: Patch) -> None:
    """After a restart a node gives fencing tokens that it has given before."""
    init = LockTable.__init__
    monkeypatch.setattr(LockTable, "__init__", lambda self, first=0: init(self, 0))
    faults = Faults(crashes=1, nodes=("n2",))
    goes_wrong(
        lambda: World(["write a on n2"] * 2, ("n1", "n2"), faults, await_nodes=True),
        "fencing tokens of n2 fall",
    )


def test_tokens_that_nobody_confirms() -> None:
    """The token of a lock on several nodes is the largest version of its grants, and no more."""
    nodes = ("n1", "n2", "n3")
    wanted = ["write a on n1,n2,n3 majority; token a"] * 3
    faults = Faults(crashes=1, nodes=("n1",))
    goes_wrong(
        lambda: World(
            [*wanted, "write b on n2; again; write b on n2"],
            nodes,
            faults,
            ("n2",),
            RULES["hasty"],
        ),
        "fencing tokens of a fall",
    )


MAJORITY = Faults(crashes=1, nodes=("n2", "n3"))


def loses(**options: bool) -> World:
    """A client on n1 whose lock may be lost with another node."""
    wanted = ["write a on n2,n3; write b; await", "write b"]
    return World(wanted, ("n1", "n2", "n3"), MAJORITY, **options)


def test_a_loss_that_is_not_told(monkeypatch: Patch) -> None:
    """A client's lock is lost with a node, and its agent does not say so."""
    monkeypatch.setattr(AgentMachine, "_lose", lambda *args: None)
    goes_wrong(lambda: loses(await_nodes=True), r"has lost {\('a',\)}, and is told of \[\]")


def test_a_loss_that_is_told_late(monkeypatch: Patch) -> None:
    """The agent says first what follows from the loss."""
    real = AgentMachine.node_down

    def late(self: AgentMachine, node: str) -> list[Any]:
        first, *rest = [*real(self, node), None]
        return [effect for effect in (*rest, first) if effect is not None]

    monkeypatch.setattr(AgentMachine, "node_down", late)
    goes_wrong(loses, "not told before all else")


def test_a_loss_that_is_none(monkeypatch: Patch) -> None:
    """A client is told that it has lost a lock that is still granted on nodes enough."""
    real = Ledger.node_down

    def needless(self: Ledger, node: str) -> list[LockRequest]:
        real(self, node)
        return list(self.requests.values())

    monkeypatch.setattr(Ledger, "node_down", needless)
    wanted = ["write a on n1,n2,n3 majority; write b; await", "write b"]
    goes_wrong(
        lambda: World(wanted, ("n1", "n2", "n3"), MAJORITY),
        r"has lost (set\(\)|{\('a',\)}), and is told of \[\(\('a',\), \('b',\)\)\]",
    )


def test_an_agent_that_vouches_for_what_is_lost(monkeypatch: Patch) -> None:
    """It says that a lock is held that was lost, or is about to be surrendered."""
    monkeypatch.setattr(Ledger, "is_lost", lambda self, request: False)
    goes_wrong(
        lambda: loses(await_nodes=True),
        "does not know that it had a lock: agent-1@n1 has requested a,",
    )
    goes_wrong(lambda: World(OPPOSITE), "does not know whether [ab] is held")


def test_a_grant_out_of_order(monkeypatch: Patch) -> None:
    """A lock table grants a read that came after a write that waits."""
    monkeypatch.setattr("locks.core.server.table.last_ahead", lambda *args: None)
    goes_wrong(lambda: World(["read a", "write a", "read a"]), "granted too early")


def test_what_is_left_in_an_agent(monkeypatch: Patch) -> None:
    """An agent that has ended still keeps what others know."""
    monkeypatch.setattr(Resolver, "end_search", lambda self: None)
    goes_wrong(lambda: World(OPPOSITE), "left in client")


def test_a_grant_that_vanishes(monkeypatch: Patch) -> None:
    """A lock table that takes a read lock away when its owner wants to write."""
    real = LockTable.request

    def vanishing(self: LockTable, *args: Any, **options: Any) -> list[Entry]:
        changed = real(self, *args, **options)
        owner: Requester = changed[0].requester
        if changed[0].mode == "write" and not changed[0].granted:
            for entry in owner.all():
                entry.granted = False
        return changed

    monkeypatch.setattr(LockTable, "request", vanishing)
    goes_wrong(lambda: World(["read a; write a", "read a"]), "took a from")


def test_reports_are_looked_at_whole() -> None:
    """The unbroken machines pass the same worlds."""
    for seed in range(50):
        world = World(OPPOSITE, abort_on_deadlock=bool(seed % 2))
        run(world, random.Random(seed))
        assert all(isinstance(report, Deadlock) for report in world.carried_out)
