"""Elections while the list of their servers changes (`locks_lab.leader.changing`): random worlds, and rules that are wrong in one point."""

from __future__ import annotations

import pytest

from locks.core.rosters import Acceptor, Roster
from locks_lab.leader.changing import ChangingElections, ElectionRules, run_changing
from locks_lab.leader.node import EAGER
from locks_lab.leader.rules import RULES, MachineRule
from locks_lab.leader.schedule import settle
from locks_lab.leader.world import ElectionPlan
from locks_lab.worlds.host import Violation
from locks_leader.core.machine import Machine
from locks_leader.policy import Policy, by_servers
from tests.helpers import EXPLORE, SEED


def run_many(seeds: range, rules: ElectionRules | None = None) -> tuple[int, int]:
    """Run worlds; return how many rosters were decided, and how many elections won."""
    rosters = elections = 0
    for seed in seeds:
        world = run_changing(seed) if rules is None else run_changing(seed, rules=rules)
        rosters += world.best.number
        elections += len(world.history.elections)
    return rosters, elections


@pytest.mark.slow
def test_random_worlds() -> None:
    """There is one leader by its grants, terms rise, a leader without a fault leads on, and in the end all go by the last list, and somebody leads."""
    first = 10_000 * SEED
    rosters, elections = run_many(range(first, first + (2000 if EXPLORE else 60)))
    assert rosters > 100
    assert elections > 60


def test_some_random_worlds() -> None:
    """The same, a few of them."""
    run_many(range(4))


# --- Other rules --------------------------------------------------------------------------------


class Unprepared(Machine):
    """A leader goes by the new list at once, before it has enough of its servers."""

    def _settle(self) -> None:
        self.policy = self.wanted
        self._contest.follow(self.policy, self.wanted)


def wanted(machine: Machine) -> int:
    """An instance says that it has joined before it has enough servers."""
    number = machine.wanted.roster
    assert number is not None
    return number


def only_new(roster: Roster) -> Policy:
    """While both lists are in force, a majority of the new one is enough."""
    return by_servers([roster.then], roster.number)


def only_old(roster: Roster) -> Policy:
    """While both lists are in force, a majority of the old one is enough."""
    return by_servers([roster.servers], roster.number)


class AlwaysReady(Acceptor):
    """A server that lets the new list count though it serves programs that have not joined."""

    def prepare(self, number: int, ballot: int, seal: bool, ready: bool) -> tuple[Acceptor, bool]:
        return super().prepare(number, ballot, seal, True)


class NoFloor(Roster):
    """The new servers don't go on above the versions of the old ones."""

    def _next(self, floor: int) -> Roster:
        return super()._next(0)


LOST, TWO, FALL = "has lost its leadership without a fault", "two leaders", "terms fall"
UNPREPARED = MachineRule("unprepared", "the new list counts before a leader has it", Unprepared)
WRONG = [
    pytest.param(ElectionRules(elections=UNPREPARED.name), 4, LOST, id="unprepared"),
    pytest.param(ElectionRules(joined=wanted), 55, TWO, id="joined"),
    pytest.param(ElectionRules(policy=only_new), 55, TWO, id="new"),
    pytest.param(ElectionRules(policy=only_old), 28, TWO, id="old"),
    pytest.param(ElectionRules(acceptor=AlwaysReady), 57, TWO, id="ready"),
]


@pytest.mark.parametrize(("rules", "seed", "message"), WRONG)
def test_wrong_rules(
    rules: ElectionRules, seed: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that is wrong in one point is caught, in a world in which ours holds."""
    monkeypatch.setitem(RULES, UNPREPARED.name, UNPREPARED)
    run_changing(seed)
    with pytest.raises(Violation, match=message):
        run_changing(seed, rules=rules)


def first_after_a_change(rules: ElectionRules) -> None:
    """A leader has ended, the only server is replaced, and then somebody else is elected."""
    plan = ElectionPlan(
        ("a", "b", "c", "d", "e", "x"), ((),) * 5 + (("candidate",),), eager=EAGER, kills=1
    )
    world = ChangingElections(plan, ("a",), changes=1, rules=rules)
    settle(world)
    world.kill(world.instances[0].ref)
    world.do(("wish", ("d",)))
    settle(world)
    assert world.best.servers == ("d",)
    world.start("x")
    settle(world)
    assert len(world.history.elections) == 2


def test_the_first_leader_after_a_change() -> None:
    """It has a larger term than leaders before the change, though nobody has led on any of its servers; without a floor this is caught."""
    first_after_a_change(ElectionRules())
    with pytest.raises(Violation, match=FALL):
        first_after_a_change(ElectionRules(roster=NoFloor))
