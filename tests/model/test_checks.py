"""The checks of worlds can fail: each of these machines is broken in one point, and found out."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from locks.agent_machine import AgentMachine
from locks.claims import Claims
from locks.lock_table import LockTable
from locks.lock_tree import Asker, Entry
from locks.model import Deadlock, Edge
from locks.resolver import Resolver
from locks.sim.client import Violation
from locks.sim.schedule import run
from locks.sim.world import Faults, World
from locks.wishes import Wish

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
    monkeypatch.setattr(Wish, "serves", lambda self, mode, alive: any(
        claim.grant(mode) for claim in self.claims.values()
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

    def turned(self: Resolver, edge: Edge, cycle: tuple[Edge, ...], abort: bool) -> None:
        real(self, edge, cycle[::-1], abort)

    monkeypatch.setattr(Resolver, "_yield", turned)
    goes_wrong(lambda: World(OPPOSITE), "about something else")


def test_a_surrender_instead_of_an_abort(monkeypatch: Patch) -> None:
    """What its client was told it has is surrendered, although the agent is to abort."""
    monkeypatch.setattr(Claims, "claimed", lambda self, edge: False)
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


def test_a_grant_out_of_order(monkeypatch: Patch) -> None:
    """A lock table grants a read that came after a write that waits."""
    monkeypatch.setattr("locks.lock_table.last_ahead", lambda *args: None)
    goes_wrong(lambda: World(["read a", "write a", "read a"]), "granted too early")


def test_what_is_left_in_an_agent(monkeypatch: Patch) -> None:
    """An agent that has ended still keeps what others know."""
    monkeypatch.setattr(Resolver, "cease", lambda self: None)
    goes_wrong(lambda: World(OPPOSITE), "left in client")


def test_a_grant_that_vanishes(monkeypatch: Patch) -> None:
    """A lock table that takes a read lock away when its owner wants to write."""
    real = LockTable.request

    def vanishing(self: LockTable, *args: Any) -> list[Entry]:
        changed = real(self, *args)
        asker: Asker = changed[0].asker
        if changed[0].write and not changed[0].granted:
            for entry in asker.all():
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
