"""A list of servers that changes while programs run (`locks_lab.epochs`): small worlds in every order (decision 0128)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from locks_lab.epochs.machines import Changer, Config, Entry, Promise, Server, Value, most
from locks_lab.epochs.world import Rules, World
from locks_lab.explorer.search import visit_all
from locks_lab.explorer.shortest import shortest

# --- Other rules --------------------------------------------------------------------------------


class OnlyNew(Config):
    """Between the lists, a majority of the new one is enough."""

    def enough(self, those: Iterable[int]) -> bool:
        return most(self.new if self.step else self.old, those)


class OnlyOld(Config):
    """Between the lists, a majority of the old one is enough."""

    def enough(self, those: Iterable[int]) -> bool:
        return most(self.old if self.step < 2 else self.new, those)


class AlwaysReady(Server):
    """A server that lets the new list count though holders have majorities of the old one only."""

    def ready(self) -> bool:
        return True


class NoFloor(Config):
    """The new servers don't go on above the versions of the old ones."""

    def then(self, value: Value) -> Config:
        return Config.then(self, value._replace(floor=0))


class GrantsToAll(Server):
    """A server that knows of both lists and grants to agents that don't."""

    def may_have(self, entry: Entry) -> bool:
        return True


class OneIsEnough(Changer):
    """One who changes the list without a majority of the old servers."""

    def enough(self) -> bool:
        return bool(self.said) if self.phase != "tell" else super().enough()


class OwnWish(Changer):
    """One who does not adopt what an older one may have decided."""

    def value(self) -> Value | None:
        return self._replace(best=None)._own() if self.phase == "prepare" else None

    def _own(self) -> Value | None:
        return Changer.value(self)


class OldBallots(Server):
    """A server that accepts with smaller ballots than it has promised."""

    def accept(self, step: int, ballot: int, value: Value) -> tuple[Server, Promise]:
        return super().accept(step, max(ballot, self.ballot), value)


# --- What holds ---------------------------------------------------------------------------------

ONE, THREE = (0,), (0, 1, 2)
WORLDS = [
    ("a holder and one that waits", World(ONE, [(1,)])),
    ("a death", World(ONE, [(1,)], deaths=1)),
    ("a new server that never answers", World(ONE, [(1,)], down=(1,))),
    ("a holder at two of three", World(THREE, [(3,)], agents=1, deaths=1)),
    ("a holder, and two of three stay", World(THREE, [(1, 2, 3)], agents=1)),
]
MORE = [
    ("two that wait", World(ONE, [(1,)], held=False)),
    ("a connection", World(ONE, [(1,)], cuts=1)),
    ("a change that another one undoes", World(ONE, [(1,), (0,)], rounds=1)),
    ("a restart", World(THREE, [(3,)], agents=0, held=False, restarts=1)),
    ("a restart, and a holder", World(THREE, [(3,)], agents=1, restarts=1, rounds=1)),
    ("two changes", World(THREE, [(3,), (4,)], agents=0, held=False, rounds=1)),
]


def listed(worlds: list[tuple[str, World]], explored: bool = False) -> list[object]:
    """Worlds as parameters of a test."""
    marks = [pytest.mark.explore] if explored else []
    return [pytest.param(world, id=name, marks=marks) for name, world in worlds]


@pytest.mark.parametrize("world", [*listed(WORLDS), *listed(MORE, explored=True)])
def test_every_order(world: World) -> None:
    """In every order of events, exclusion, tokens, agreement and progress hold."""
    assert visit_all(world, world.check).states > 10


SERVED: list[tuple[Rules, str]] = [
    (Rules(config=OnlyNew), "two agents hold the lock"),
    (Rules(config=OnlyOld), "has lost its lock without a fault"),
    (Rules(server=AlwaysReady), "has lost its lock without a fault"),
    (Rules(config=NoFloor), "had a larger token"),
    (Rules(server=GrantsToAll), "has lost its lock without a fault"),
]


@pytest.mark.parametrize(("rules", "message"), SERVED, ids=["new", "old", "ready", "floor", "all"])
def test_wrong_rules_of_locks(rules: Rules, message: str) -> None:
    """A rule that is wrong in one point is caught, while one agent holds the lock and another one wants it."""
    world = World(ONE, [(1,)], rules=rules)
    assert message in str(shortest(world, world.check).violation)


AGREED = [
    pytest.param(Rules(changer=OneIsEnough), 0, id="one is enough"),
    pytest.param(Rules(changer=OwnWish), 0, id="own wish"),
    pytest.param(Rules(server=OldBallots), 0, id="old ballots"),
    pytest.param(Rules(recovers=False), 1, id="forgets", marks=pytest.mark.explore),
]


@pytest.mark.parametrize(("rules", "restarts"), AGREED)
def test_wrong_rules_of_agreement(rules: Rules, restarts: int) -> None:
    """A rule of the agreement that is wrong in one point is caught: two who change the list decide different things."""
    world = World(
        THREE, [(3,), (4,)], agents=0, held=False, rounds=1, restarts=restarts, rules=rules
    )
    assert "are decided" in str(shortest(world, world.check).violation)
