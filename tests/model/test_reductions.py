"""What the explorer leaves out makes no difference.

Exploring with every order of events is compared with exploring what is left of them, and renamed
counters with the real ones: ends, surrenders, and for each single party every event in every state.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from locks.core.agent.machine import AgentMachine
from locks.core.messages import RequestStates
from locks.core.server.notifier import Notifier
from locks_lab.cases.case import case_of, replay
from locks_lab.explorer import space as spaces
from locks_lab.explorer.explore import Explored, TooManyStates, explore
from locks_lab.explorer.reactions import SETTLE
from locks_lab.explorer.small_worlds import Kind, ring, small_worlds, start
from locks_lab.explorer.space import Space
from locks_lab.schedules.plan import Plan
from locks_lab.worlds.host import Host, Violation
from locks_lab.worlds.rules import OURS, RULES
from locks_lab.worlds.script import parse_script
from locks_lab.worlds.study import study
from locks_lab.worlds.world import Faults, World

LIMIT = 6_000
EXTRAS = ("try", "unlock", "ask", "again")
MORTAL = Faults(((1, "ends"),))

# Kinds of worlds, and how many worlds of each are compared.
KINDS: dict[str, tuple[Kind, int]] = {
    "reads and writes": (Kind(modes="rw"), 4),
    "extras": (Kind(locks=1, modes="rw", extras=EXTRAS), 5),
    "aborts": (Kind(extras=("unlock", "again"), options=("abort_on_deadlock",)), 5),
    "parents": (Kind(locks=1, modes="rw", depth=2), 10),
    "rings": (Kind(agents=3, locks=3, ring=True, held=True), 1),
    "deaths": (Kind(faults=MORTAL), 6),
    "two nodes": (Kind(1, 2, 2, "rw", extras=("try",)), 5),
    "spokes": (Kind(2, 2, 2, spokes=True, apart=True), 2),
    "rings of spokes": (Kind(3, 3, 1, ring=True, held=True, spokes=True), 2),
    "a relay fails": (
        Kind(3, 3, 1, ring=True, held=True, spokes=True, faults=Faults((), 0, 1, ("n1",), False)),
        1,
    ),
    "a node fails": (Kind(1, 2, 2, faults=Faults((), 1, 1, ("n2",))), 2),
}
LONG = {"a relay fails", "extras", "parents", "spokes", "rings of spokes"}


def scripted(*scripts: str, **options: Any) -> Plan:
    """A world of these clients."""
    return Plan(tuple(map(parse_script, scripts)), **options)


def sample(name: str) -> list[tuple[Plan, bool]]:
    """Some worlds of a kind, always the same ones."""
    kind, count = KINDS[name]
    plans = list(itertools.islice(small_worlds(kind), 400))
    return [(plan, kind.held) for plan in random.Random(1).sample(plans, min(count, len(plans)))]


def at_end(world: World) -> tuple[Any, ...]:
    """How a world has ended, for each client."""
    return tuple((c.finished, c.failed, len(c.reports)) for c in world.clients)


def explored(plan: Plan, held: bool, **how: bool) -> Explored | None:
    """What an exploration finds; nothing if the world is too large."""
    try:
        return explore(start(plan, held), LIMIT, at_end=at_end, **how)
    except TooManyStates:
        return None


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.explore if each in LONG else ()) for each in KINDS],
)
def test_nothing_is_lost(name: str) -> None:
    """In fewer states the same ends are found, and as many surrenders, at least and at most."""
    compared = 0
    for plan, held in sample(name):
        full = explored(plan, held, reduce=False)
        for how in ({}, {"rename": False}):
            less = explored(plan, held, **how)
            if full is None or less is None:
                continue
            compared += 1
            assert less.ends == full.ends, plan.scripts
            assert less.surrenders == full.surrenders, plan.scripts
    assert compared


def events(world: World, reduce: bool) -> set[Any]:
    """Each event at a party, with the state of the party before it."""
    space = Space(world, reduce=reduce)
    first = space.start()
    found: set[tuple[int, int]] = set()
    seen, todo = {first}, [first]
    while todo:
        state = todo.pop()
        for move in space.moves(state):
            new = space.after(state, move)
            if new is None:
                continue
            if not move.changes and move.what != SETTLE:
                found.add((state[0][move.party], move.what))
            if new not in seen:
                seen.add(new)
                todo.append(new)
    names: dict[int, Any] = {}
    for key, number in space.ids.items():  # what is to be looked at next is said another way
        names[number] = names[key[1]] if key[0] == "forced" else (key[0], key[2])
    return {(names[p], space.messages[what] if what >= 0 else what) for p, what in found}


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)], ids=str)
def test_each_event_in_each_state_of_a_party(order: tuple[int, ...]) -> None:
    """An agent that comes first takes in a message, and does not look before the next one is sent.

    Where only one party's events are tried, that message can't be taken in later instead.
    """
    plan = Plan(ring(order))
    assert events(start(plan, True), True) == events(start(plan, True), False)


def test_a_fault_in_a_rare_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that fails only when it is told two things before it looks is caught."""
    told = AgentMachine.receive

    def receive(self: AgentMachine, message: Any) -> Any:
        unlooked = self.unsettled and self.outlook() is not None and not study(self).giving_up
        if unlooked and isinstance(message, RequestStates):
            raise Violation("told before it has looked")
        return told(self, message)

    monkeypatch.setattr(AgentMachine, "receive", receive)
    for reduce in (True, False):
        with pytest.raises(Violation, match="before it has looked"):
            explore(start(scripted("write a; write b", "write b; write a"), False), reduce=reduce)


@pytest.mark.parametrize(
    "scripts",
    [
        ("write a", "write b"),
        ("read a", "read a"),
        ("write a; unlock a; write b", "write c; unlock c; write d"),
    ],
    ids="|".join,
)
def test_who_has_what_at_the_same_time(
    scripts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients that can both have something are seen to have it at the same time.

    Otherwise it would go unnoticed that they must not.
    """

    def exclude(one: Host, other: Host, node: str) -> None:
        if one.told and other.told:
            raise Violation("both")

    monkeypatch.setattr(spaces, "check_exclusion", exclude)
    with pytest.raises(Violation, match="both"):
        explore(scripted(*scripts).world())


@pytest.mark.parametrize("fate", ["ends", "crashes"])
def test_who_may_live_on_is_not_stuck(fate: Any) -> None:
    """Nobody is stuck for as long as an agent that may die has something to look at."""
    for mortal in (1, 2):
        plan = scripted("write a; write b", "write b; write a", faults=Faults(((mortal, fate),)))
        assert explored(plan, False) is not None


def test_a_node_that_is_cut_off_and_down_comes_back() -> None:
    """It takes two repairs then, and neither of them is of any use alone."""
    faults = Faults((), 1, 1, ("n2",))
    plan = scripted(
        "write a on n1,n2 all", nodes=("n1", "n2"), faults=faults, options=("await_nodes",)
    )
    for reduce in (True, False):
        found = explored(plan, False, reduce=reduce)
        assert found is not None
        assert found.ends == {((True, False, 0),)}


@pytest.mark.parametrize("name", ["few", "once", "all-yield"])
def test_wrong_rules_are_found_by_both(name: str) -> None:
    """Whatever goes wrong in rings of 3 with all orders of events goes wrong without them, too."""
    kind = Kind(agents=3, locks=3, ring=True, held=True)
    for plan in small_worlds(kind, RULES[name]):
        verdicts = []
        for reduce in (True, False):
            try:
                verdicts.append(explored(plan, True, reduce=reduce) and "fine")
            except Violation as violation:
                verdicts.append(str(violation).split(":")[0])
        assert None in verdicts or verdicts[0] == verdicts[1]


def test_a_violation_is_one_in_the_world_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found is told as a case; replayed, that goes wrong in the same way."""
    monkeypatch.setattr(Notifier, "_notify_edge", lambda *args: None)
    plan = scripted("write a; write b", "write c; again; write b; write a")
    for reduce in (True, False):
        with pytest.raises(Violation, match="stuck") as caught:
            explore(plan.world(), reduce=reduce)
        case = case_of(plan, caught.value.schedule)  # type: ignore[attr-defined]
        assert "stuck" in str(replay(case).error)
    assert plan.rule is OURS
