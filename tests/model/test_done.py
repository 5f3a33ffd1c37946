"""Once for each lock id (`locks.core.done`): small worlds in every order, with the rules of the product.

Three servers, two or three runs of the same work, and a number of faults: a run dies at any point, a server drops a run's grant
(a connection is lost, also between work and mark), a server restarts without its memory. A server restarts only while all others
are complete, as in a restart of each server in turn. Each question to a server and its answer is one event; the client may go on
as soon as enough have answered, or later. One that sets a mark that it has found may read again; one that works may take note of new
grants. In all orders: at most one run succeeds, none begins after one has succeeded or was told
that the work is done, and nobody is told so of work that was not done. Rules that are wrong in one point are caught.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest

from locks.core import done
from locks.core.done import Marks, Recovery
from locks.core.facts import AskMark, Mark, MarkFact
from locks.model import majority
from locks.ranges import replace
from locks.words import AgentId
from tests.helpers import EXPLORE, SEED

NAMES = ("a", "b", "c")
ID = ("nightly",)
LONG = 1 << 40


class Server(NamedTuple):
    """A server: how often it was started, who has the lock by which grant, its mark, what others told it, and the mark in its file."""

    started: int = 1
    holder: int = -1
    since: int = 0  # how many grants there were
    token: int = 0  # of its mark; 0 if there is none
    complete: bool = True
    told: tuple[tuple[str, done.Told], ...] = ()
    before: tuple[tuple[str, int], ...] = ()
    anew: tuple[tuple[str, int], ...] = ()
    kept: int = 0  # the token of the mark in its file; 0 if there is none


Told = tuple[tuple[str, MarkFact], ...]


class Run(NamedTuple):
    """A run: reads, works, sets the mark, and has ended as it should, or not."""

    phase: str = "reads"
    token: int = 0
    value: int = 0  # the token of the mark that it sets
    grants: tuple[tuple[str, int], ...] = ()
    told: Told = ()
    had: frozenset[str] = frozenset()
    rounds: int = 0


class World(NamedTuple):
    """All of it, and how many faults may still happen."""

    servers: tuple[Server, ...]
    runs: tuple[Run, ...]
    restarts: int
    losses: int
    deaths: int
    begun: int = 0  # the last token
    worked: frozenset[int] = frozenset()  # tokens of runs whose work is done
    done: int = 0  # the token of the run that has succeeded, or of which others were told so
    wrong: str = ""
    may_restart_anew: bool = False  # also while others are not complete
    files: bool = False  # whether servers keep their marks in files


class Rules(NamedTuple):
    """The rules, each of which can be replaced by a wrong one."""

    marks: type[Marks] = Marks
    read: Callable[..., done.Reading | None] = done.read
    are_set: Callable[..., tuple[bool, set[str]]] = done.are_set
    recovery: type[Recovery] = Recovery
    sets_found: bool = True
    extended: Callable[..., dict[str, int]] = done.extended


OURS = Rules()


def begin(runs: int, restarts: int, losses: int, deaths: int, new: bool = False) -> World:
    """All servers are complete, or new."""
    return World((Server(complete=not new),) * 3, (Run(),) * runs, restarts, losses, deaths)


def late(runs: int, restarts: int, losses: int, deaths: int) -> World:
    """The first run holds the lock on two servers, and has done the work."""
    world = begin(runs, restarts, losses, deaths)
    granted = Server(holder=0, since=1)
    first = Run("sets", 1, 1, (("a", 1), ("b", 1)))
    return world._replace(
        servers=(granted, granted, Server()),
        runs=(first, *world.runs[1:]),
        begun=1,
        worked=frozenset((1,)),
    )


def mark(token: int) -> Mark:
    """The mark of a run."""
    return Mark(ID, token, 0, LONG, "")


def ask(
    world: World, rules: Rules, run: int, at: int, value: int, since: int
) -> tuple[World, MarkFact]:
    """A question to a server, and its answer."""
    server = world.servers[at]
    own = server.since if server.holder == run else 0
    kept = server.kept if world.files else -1
    fact, token = answer(rules.marks, server.token, kept, own, server.complete, value, since)
    return changed(world, at, server._replace(token=token)), fact


@cache
def answer(
    kind: type[Marks], token: int, kept: int, own: int, complete: bool, value: int, since: int
) -> tuple[MarkFact, int]:
    """What a server with a mark, or without one, answers; and the token of its mark afterwards."""
    marks = kind()
    if token:
        marks.add(mark(token), 0)
    if kept >= 0:
        marks.kept = marks.number if kept == token else 0
    question = AskMark(AgentId(1, "x", 0), ID, 0, since, mark(value) if value else None)
    fact = marks.answer(question, own, complete, NAMES, 0)
    return fact, max((each.token for each in marks), default=0)


def changed(world: World, at: int, server: Server) -> World:
    """With another server."""
    return world._replace(servers=(*world.servers[:at], server, *world.servers[at + 1 :]))


def went(world: World, at: int, run: Run, **others: Any) -> World:
    """With another run."""
    return world._replace(runs=(*world.runs[:at], run, *world.runs[at + 1 :]), **others)


def nexts(world: World, rules: Rules) -> Iterator[World]:
    """What can happen next."""
    for at, server in enumerate(world.servers):
        yield from of_server(world, rules, at, server)
    for at, run in enumerate(world.runs):
        yield from of_run(world, rules, at, run)


def of_server(world: World, rules: Rules, at: int, server: Server) -> Iterator[World]:
    """Grants, lost grants, restarts, and recovery."""
    if server.holder < 0:
        for index, run in enumerate(world.runs):
            if run.phase in ("reads", "works", "sets"):
                yield changed(world, at, server._replace(holder=index, since=server.since + 1))
    else:
        dropped = changed(world, at, server._replace(holder=-1))
        if world.runs[server.holder].phase in ("dead", "over"):
            yield dropped
        elif world.losses:
            yield dropped._replace(losses=world.losses - 1)
    others = [each for index, each in enumerate(world.servers) if index != at]
    if world.files:
        if server.kept != server.token:
            yield changed(world, at, server._replace(kept=server.token))
        if world.restarts:
            again = Server(server.started + 1, since=server.since, complete=server.complete)
            again = again._replace(token=server.kept, kept=server.kept)
            yield changed(world._replace(restarts=world.restarts - 1), at, again)
    elif world.restarts and (world.may_restart_anew or all(each.complete for each in others)):
        new = Server(server.started + 1, since=server.since, complete=False)
        yield changed(world._replace(restarts=world.restarts - 1), at, new)
    if not server.complete:
        told = dict(server.told)
        for other, name in enumerate(NAMES):
            if other != at and name not in told:
                there = world.servers[other]
                mine = max(server.token, there.token)
                tells = done.Told(there.started, there.complete, there.anew)
                heard = (*server.told, (name, tells))
                yield changed(world, at, server._replace(token=mine, told=tuple(sorted(heard))))
        if told:
            over = recovered(rules.recovery, NAMES[at], server)
            if over.complete or len(told) == len(NAMES) - 1:
                yield changed(world, at, over)


@cache
def recovered(kind: type[Recovery], name: str, server: Server) -> Server:
    """A server after a round of its recovery."""
    recovery = kind(name, server.started, NAMES)
    recovery._incomplete = dict(server.before)
    recovery.round_over(dict(server.told))
    before = () if recovery.complete else tuple(sorted(recovery._incomplete.items()))
    return server._replace(complete=recovery.complete, told=(), before=before, anew=recovery.anew)


def of_run(world: World, rules: Rules, at: int, run: Run) -> Iterator[World]:
    """The steps of a run, and its death."""
    if run.phase in ("dead", "over"):
        return
    if world.deaths:
        yield went(world, at, Run("dead"), deaths=world.deaths - 1)
    told = dict(run.told)
    if run.phase == "reads":
        for index, name in enumerate(NAMES):
            if name not in told and world.servers[index].holder == at:
                after, fact = ask(world, rules, at, index, 0, 0)
                yield went(after, at, run._replace(told=tuple(sorted([*run.told, (name, fact)]))))
        found = rules.read(NAMES, told)
        if found is None:
            return
        grants = tuple(sorted(found.grants.items()))
        if found.mark is None:
            token = world.begun + 1
            holds = sum(
                world.servers[NAMES.index(name)][1:3] == (at, since) for name, since in grants
            )
            wrong = ""
            if world.done and holds >= majority(len(NAMES)):
                wrong = "a run that holds the lock begins, although the work is done"
            yield went(world, at, Run("works", token, token, grants), begun=token, wrong=wrong)
        elif rules.sets_found:
            yield went(world, at, Run("sets", 0, found.mark.token, grants))
        else:
            yield succeeded(world, at, found.mark.token)
    elif run.phase == "works":
        facts = {name: ask(world, rules, at, each, 0, 0)[1] for each, name in enumerate(NAMES)}
        grants = tuple(sorted(rules.extended(NAMES, dict(run.grants), facts, facts).items()))
        if grants != run.grants:
            yield went(world, at, run._replace(grants=grants))
        yield went(world, at, run._replace(phase="sets"), worked=world.worked | {run.token})
    else:
        grants_of = dict(run.grants)
        for index, name in enumerate(NAMES):
            if name in grants_of and name not in told:
                after, fact = ask(world, rules, at, index, run.value, grants_of[name])
                if fact.since == grants_of[name] and fact.mark is None:
                    yield after  # it answers when its mark is kept
                    continue
                yield went(after, at, run._replace(told=tuple(sorted([*run.told, (name, fact)]))))
        if told:
            is_set, had = rules.are_set(NAMES, grants_of, run.had, told)
            if is_set:
                yield succeeded(world, at, run.value)
            elif run.rounds < 2:
                again = run._replace(told=(), had=frozenset(had), rounds=run.rounds + 1)
                yield went(world, at, again)
            if not is_set and not run.token:  # its grants may be over
                yield went(world, at, Run())


def succeeded(world: World, at: int, value: int) -> World:
    """A run has set its own mark, or tells that the work is done by another one."""
    wrong = ""
    if world.done not in (0, value):
        wrong = "two runs succeed"
    if value not in world.worked:
        wrong = "work counts as done that was not done"
    return went(world, at, Run("over"), done=value, wrong=wrong)


def explore(world: World, rules: Rules = OURS) -> tuple[str, int, bool]:
    """Go through all worlds; return what is wrong, how many there are, and whether the work can be done."""
    seen, todo, can_be_done = {world}, [world], False
    rng = random.Random(SEED)
    while todo:
        ways = list(nexts(todo.pop(), rules))
        rng.shuffle(ways)  # what is wrong is found sooner
        for after in ways:
            if after.wrong:
                return after.wrong, len(seen), can_be_done
            if after not in seen:
                can_be_done |= after.done > 0
                seen.add(after)
                todo.append(after)
    return "", len(seen), can_be_done


def walk(world: World, rules: Rules, rng: random.Random, most: int = 400) -> World:
    """Go one way through the worlds, to its end or to what is wrong."""
    for _ in range(most):
        after = list(nexts(world, rules))
        if world.wrong or not after:
            break
        world = rng.choice(after)
    return world


def over(runs: int, restarts: int) -> World:
    """The first run has succeeded, with marks on two servers, which keep them in files."""
    world = late(runs, restarts, 0, 0)
    has = Server(since=1, token=1, kept=1)
    first = Run("over")
    return world._replace(
        servers=(has, has, Server()), runs=(first, *world.runs[1:]), done=1, files=True
    )


def working(runs: int, restarts: int) -> World:
    """The first run holds the lock on two servers, and works."""
    world = late(runs, restarts, 0, 0)
    return world._replace(
        runs=(world.runs[0]._replace(phase="works"), *world.runs[1:]), worked=frozenset()
    )


WORLDS = {
    "a run dies": begin(2, 0, 0, 1),
    "a grant is lost between work and mark": late(2, 0, 1, 0),
    "a server restarts while a run works": working(2, 1),
}
FILES = late(2, 1, 0, 0)._replace(files=True)
MORE = {
    "a server restarts, with files": FILES,
    "all servers restart after the work, with files": over(2, 3),
    "a server restarts after the work": late(2, 1, 0, 0),
    "a grant is lost": begin(2, 0, 1, 0),
    "a server restarts": begin(2, 1, 0, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        "a grant is lost between work and mark",
        pytest.param("a run dies", marks=pytest.mark.explore),
        pytest.param("a server restarts while a run works", marks=pytest.mark.explore),
        *(MORE if EXPLORE else ()),
    ],
)
def test_no_second_success_in_any_order(faults: str) -> None:
    """Faults at any point: at most one run succeeds, and none that holds the lock begins afterwards."""
    wrong, count, can_be_done = explore((WORLDS | MORE)[faults])
    assert (wrong, can_be_done) == ("", True)
    assert count > 1_000


@pytest.mark.slow
def test_no_second_success_in_random_worlds() -> None:
    """Three runs, with many faults of every kind, also on servers that are new: the same."""
    rng = random.Random(SEED)
    done_in = 0
    worlds = 20_000 if EXPLORE else 200
    for number in range(worlds):
        first = late(3, 3, 3, 1) if number % 3 else begin(3, 3, 3, 1, new=number % 2 == 0)
        world = walk(first, OURS, rng)
        assert world.wrong == ""
        assert walk(first._replace(files=True), OURS, rng).wrong == ""
        done_in += world.done > 0
    assert done_in > worlds // 10


class AcceptsAlways(Marks):
    """A server that accepts a mark from a run that has lost the lock."""

    def accepts(self, question: AskMark, since: int) -> bool:
        return True


class AnswersBeforeItIsKept(Marks):
    """A server that answers before its mark is in its file."""

    def is_kept(self, mark: Mark) -> bool:
        return True


class AfterOne(Recovery):
    """A server that is complete as soon as one other server has told its marks."""

    def round_over(self, told: Mapping[str, done.Told]) -> None:
        self.complete |= any(each.complete for each in told.values())


def read_incomplete(servers: Any, told: Mapping[str, MarkFact]) -> done.Reading | None:
    """Count servers that have forgotten."""
    return done.read(servers, {name: replace(fact, complete=True) for name, fact in told.items()})


def set_at_once(servers: Any, grants: Any, had: Any, told: Any) -> tuple[bool, set[str]]:
    """Ask only once whether a majority has the mark."""
    _, same = done.are_set(servers, grants, had, told)
    return len(same) >= 2, same


def set_without_lock(servers: Any, grants: Any, had: Any, told: Any) -> tuple[bool, set[str]]:
    """Count servers that have taken the lock away."""
    kept = {name: replace(fact, since=grants[name]) for name, fact in told.items()}
    return done.are_set(servers, grants, had, kept)


def set_by_one(servers: Any, grants: Any, had: Any, told: Any) -> tuple[bool, set[str]]:
    """Do without a majority."""
    return done.are_set(servers[:1], grants, had, told)


def extended_anyhow(servers: Any, grants: Any, first: Any, second: Any) -> dict[str, int]:
    """Take note of grants although most of the earlier ones are over."""
    return {**grants, **{name: fact.since for name, fact in second.items() if fact.since}}


LARGE = ("a mark that is asked for only once", "a mark that is not kept")
WRONG = {
    "a mark without the lock": (
        Rules(marks=AcceptsAlways, are_set=set_without_lock),
        begin(2, 0, 1, 0),
    ),
    "a server that has forgotten counts": (Rules(read=read_incomplete), late(2, 1, 0, 0)),
    "complete after one answer": (Rules(recovery=AfterOne), late(2, 1, 0, 0)),
    "a mark that is asked for only once": (Rules(are_set=set_at_once), late(2, 1, 0, 0)),
    "a mark that is not kept": (Rules(marks=AnswersBeforeItIsKept), FILES),
    "a mark on one server": (Rules(are_set=set_by_one), begin(3, 0, 0, 0)),
    "a mark that is found is not set": (Rules(sets_found=False), begin(3, 0, 0, 1)),
    "new grants count though the lock was lost": (
        Rules(extended=extended_anyhow),
        begin(2, 0, 2, 0),
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.explore if n in LARGE else ()) for n in WRONG]
)
def test_wrong_rules_are_caught(name: str) -> None:
    """Each wrong rule leads to a second success, or to a run after the work is done, in some order."""
    rules, world = WRONG[name]
    assert explore(world, rules)[0]


@pytest.mark.explore
def test_servers_become_complete() -> None:
    """New servers become complete, whichever of them restarts at any time; from each state, there is a way."""
    world = begin(0, 1, 0, 0, new=True)._replace(may_restart_anew=True)
    ways: dict[World, list[World]] = {}
    todo = [world]
    while todo:
        each = todo.pop()
        if each not in ways:
            ways[each] = list(nexts(each, OURS))
            todo += ways[each]
    good = {each for each in ways if all(server.complete for server in each.servers)}
    before: dict[World, list[World]] = {}
    for each, after in ways.items():
        for one in after:
            before.setdefault(one, []).append(each)
    todo = list(good)
    while todo:
        for each in before.get(todo.pop(), ()):
            if each not in good:
                good.add(each)
                todo.append(each)
    assert ways.keys() == good
    assert len(ways) > 100
