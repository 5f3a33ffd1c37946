"""Counted locks in simulated worlds: never more holders than units, in their order, and every knot is found.

Who waits for a unit waits for any of those who have one, so a circle need not be a deadlock, and a deadlock may
take several circles (`locks.core.agent.knots`). Small worlds are explored whole, large ones run under random
schedules. Rules that are wrong in one point are caught.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.exploration import Exploration
from locks.core.agent.wait_graph import WaitGraph
from locks.core.messages import Surrender
from locks.core.server import table as lock_table
from locks.core.server.notifier import News, Notifier
from locks.core.server.tree import Entry, Requester
from locks.model import AgentId, Deadlock
from locks_lab.explorer.explore import Explored, explore
from locks_lab.explorer.small_worlds import start
from locks_lab.schedules.plan import Plan, Shape
from locks_lab.schedules.runs import Tally, run_seeds
from locks_lab.schedules.schedule import POLICIES, Policy, run
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import OURS, OtherAgent, OtherResolver, OtherServer, Rule
from locks_lab.worlds.script import script
from locks_lab.worlds.world import Faults, World
from tests.helpers import EXPLORE, SEED

WORLDS = 150 * (60 if EXPLORE else 1)

# --- Small worlds, explored whole ---------------------------------------------------------------

KNOT = ["write a*2; write x", "write a*2; write x", "write x; write a*2"]
TWO_CIRCLES = [
    "write a*2; write x",
    "write a*2; write y",
    "ask write x; ask write y; await; write a*2",
]
FREE = ["write a*2; write x", "write a*2", "write x; write a*2"]

SMALL = {  # with how often somebody yields, at least and at most
    "two units, and both who have one wait for the third": (KNOT, (0, 1)),
    "the third stands in two circles": (TWO_CIRCLES, (0, 1)),
    "a circle, but another unit comes free": (FREE, (0, 0)),
    "as many units as clients": (["write a*2; write b*2", "write b*2; write a*2"], (0, 0)),
    "fewer units than clients": (["write a*2; write b*2"] * 2 + ["write b*2; write a*2"], (0, 0)),
    "one unit is a lock": (["write a*1; write b", "write b; write a*1"], (0, 1)),
    "a lock above it": (["write a*2; write b", "write b; write a"], (0, 1)),
    "a reader above it": (["write a*2; write b", "write b; read a"], (0, 1)),
    "one goes up": (["write a*2; write a", "write a*2"], (0, 0)),
    "both go up": (["write a*2; write a", "write a*2; write a"], (0, 1)),
    "others below": (["write a*2; write a/1", "write a/1; write a*2"], (0, 0)),
}


@pytest.mark.parametrize(
    "abort",
    [
        pytest.param(False, id="surrender"),
        pytest.param(True, id="abort", marks=pytest.mark.explore),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.explore if scripts in (KNOT, TWO_CIRCLES) else ())
        for name, (scripts, _) in SMALL.items()
    ],
)
def test_small_worlds(name: str, abort: bool) -> None:
    """In each state of these worlds all is well: all come to an end, and nobody yields for nothing."""
    scripts, yields = SMALL[name]
    outcome = explore(World(scripts, abort_on_deadlock=abort))
    print(outcome)
    assert outcome.surrenders == yields
    assert outcome.superfluous == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scripts", "yields"), [(KNOT, (1, 1)), (TWO_CIRCLES, (0, 1))], ids=["a knot", "two circles"]
)
def test_who_yields(scripts: list[str], yields: tuple[int, int]) -> None:
    """One agent of a knot yields, and no other one, however messages travel; who stands in two circles may do without."""
    outcome = held(scripts)
    assert outcome.surrenders == yields
    assert outcome.superfluous == 0


@pytest.mark.parametrize("where", ["on n1", "on n1,n2 all"])
@pytest.mark.parametrize("policy", POLICIES)
def test_several_nodes(where: str, policy: Policy) -> None:
    """A knot whose locks are on two nodes is found, also if the counted one is on both of them."""
    scripts = [
        f"write a*2 {where}; write x on n2",
        f"write a*2 {where}; write x on n2",
        f"write x on n2; write a*2 {where}",
    ]
    for seed in range(SEED, SEED + 20):
        world = start(Plan(tuple(map(script, scripts)), ("n1", "n2")), held=True)
        run(world, random.Random(seed), policy)
        assert len(world.carried_out) == 1, seed
        assert not world.superfluous, seed


@pytest.mark.parametrize("policy", POLICIES)
def test_a_wait_beside_a_majority_is_no_reason_to_abort(policy: Policy) -> None:
    """Who has x by two nodes may wait at the third one, and does not want to be aborted for that.

    What it gave up there before may still be told of, and others may wait elsewhere than where it knows them from.
    """
    asked: list[Deadlock] = []

    class Recording(Resolver):
        def surrender(self, node: str, message: Surrender) -> None:
            if message.report is not None and message.aborts:
                asked.append(message.report)
            super().surrender(node, message)

    class RecordingAgent(OtherAgent):
        resolver_class = Recording

    where = "on n1,n2,n3 majority"
    knot = [f"write a*2 on n1; write x {where}"] * 2 + [f"write x {where}; write a*2 on n1"]
    plan = Plan(
        tuple(map(script, knot)),
        ("n1", "n2", "n3"),
        homes=("c1", "c2", "c3"),
        options=("abort_on_deadlock",),
        rule=Rule("recording", "what is asked for is kept", RecordingAgent),
    )
    for seed in range(SEED, SEED + WORLDS // 10):
        run(start(plan, held=True), random.Random(seed), policy)
        for report in asked:
            (own,) = [e.waiter for e in report.cycle if e.waiter.agent == report.agent]
            assert own.lock_id != ("x",), (seed, report)
        assert asked, seed
        asked.clear()


@pytest.mark.explore
@pytest.mark.parametrize("fate", ["ends", "crashes"])
def test_one_that_dies(fate: str) -> None:
    """The unit of one who dies at any moment is free for the next in line."""
    for number in (1, 2, 3):
        plan = Plan(tuple(map(script, KNOT)), faults=Faults(((number, fate),)))
        explore(start(plan, held=True))


def held(scripts: Iterable[str], nodes: tuple[str, ...] = ("n1",), rule: Rule = OURS) -> Explored:
    """Explore a world in which each client has taken its first step."""
    return explore(start(Plan(tuple(map(script, scripts)), nodes, rule=rule), held=True))


# --- Large ones, under random schedules ---------------------------------------------------------

SHAPES = {  # with the share of superfluous surrenders that is expected at most
    "some counted, one node": (Shape(nodes=1, faults=False, units=0.5), 0.05),
    "all counted": (Shape(nodes=1, faults=False, units=1, agents=8, locks=3, depth=1), 0.05),
    "one at a time": (Shape(nodes=1, faults=False, units=0.7, policy="quiet"), 0),
    "three nodes": (Shape(nodes=3, faults=False, units=0.5, require=("all",)), 0.1),
    "faults": (Shape(nodes=3, faults=True, units=0.5, require=("all",), tokens=0.8), 0.15),
    "spokes": (Shape(spokes=True, faults=False, units=0.5, require=("all",)), 0.1),
    "spokes with faults": (Shape(spokes=True, faults=True, units=0.5), 0.3),
}


@pytest.mark.parametrize(
    "worlds", [WORLDS // 5, pytest.param(WORLDS, marks=pytest.mark.explore)], ids=["some", "all"]
)
@pytest.mark.parametrize("name", SHAPES)
def test_random_worlds(name: str, worlds: int) -> None:
    """Whatever clients want and whatever goes wrong: never more holders than units, and nobody is stuck.

    Units are given in order, tokens of each unit rise, and few yield for what is no deadlock (any more).
    """
    shape, superfluous = SHAPES[name]
    tally = Tally()
    first = SEED + 7_000_000 + 1_000_000 * list(SHAPES).index(name)
    failure = run_seeds(range(first, first + worlds), shape, tally=tally)
    assert failure is None, f"seed {failure.seed} of {shape}: {failure.error}"
    print(tally)
    assert tally.seen["deadlocks"] > worlds // 8
    assert tally.seen["superfluous"] <= max(2, superfluous * tally.seen["deadlocks"]), str(tally)


# --- Rules that are wrong -----------------------------------------------------------------------


class _Circles(WaitGraph):
    """Each circle is taken for a deadlock."""

    def explore(self, me: AgentId) -> Exploration:
        self._counted, counted = 0, self._counted
        found = super().explore(me)
        self._counted = counted
        return found


class _CirclesResolver(OtherResolver):
    graph_class = _Circles


class _CirclesAgent(OtherAgent):
    resolver_class = _CirclesResolver


class _ShortNotifier(Notifier):
    """Of several circles only the shortest one is made known."""

    def _cycle_of(self, requester: Requester, clear: set[Requester], news: News) -> set[Requester]:
        self._table.counted, counted = {}, self._table.counted
        members = super()._cycle_of(requester, clear, news)
        self._table.counted = counted
        return members


class _ShortServer(OtherServer):
    notifier_class = _ShortNotifier


CIRCLES = Rule("circles", "each circle is taken for a deadlock", _CirclesAgent)
SHORT = Rule("short", "lock servers make one circle known", server=_ShortServer)


def test_a_circle_is_no_deadlock() -> None:
    """Who takes a circle for a deadlock yields for nothing."""
    plan = Plan(tuple(map(script, FREE)), rule=CIRCLES)
    assert explore(start(plan, held=True)).superfluous > 0


@pytest.mark.slow
def test_one_circle_is_not_enough() -> None:
    """A knot of which only one circle is made known is never found."""
    with pytest.raises(Violation, match="stuck"):
        held(TWO_CIRCLES, rule=SHORT)


def _one_more(entry: Entry) -> bool:
    """There is a unit more than there should be."""
    slot = entry.slot
    return slot.queues[entry.rank].index(entry) > slot.units


def _nobody(*_: Any) -> None:
    """A unit that comes free is nobody's."""


@pytest.mark.parametrize(
    ("name", "wrong", "what"),
    [
        ("is_full_for", _one_more, "granted too early"),
        ("next_in_line", _nobody, "waits for nothing"),
        ("give_unit", _nobody, "waits for nothing|have the units"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_wrong_lock_tables(
    name: str, wrong: Callable[..., Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More holders than units, units that are left lying, and two with the same unit are noticed."""
    monkeypatch.setattr(lock_table, name, wrong)
    with pytest.raises(Violation, match=what):
        explore(World(["write a*2"] * 4))
