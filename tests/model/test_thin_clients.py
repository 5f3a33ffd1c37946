"""Thin locks in the simulator: every order of turns of small worlds beside the same worlds without thin locks; wrong rules are caught."""

from __future__ import annotations

from typing import Any

import pytest

from locks.__main__ import main
from locks.core.agent.machine import Object
from locks.core.thin import Holder, Thin
from locks.model import AgentId, LockId
from locks_lab.commands.explore import explore_all, searches
from locks_lab.explorer import pairs
from locks_lab.explorer.explore import Explored, explore
from locks_lab.explorer.pairs import PairedWorlds
from locks_lab.explorer.small_worlds import Kind
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import RULES
from locks_lab.worlds.world import Faults, World
from tests.helpers import EXPLORE

THIN = RULES["thin"]
NO_FAULTS = Faults()


def explored(scripts: list[str], rule: type[Thin] = Thin, faults: Faults = NO_FAULTS) -> Explored:
    """Explore a world with thin locks whole."""
    return explore(World(scripts, faults=faults, rule=THIN._replace(thin=rule)))


# --- Worlds in every order


DIES = Faults(((1, "ends"),))
WORLDS: dict[str, tuple[list[str], Faults]] = {
    "one lock": (["write a", "write a"], NO_FAULTS),
    "opposite orders": (["write a; write b", "write b; write a"], NO_FAULTS),
    "ages that differ": (["write a; write b", "await; again; write b; write a"], NO_FAULTS),
    "parent and child": (["write a", "read a/1; write b"], NO_FAULTS),
    "a surrender on own wish": (["write a; surrender a", "write a"], NO_FAULTS),
    "an upgrade": (["read a; write a", "read a"], NO_FAULTS),
    "a release": (["write a; unlock a; write b", "write a"], NO_FAULTS),
    "one that gives up": (["write a", "try write a"], NO_FAULTS),
    "one that dies": (["write a; write b", "write b"], DIES),
    "again": (["write a; again; write a", "write a"], NO_FAULTS),
}
THREE: dict[str, list[str]] = {
    "one lock of three": ["write a"] * 3,
    "a ring of three": ["write a; write b", "write b; write c", "write c; write a"],
    "ages of three": ["await; again; write a; write b", "write b; write a", "read a"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_small_worlds_of_two(name: str) -> None:
    """In every order, with an inflation at each moment, all is as without thin locks, nothing is wrong, and all finish."""
    scripts, faults = WORLDS[name]
    outcome = explored(scripts, faults=faults)
    assert outcome.terminal
    assert outcome.superfluous == outcome.outdated == 0
    assert outcome.surrenders[1] == ("orders" in name or "ages" in name)


@pytest.mark.explore
@pytest.mark.parametrize("name", THREE)
def test_small_worlds_of_three(name: str) -> None:
    """The same for three clients."""
    assert explored(THREE[name]).terminal


KINDS = {
    "reads, writes, upgrades": Kind(modes="rw"),
    "one lock: writes, release, timeouts": Kind(locks=1, extras=("try", "unlock")),
    "transactions again, aborts": Kind(extras=("again",), options=("abort_on_deadlock",)),
    "parents and children": Kind(locks=1, depth=2),
}


@pytest.mark.explore
@pytest.mark.parametrize("name", KINDS)
def test_worlds_of_a_kind(name: str) -> None:
    """Ways to give two clients two steps each: one in three, and with LOCKS_EXPLORE=1 all."""
    check_kind(KINDS[name])


def check_kind(kind: Kind) -> None:
    """Explore one in three of the worlds of a kind, or all."""
    worlds = list(searches(kind, "thin"))
    total, wrong = explore_all(worlds[:: 1 if EXPLORE else 3])
    assert wrong is None, f"{wrong[0]}: {wrong[1].wrong}"
    assert total.worlds


def test_it_has_thin_locks_and_others() -> None:
    """The states of a world are not in vain: of each client there are some with a thin lock, and some with an inflated one."""
    world = World(["write a", "write b"], rule=THIN)
    model = PairedWorlds(world)
    seen: set[tuple[int, bool]] = set()
    states = [model.start()]
    for state in states:
        for move in model.moves(state):
            after = model.after(state, move)
            if after not in states:
                states.append(after)
                found = model.world(after)
                assert found.thin is not None
                for client in found.clients:
                    if client.told:
                        seen.add((client.number, found.thin.holds(client)))
    assert seen == {(number, thin) for number in (1, 2) for thin in (False, True)}


# --- Wrong rules


class ForgetsTheAge(Thin):
    """The agent is as old as its inflation."""

    def steps(self) -> list[Any]:
        older = [(event, args, lock) for event, args, lock in super().steps()]
        return [
            (event, args if lock is None else (_younger(args[0]), *args[1:]), lock)
            for event, args, lock in older
        ]


def _younger(agent: AgentId) -> AgentId:
    return agent._replace(created=agent.created + 1)


class ForgetsTheToken(Thin):
    """Locks that were released are not counted."""

    def steps(self) -> list[Any]:
        version = self.machine.table.version
        return [
            (event, (0, version) if lock is None else args, lock)
            for event, args, lock in super().steps()
        ]


class ForgetsALock(Thin):
    """A second lock takes the place of the first one."""

    def give(self, holder: Holder, wanted: Object, now: float, call: object) -> int | None:
        for lock_id in list(holder.thin_ids):
            self.release(self.held[lock_id])
        return super().give(holder, wanted, now, call)


class ForgetsAHolder(Thin):
    """A second client's lock takes the place of the first one's."""

    def give(self, holder: Holder, wanted: Object, now: float, call: object) -> int | None:
        for granted in [each for each in self.held.values() if each.holder is not holder]:
            self.release(granted)
        return super().give(holder, wanted, now, call)


class ForgetsParents(Thin):
    """What is held above an id is not looked at."""

    def is_free(self, lock_id: LockId) -> bool:
        above, self.held = self.held, {i: each for i, each in self.held.items() if i == lock_id}
        try:
            return super().is_free(lock_id)
        finally:
            self.held = above


class ForgetsChildren(Thin):
    """What is held below an id is not looked at."""

    def is_free(self, lock_id: LockId) -> bool:
        below, self._above = self._above, {}
        try:
            return super().is_free(lock_id)
        finally:
            self._above = below


class ForgetsTheTable(Thin):
    """What the lock table has is not looked at."""

    def is_free(self, lock_id: LockId) -> bool:
        return lock_id not in self.held


class ForgetsTheName(Thin):
    """The lock server is told another name of the client."""

    def steps(self) -> list[Any]:
        return [
            (event, args if lock is None else (args[0], "somebody", *args[2:]), lock)
            for event, args, lock in super().steps()
        ]


WRONG: list[tuple[type[Thin], list[str], str]] = [
    (ForgetsTheAge, ["write a"], "the lock table does not know"),
    (ForgetsTheToken, ["write a; again; write a"], "fencing tokens of n1 fall"),
    (ForgetsALock, ["write a; write b"], r"had \{.*'a'.*'b'.*\}, and has \{.*'b'.*\}"),
    (ForgetsAHolder, ["write a", "write b"], r"client-[12] had \{.*\}, and has"),
    (ForgetsParents, ["write a", "write a/1"], "client-[12] has write"),
    (ForgetsChildren, ["write a", "write a/1"], "client-[12] has write"),
    (ForgetsTheTable, ["write a; unlock b", "write a"], "client-[12] has write"),
]
NAMES = [rule.__name__ for rule, *_ in WRONG]


@pytest.mark.parametrize(("rule", "scripts", "violation"), WRONG, ids=NAMES)
def test_a_wrong_rule_is_caught(
    rule: type[Thin], scripts: list[str], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the check that is meant for it, even if nothing is compared with the world without thin locks."""
    monkeypatch.setattr(pairs, "compare", lambda found, wanted: None)
    with pytest.raises(Violation, match=violation) as caught:
        explored(scripts, rule)
    assert caught.value.schedule


@pytest.mark.parametrize(("rule", "scripts"), [each[:2] for each in WRONG], ids=NAMES)
def test_a_wrong_rule_makes_a_difference(rule: type[Thin], scripts: list[str]) -> None:
    """It is caught by the comparison, too, or before."""
    with pytest.raises(Violation):
        explored(scripts, rule)


def test_the_comparison_finds_what_no_other_check_does() -> None:
    """A name that is lost harms nobody in the simulator."""
    with pytest.raises(
        Violation, match="the lock server differs from the world without thin locks"
    ):
        explored(["write a"], ForgetsTheName)


def test_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--rule thin` explores them; of what goes wrong the turns are said."""
    command = ["sim", "explore", "--client", "write a; write b", "--rule"]
    assert main([*command, "thin"]) == 0
    assert "no violation" in capsys.readouterr().out
    monkeypatch.setitem(RULES, "forgets", THIN._replace(thin=ForgetsALock))
    assert main([*command, "forgets"]) == 1
    assert "turns: step 1, step 1\n" in capsys.readouterr().out
