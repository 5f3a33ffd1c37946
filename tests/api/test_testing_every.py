"""`locks.testing`: of equivalent schedules, `strategy="every"` runs one; the outcomes are those of all schedules."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import locks
from locks.errors import InvalidOption
from locks.testing import Simulation, simulate
from locks.testing.scenarios import every
from locks_lab.applications import agenda
from locks_lab.applications.agenda import COARSE, FINE
from tests.helpers import EXPLORE, SEED

ALL = 0  # the depth at which all steps depend on each other
MOST = 2000 if EXPLORE else 300  # schedules of a random program; larger programs are left out

Program = list[list[tuple[Any, ...]]]  # of each client, what it does


class Outcomes:
    """The outcomes of a program under all schedules that are tried.

    Args:
        program: What each client does.
        deaths: How many clients may die.
    """

    def __init__(self, program: Program, deaths: int = 0) -> None:
        self.program, self.deaths = program, deaths
        self.found: set[object] = set()
        self.sees_all = True

    def at(self, depth: int, limit: int = 100_000) -> tuple[int, set[object]]:
        """The number of schedules, and the outcomes.

        Args:
            depth: As for `every`. With `FINE`, an outcome has no order between clients' events, and
                tokens count by their order in each lock.
            limit: As for `every`.
        """
        self.found = set()
        self.sees_all = depth != FINE and self.sees_all
        summary = every(self.scenario, limit, False, 1, depth)
        return summary.schedules, self.found

    def scenario(self, simulation: Simulation) -> None:
        """One run. An outcome is all that its clients, and those who look at it afterwards, can see."""
        log: list[Any] = []
        own: list[list[Any]] = [[] for _ in self.program]
        stock: Any = {"a": 0, "b": 0}
        if not self.sees_all:
            stock = simulation.shared(stock, "stock")
        tokens: dict[Any, list[int]] = {}

        def work(number: int, acts: list[tuple[Any, ...]]) -> None:
            def note(*what: Any) -> None:
                own[number].append(what)
                if self.sees_all:
                    log.append((number, *what))

            for what, *args in acts:
                try:
                    ACTS[what](note, stock, tokens, *args)
                except (locks.DeadlockAborted, locks.LockTimeout) as error:
                    note(type(error).__name__)

        for number, acts in enumerate(self.program):
            simulation.client(work, number, acts, name=f"c{number}")
        failed = ""
        try:
            simulation.run(deaths=self.deaths)
        except Exception as error:
            failed = str(error)
        left = [str(server.table.owners) for server in simulation._application.servers.values()]
        values = tuple(stock._thing.values() if not self.sees_all else stock.values())
        reports = [
            (r.action, r.lock_id, [edge.waiter.client for edge in r.cycle])
            for r in simulation.deadlocks
        ]
        common = (failed, values, tuple(left), repr(sorted(reports)))
        if failed:  # it ended in the middle of what others did
            self.found.add((failed, repr(log)))
            return
        if self.sees_all:
            self.found.add((*common, repr(log)))
        else:
            ranks = {lock: sorted(got) for lock, got in tokens.items()}
            logs = [[_ranked(event, ranks) for event in events] for events in own]
            self.found.add((*common, repr(logs)))


def _ranked(event: tuple[Any, ...], ranks: dict[Any, list[int]]) -> tuple[Any, ...]:
    """An event; of a token, only how many of this lock are smaller."""
    if event[0] != "token":
        return event
    return (*event[:2], ranks[event[1]].index(event[2]))


def _token(note: Callable[..., None], tokens: dict[Any, list[int]], lock: Any, token: int) -> None:
    tokens.setdefault(lock, []).append(token)
    note("token", lock, token)


def _nested(note: Any, stock: Any, tokens: Any, first: str, second: str) -> None:
    """Two locks, one within the other."""
    with locks.Lock((first,)) as outer:
        _token(note, tokens, first, outer.token())
        with locks.Lock((second,)):
            note("in")


def _one(note: Any, stock: Any, tokens: Any, lock: str) -> None:
    """A lock, and what it is for."""
    with locks.Lock((lock,)):
        stock[lock] += 1
        note("has", lock)


def _both(note: Any, stock: Any, tokens: Any, ids: str, modes: list[Any], how: Any) -> None:
    """A transaction with two requests."""
    with locks.transaction(on_deadlock=how) as tx:
        for lock, mode in zip(ids, modes, strict=True):
            _token(note, tokens, lock, tx.lock((lock,), mode))
        note("both")


def _tree(note: Any, stock: Any, tokens: Any, mode: Any) -> None:
    """A table, after one of its rows."""
    with locks.transaction() as tx:
        tx.read_lock(("a", "row"))
        tx.lock(("a",), mode)
        note("table")


def _limited(note: Any, stock: Any, tokens: Any, lock: str) -> None:
    """A lock that is waited for for so long."""
    with locks.Lock((lock,), timeout=1):
        note("in time", lock)


def _try(note: Any, stock: Any, tokens: Any, lock: str) -> None:
    """A lock that is not waited for."""
    if locks.Lock((lock,)).acquire(blocking=False):
        note("at once", lock)
        locks.Lock((lock,)).release()


def _look(note: Any, stock: Any, tokens: Any, lock: str) -> None:
    """Who holds a lock."""
    note("holders", [each.client for each in locks.holders((lock,))])


def _bare(note: Any, stock: Any, tokens: Any, key: str) -> None:
    """What needs a lock, without one."""
    note("sees", stock[key])


def _pause(note: Any, stock: Any, tokens: Any, key: str) -> None:
    """A call, and only then what needs a lock: the read and the write of the planted bug are two steps."""
    before = stock[key]
    locks.holders(("other",))
    stock[key] = before + 1


ACTS: dict[str, Callable[..., None]] = {
    "nested": _nested, "one": _one, "both": _both, "tree": _tree, "limited": _limited, "try": _try, "look": _look, "bare": _bare, "pause": _pause,
}  # fmt: skip

SMALL: dict[str, Program] = {
    "one lock, two clients": [[("one", "a")]] * 2,
    "a lock and a reader without one": [[("one", "a")], [("bare", "a")]],
    "lost updates": [[("pause", "a")]] * 2,
}
LARGER: dict[str, Program] = {
    "two locks, apart": [[("one", "a")], [("one", "b")]],
    "in the same order": [[("nested", "a", "b")]] * 2,
    "a transaction and a lock": [[("both", "ab", ["read", "write"], "abort")], [("one", "a")]],
    "a lock and a look": [[("one", "a")], [("look", "a")]],
    "a time limit": [[("limited", "a")], [("one", "a")]],
    "a try": [[("try", "a")], [("one", "a")]],
    "upgrade in a tree": [[("tree", "write")], [("one", "a")]],
    "in opposite orders": [[("nested", "a", "b")], [("nested", "b", "a")]],
    "deadlock with surrender": [[("both", each, ["write", "write"], "surrender")] for each in ("ab", "ba")],
    "two upgrades in a tree": [[("tree", "write")], [("tree", "write")]],
    "three": [[("one", "a")], [("one", "a")], [("bare", "a")]],
}  # fmt: skip


def check(name: str, program: Program, limit: int = 100_000, deaths: int = 0) -> tuple[int, ...]:
    """The outcomes are the same with and without what is left out; returns the numbers of schedules."""
    outcomes = Outcomes(program, deaths)
    full, expected = outcomes.at(ALL, limit)
    coarse, found = outcomes.at(COARSE)
    assert found == expected, f"{name}: {program}"
    assert coarse <= full
    outcomes.sees_all = False
    full, expected = outcomes.at(ALL, 10 * limit)
    fine, found = outcomes.at(FINE)
    assert found == expected, f"{name}: {program}"
    assert fine <= full
    return full, coarse, fine


@pytest.mark.parametrize("name", SMALL)
def test_the_outcomes_are_those_of_all_schedules(name: str) -> None:
    """What the clients see, in which order, with which tokens, errors and deadlocks: the same set, for correct and wrong programs."""
    check(name, SMALL[name])


@pytest.mark.explore
@pytest.mark.parametrize("name", LARGER)
def test_the_outcomes_of_larger_programs(name: str) -> None:
    """Likewise with deadlocks, and with three clients."""
    check(name, LARGER[name])


@pytest.mark.explore
def test_the_outcomes_with_a_death() -> None:
    """Likewise if a client dies at any point."""
    check("a death", [[("one", "a")], [("one", "a")]], deaths=1)


def _drawn(rng: random.Random) -> Program:
    return [
        [_act(rng, rng.choice(list(ACTS))) for _ in range(rng.randint(1, 2))]
        for _ in range(rng.choice((2, 2, 3)))
    ]


def _act(rng: random.Random, what: str) -> tuple[Any, ...]:
    """Something that a client does, with what it does it to."""
    modes = ("read", "write")
    match what:
        case "nested":
            return (what, *rng.sample("ab", 2))
        case "both":
            ids, how = rng.choice(("ab", "ba")), rng.choice(("abort", "surrender"))
            return (what, ids, [rng.choice(modes), rng.choice(modes)], how)
        case "tree":
            return (what, rng.choice(modes))
        case _:
            return (what, rng.choice("ab"))


@pytest.mark.explore
@pytest.mark.parametrize("number", range(100 if EXPLORE else 5))
def test_the_outcomes_of_random_programs(number: int) -> None:
    """Likewise for programs that are drawn; the seed is in the message."""
    rng = random.Random(f"{SEED} {number}")
    while True:
        program = _drawn(rng)
        try:
            check(f"LOCKS_SEED={SEED}, {number}", program, MOST)
        except locks.MisuseError:  # too large
            continue
        return


def test_too_little_dependence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """If steps that depend on each other were taken for independent, the outcomes would be fewer."""
    outcomes = Outcomes(SMALL["lost updates"])
    _, expected = outcomes.at(ALL)
    monkeypatch.setattr(agenda, "_depend", lambda *_: False)
    _, found = outcomes.at(COARSE)
    assert found < expected


def test_a_planted_bug_is_found_however_little_is_run() -> None:
    """The orders in which an update is lost are not left out."""

    def scenario(simulation: Simulation) -> None:
        stock = simulation.shared({"a": 0}, "stock")

        def add() -> None:
            with locks.Lock(("a",), "read"):
                before = stock["a"]
            with locks.Lock(("a",)):
                stock["a"] = before + 1

        simulation.client(add)
        simulation.client(add)
        simulation.run()
        assert stock["a"] == 2

    for only_shared in (False, True):
        with pytest.raises(AssertionError):
            simulate(scenario, strategy="every", only_shared=only_shared)


def test_three_clients_and_a_lock() -> None:
    """Far fewer than the 17,130 that there are, if nothing else is shared."""

    def scenario(simulation: Simulation) -> None:
        def work() -> None:
            with locks.Lock(("a",)):
                pass

        for _ in range(3):
            simulation.client(work)
        simulation.run()

    summary = simulate(scenario, strategy="every", only_shared=True)
    assert summary.all
    assert summary.schedules == 180


@pytest.mark.parametrize("options", [{"strategy": "every", "patch": True}, {}])
def test_where_more_is_shared_than_locks(options: dict[str, Any]) -> None:
    """With `patch=True`, what is patched is shared, too; and by seeds nothing is left out. So both are refused."""
    with pytest.raises(InvalidOption, match=r"^only_shared=True is for strategy="):
        simulate(lambda _: None, only_shared=True, **options)
