"""A list of servers that changes while programs run (`locks_lab.epochs`): small worlds in every order (decision 0129)."""

from __future__ import annotations

import pytest

from locks.core.placement import place
from locks.core.rosters import Acceptor, Changer, Roster, differ_by_one
from locks.model import majority
from locks_lab.epochs.world import Rules, State, World
from locks_lab.explorer.search import visit_all
from locks_lab.explorer.shortest import shortest
from locks_lab.worlds.host import Violation

# --- Other rules --------------------------------------------------------------------------------


class NoFloor(Roster):
    """The new servers don't go on above the versions of the old ones."""

    def _next(self, floor: int) -> Roster:
        return super()._next(0)


class NoBase(Roster):
    """Programs that were cut off keep what they have by the old list."""

    def finish(self, floor: int) -> Roster:
        return super().finish(floor)._replace(base=0)


class AlwaysReady(Acceptor):
    """A server that lets the new list count though it serves programs that have not joined."""

    def prepare(self, number: int, ballot: int, seal: bool, ready: bool) -> tuple[Acceptor, bool]:
        return super().prepare(number, ballot, seal, True)


class NeverSealed(Acceptor):
    """A server that serves programs that have not joined after it has promised."""

    @property
    def serves_from(self) -> int:
        return self.roster.base


class OldBallots(Acceptor):
    """A server that accepts with smaller ballots than it has promised."""

    def accept(self, ballot: int, roster: Roster) -> tuple[Acceptor, bool]:
        return super().accept(max(ballot, self.ballot), roster)


class OneIsEnough(Changer):
    """One who changes the list without a majority of the old servers."""

    def _enough(self) -> bool:
        return bool(self.said) if self.phase != "tell" else super()._enough()


class OwnWish(Changer):
    """One who does not adopt what an older one may have decided."""

    def _goes_on(self) -> Changer:
        return Changer._goes_on(self._replace(best=None) if self.phase == "prepare" else self)


# --- What holds ---------------------------------------------------------------------------------

ONE, THREE = ("a",), ("a", "b", "c")
REPLACED = ("a", "b", "d")
WORLDS = [
    ("a holder and one that waits", World(ONE, [("b",)])),
    ("a death", World(ONE, [("b",)], deaths=1)),
    ("a new server that never answers", World(ONE, [("b",)], down=("b",))),
    ("a connection", World(ONE, [("b",)], cuts=1)),
    ("one more", World(ONE, [("a", "b")], deaths=1)),
    ("one less", World(("a", "b"), [("b",)], deaths=1)),
    ("a holder at two of three", World(THREE, [REPLACED], agents=1, deaths=1)),
]
MORE = [
    ("a restart", World(ONE, [("b",)], restarts=1)),
    ("a restart, and a connection", World(ONE, [("b",)], restarts=1, cuts=1)),
    ("two that wait", World(ONE, [("b",)], held=False)),
    ("two changes of one", World(ONE, [("b",), ("a", "b")], agents=1)),
    ("two changes of three", World(THREE, [REPLACED, (*THREE, "d")], 0, False, ballots=1)),
    ("a holder at two of three, which restart", World(THREE, [REPLACED], agents=1, restarts=1)),
    ("a server that is down is replaced", World(THREE, [REPLACED], agents=1, cuts=1, down=("c",))),
]


def listed(worlds: list[tuple[str, World]], explored: bool = False) -> list[object]:
    """Worlds as parameters of a test."""
    marks = [pytest.mark.explore] if explored else []
    return [pytest.param(world, id=name, marks=marks) for name, world in worlds]


@pytest.mark.slow
@pytest.mark.parametrize("world", [*listed(WORLDS), *listed(MORE, explored=True)])
def test_every_order(world: World) -> None:
    """In every order of events, exclusion, tokens, agreement and progress hold."""
    assert visit_all(world, world.check).states > 10


def only_new(roster: Roster) -> tuple[str, ...]:
    """Between the lists, a lock is requested on the new servers."""
    return roster.then


def only_old(roster: Roster) -> tuple[str, ...]:
    """Between the lists, a lock is requested on the old servers."""
    return roster.servers


SERVED = [
    pytest.param(Rules(nodes=only_new), True, "two agents hold the lock", id="new"),
    pytest.param(Rules(nodes=only_old), True, "two agents hold the lock", id="old"),
    pytest.param(Rules(roster=NoFloor), True, "had a larger token", id="floor"),
    pytest.param(
        Rules(roster=NoBase),
        False,
        "two agents have one token",
        id="base",
        marks=pytest.mark.explore,
    ),
    pytest.param(
        Rules(acceptor=AlwaysReady), True, "has lost its lock without a fault", id="ready"
    ),
    pytest.param(Rules(acceptor=NeverSealed), True, "has lost its lock without a fault", id="seal"),
]


@pytest.mark.parametrize(("rules", "held", "message"), SERVED)
def test_wrong_rules_of_locks(rules: Rules, held: bool, message: str) -> None:
    """A rule that is wrong in one point is caught, while two agents want the lock."""
    world = World(ONE, [("b",)], held=held, rules=rules)
    assert message in str(shortest(world, world.check).violation)


AGREED = [
    pytest.param(Rules(changer=OneIsEnough), 0, id="one is enough"),
    pytest.param(Rules(changer=OwnWish), 0, id="own wish"),
    pytest.param(Rules(acceptor=OldBallots), 0, id="old ballots"),
    pytest.param(Rules(forgets=True), 1, id="forgets", marks=pytest.mark.explore),
]


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "restarts"), AGREED)
def test_wrong_rules_of_agreement(rules: Rules, restarts: int) -> None:
    """A rule of the agreement that is wrong in one point is caught: two who change the list decide different things."""
    wants = [REPLACED, (*THREE, "d")]
    world = World(THREE, wants, agents=0, held=False, restarts=restarts, rules=rules)
    assert "are decided" in str(shortest(world, world.check).violation)


class UnsealedStart(Changer):
    """One who begins a change while there are locks by the change before, which was undone."""

    @property
    def seals(self) -> bool:
        return self.roster.is_changing and not self.goes_back


class NoBaseAtTheStart(Roster):
    """And servers go on to serve it."""

    def begin(self, wanted: tuple[str, ...], floor: int = 0) -> Roster:
        return super().begin(wanted, floor)._replace(base=self.base)


@pytest.mark.parametrize("changer", [Changer, UnsealedStart], ids=["ours", "unsealed"])
def test_two_changes_of_an_even_list(changer: type[Changer]) -> None:
    """A lock by a change that was undone, at one old server and the new one, is not met by one at the other and the next new one: so the next change waits for it."""
    rules = Rules() if changer is Changer else Rules(changer=changer, roster=NoBaseAtTheStart)
    world = World(("a", "b"), [("a", "b", each) for each in "cd"], held=False, rules=rules)

    def do(state: State, *moves: tuple[str, int, str]) -> State:
        for move in moves:
            assert move in world.moves(state), move
            state = world.after(state, move)
            world.check(state, world.moves(state))
        return state

    def change(state: State, one: Changer, number: int) -> tuple[State, Changer]:
        """Somebody changes the list, up to a number, as far as that is possible."""
        for _ in range(20):
            for at in one.asked:
                if one.roster.number < number and at in one.asked:
                    server, fact = world._question(world._at(state, at), one)
                    state, one = world._server(state, at, server), one.heard(at, fact)
        return state, one

    def locked(state: State, agent: int, *where: str) -> State:
        for at in (*where, *where):  # it learns the roster at first
            state = world.after(state, ("report", agent, at))
        state = do(state, ("begin", agent, ""))
        state = do(state, *[(kind, agent, at) for kind in ("ask", "see") for at in where])
        return do(state, *[("confirm", agent, at) for at in where])

    state = world.start()
    state, one = change(state, state.changers[0], 1)
    state = locked(world._server(state, "a", world._at(state, "a").learn(one.roster)), 0, "a", "c")
    state, one = change(state, changer((), one.roster, gives_up=True), 2)
    assert one.roster.servers == ("a", "b")
    state, one = change(state, changer(("a", "b", "d"), one.roster), 3)
    if changer is Changer:
        assert (one.phase, one.roster.number) == ("prepare", 2)
        return
    state = world._server(state, "b", world._at(state, "b").learn(one.roster))
    with pytest.raises(Violation, match="two agents hold the lock"):
        locked(state, 1, "b", "d")


def test_the_lists_differ_by_one_server_at_most() -> None:
    """Then majorities by neighbouring rosters always meet, also for each of the ids with copies; with two, they need not."""
    names = "abcdef"
    for old in (names[:1], names[:2], names[:3], names[:4]):
        for goes, comes in [(g, c) for g in ("", *old) for c in ("", "f")]:
            new = tuple(sorted({*old} - {goes} | ({comes} if comes else set())))
            if not new:
                continue
            assert differ_by_one(old, new)
            for copies in range(1, min(len(old), len(new)) + 1):
                for key in range(20):
                    groups = [place(bytes([key]), each, copies) for each in (old, new)]
                    both = {*groups[0], *groups[1]}
                    for group in groups:
                        assert majority(len(group)) + majority(len(both)) > len(both), (old, new)
    assert not differ_by_one("abc", "ade")


def test_a_change_does_not_begin_while_locks_of_the_one_before_are_left() -> None:
    """A majority of the servers of one change need not meet a majority of those of the next. So the servers are sealed for each step but back to the old list."""
    first = Roster(0, 0, 0, 0, ("a", "b")).begin(("b", "c"))
    second = first.finish(0).begin(("c", "d"))
    assert majority(len(first.places)) == majority(len(second.places)) == 2
    assert not {"a", "b"} & {"c", "d"}  # each is a majority
    assert second.base == second.number - 1
    changer = Changer(("c", "d"), first.finish(0))
    assert changer.seals
    server = Acceptor(first.finish(0))
    assert not server.prepare(2, 1, changer.seals, ready=False)[1]
    sealed, good = server.prepare(2, 1, changer.seals, ready=True)
    assert good
    assert sealed.serves_from == 2
    assert not Changer(("b", "c"), first, gives_up=True).seals


def test_a_roster_that_can_not_be() -> None:
    """A list must name each server once, have as many as there are copies, and differ by one from the other."""
    first = Roster(0, 0, 0, 2, ("a@h:1", "b@h:1"))
    assert first.is_valid
    assert first.begin(("a@h:1", "c@h:1")).is_valid
    for wrong in [
        first._replace(servers=()),
        first._replace(servers=("a@h:1", "a@h:2")),
        first._replace(copies=3),
        first._replace(wanted=("a@h:1",)),
        first._replace(base=1),
        first._replace(listed=1),
        first.begin(("a@h:1",)),
        first.begin(("c@h:1", "d@h:1")),
    ]:
        assert not wrong.is_valid, wrong
