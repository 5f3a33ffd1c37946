"""What parties do at a barrier, in small worlds: every order of messages, with deaths and time-outs at every point.

The parties are the real ones (`locks.core.barrier`), at a naive lock table with the rule of the real one. Each
sends its messages in their order; which party's arrives next is open. What the lock server answers is taken in at once: an
answer that is late is as good as a next message that is late.

In some worlds the barrier moves to another server, which each party notices at some time (decision 0129). Its ids there have another root, so what
happens at one place does not concern the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from locks.core import barrier as protocol
from locks.core.barrier import (
    Await,
    AwaitCall,
    Begin,
    Broken,
    End,
    Enter,
    Leave,
    Look,
    Open,
    Outcome,
    Passed,
    Round,
    Stand,
    Step,
    TimedOut,
)
from locks.core.server.table import LockTable
from locks.model import AgentId, Contender, LockId, Mode
from tests.helpers import EXPLORE

ROOT = protocol.root_of(("b",))
THERE = protocol.root_of(("b", "moved"))
Message = tuple[Any, ...]
Attend = Callable[[LockId, int], protocol.Party]


class Request(NamedTuple):
    """One request in the table."""

    party: int
    agent: AgentId
    lock_id: LockId
    mode: Mode
    granted: bool = False


class Granted(NamedTuple):
    """What a party was granted, with the versions of the grants."""

    grants: tuple[tuple[LockId, int], ...]


class Party(NamedTuple):
    """One party.

    Attributes:
        parties: How many it says that have to come.
        visits: How often it will come after this time.
        history: What it was told in this visit: by that it is where it is.
        waits: Whether it has asked for what it waits for.
        agents: How many transactions it has begun.
        mutex: That by which it enters the mutex.
        standing: That with which it waits.
        round: In which round that is.
        sent: What did not arrive yet.
        grants: What it was granted.
        called: Whether it was told that it is called.
        state: `"here"`, `"dead"` (not noticed yet), or `"gone"`.
        root: Where it is.
        moved: Whether it has noticed that the barrier has moved.
    """

    parties: int
    visits: int = 0
    history: tuple[Any, ...] = ()
    waits: bool = False
    agents: int = 0
    mutex: AgentId | None = None
    standing: AgentId | None = None
    round: LockId | None = None
    sent: tuple[Message, ...] = ()
    grants: Granted = Granted(())
    called: bool = False
    state: str = "here"
    root: LockId = ROOT
    moved: bool = False

    @property
    def must_leave(self) -> bool:
        """Whether it is not where the barrier is, as far as it knows."""
        return self.moved and self.root == ROOT


class World(NamedTuple):
    """All parties, the lock table, and what came of it.

    Attributes:
        deaths: How many may die.
        delays: How many times the time of one may be over.
        hung: Whether the mutex may not be had in time.
        moves: Whether the barrier moves.
        results: The round, the party, its visit, and the outcome.
        full: Rounds of which the host saw all, with these.
    """

    parties: tuple[Party, ...]
    deaths: int = 0
    delays: int = 0
    hung: bool = False
    moves: bool = False
    table: tuple[Request, ...] = ()
    watches: tuple[tuple[int, LockId], ...] = ()
    results: frozenset[tuple[LockId | None, int, int, Outcome | str]] = frozenset()
    full: frozenset[tuple[LockId, frozenset[int]]] = frozenset()


class Violation(AssertionError):
    """Something is not as it must be."""


class Explorer:
    """Explores worlds.

    Args:
        attend: What parties do; wrong ones are to be caught.

    Attributes:
        ends: What came of it: the kinds of outcomes, and how often.
    """

    def __init__(self, attend: Attend = protocol.attend) -> None:
        @cache
        def step_after(root: LockId, parties: int, history: tuple[Any, ...]) -> Step | Outcome:
            steps = attend(root, parties)
            try:
                step = next(steps)
                for told in history:
                    answer = dict(told.grants) if isinstance(told, Granted) else told
                    step = steps.send(answer)
            except StopIteration as done:
                outcome: Outcome = done.value
                return outcome
            return step

        self._step_after = step_after
        self.ends: Counter[str] = Counter()

    def explore(self, world: World) -> int:
        """Look at every state; return how many there are."""
        for number in range(len(world.parties)):
            world = self._go_on(world, number)
        seen, left = {_canonical(world)}, [_canonical(world)]
        while left:
            world = left.pop()
            moves = list(self._moves(world))
            if not any(must for must, _ in moves):
                self._check_end(world)
            for _, then in moves:
                then = _canonical(then)
                if then not in seen:
                    seen.add(then)
                    left.append(then)
        return len(seen)

    def _step(self, party: Party) -> Step | Outcome:
        return self._step_after(party.root, party.parties, party.history)

    def _moves(self, world: World) -> Iterator[tuple[bool, World]]:
        """What can happen, and whether it must at some time."""
        for number, party in enumerate(world.parties):
            if party.sent and _changes_nothing(world, party):  # then it may as well be the next
                yield True, self._arrive(world, number)
                return
        for number, party in enumerate(world.parties):
            if party.sent:
                yield True, self._arrive(world, number)
            if party.state == "here":
                yield from self._misfortunes(world, number)
                if world.moves and not party.moved:
                    yield True, self._go_on(_with(world, number, moved=True), number)
            elif party.state == "dead":
                mine = {each.agent for each in world.table if each.party == number}
                for agent in mine:  # in any order
                    yield True, self._remove(world, agent)
                if not mine:
                    result = (party.round, number, party.visits, "died")
                    done = world._replace(results=world.results | {result})
                    yield True, _with(done, number, state="gone")

    def _misfortunes(self, world: World, number: int) -> Iterator[tuple[bool, World]]:
        party = world.parties[number]
        step = self._step(party)
        if world.deaths:
            # One that is leaving may still be counted where it was.
            turns = [
                e.lock_id
                for e in world.table
                if e.party == number and e.lock_id[-2:-1] == ("turnstile",)
            ]
            of = party.round if party.round or not turns else (*turns[0][:-2], "host")
            less = world._replace(deaths=world.deaths - 1)
            yield False, _with(less, number, sent=(), state="dead", round=of)
        moment = isinstance(step, Await) and step.patience == "moment"
        if moment or (world.delays and isinstance(step, Await | AwaitCall)):
            late = world if moment else world._replace(delays=world.delays - 1)
            answer = False if isinstance(step, AwaitCall) else Granted(())
            yield moment, self._tell(late, number, answer)
        if world.hung and isinstance(step, Enter):
            gone = [("remove", party.mutex)]
            late = _with(world._replace(hung=False), number, sent=(*party.sent, *gone))
            yield False, self._tell(late, number, False)

    def _check_end(self, world: World) -> None:
        """Nothing more happens by itself: is all as it must be?"""
        waiting = [party for party in world.parties if party.state == "here"]
        for party in waiting:
            if isinstance(self._step(party), Enter | Look):
                raise Violation(f"somebody waits for the mutex for ever: {world}")
        if waiting and len(waiting) >= waiting[0].parties:
            raise Violation(f"all are there, and nobody passes: {world}")
        passed: dict[LockId | None, dict[int, int]] = {}
        lost: dict[LockId | None, set[int]] = {}
        for of, number, _, outcome in world.results:
            self.ends[outcome if isinstance(outcome, str) else type(outcome).__name__] += 1
            if isinstance(outcome, Passed):
                passed.setdefault(of, {})[number] = outcome.number
            elif not isinstance(outcome, TimedOut):
                lost.setdefault(of, set()).add(number)
        full = dict(world.full)
        for of, numbers in passed.items():
            assert of is not None
            if of not in full:
                raise Violation(f"somebody has passed, and all were never there: {world}")
            if numbers.keys() | lost.get(of, set()) & full[of] != full[of]:
                raise Violation(f"some have passed, and not all who were there: {world}")
            if len(set(numbers.values())) < len(numbers):
                raise Violation(f"two have the same number: {world}")

    # --- The lock server

    def _arrive(self, world: World, number: int) -> World:
        party = world.parties[number]
        (what, *args), rest = party.sent[0], party.sent[1:]
        world = _with(world, number, sent=rest)
        if what == "request":
            world = self._grant(world._replace(table=(*world.table, Request(number, *args))))
            return self._call(world)
        if what == "remove":
            return self._remove(world, *args)
        if what == "release":
            kept = [each for each in world.table if (each.agent, each.lock_id) != tuple(args)]
            return self._grant(world._replace(table=tuple(kept)))
        if what == "watch":
            return self._call(world._replace(watches=(*world.watches, (number, args[0]))))
        assert what == "look"
        depth = len(party.root)
        here = [each for each in world.table if each.lock_id[:depth] == party.root]
        seen = tuple(map(_contender, here))
        there = protocol.present_round(party.root, seen)
        has_mutex = any(each.agent == party.mutex and each.granted for each in world.table)
        if there is not None and there.host == party.standing and has_mutex and there.is_full(seen):
            of = there.turnstile
            who = frozenset(e.party for e in world.table if e.lock_id[: len(of)] == of)
            world = world._replace(full=world.full | {(there.host_lock, who)})
        return self._tell(world, number, seen)

    def _remove(self, world: World, agent: AgentId) -> World:
        kept = tuple(each for each in world.table if each.agent != agent)
        return self._grant(world._replace(table=kept))

    def _grant(self, world: World) -> World:
        """Grant what can be, and tell all of them."""
        table = list(world.table)
        granted = []
        for index, each in enumerate(table):
            if not each.granted and not any(
                _conflict(each, other)
                for at, other in enumerate(table)
                if other.granted or at < index
            ):
                table[index] = each._replace(granted=True)
                granted.append(each)
        world = world._replace(table=tuple(table))
        newest = max((v for party in world.parties for _, v in party.grants.grants), default=0)
        for version, each in enumerate(granted, newest + 1):
            party = world.parties[each.party]
            if each.agent == party.standing:
                known = Granted((*party.grants.grants, (each.lock_id, version)))
                world = _with(world, each.party, grants=known)
        for each in granted:
            party = world.parties[each.party]
            if party.state == "here":
                if each.agent == party.mutex and isinstance(self._step(party), Enter):
                    world = self._tell(world, each.party, True)
                else:
                    world = self._go_on(world, each.party)
        return world

    def _call(self, world: World) -> World:
        """Tell the hosts that are called."""
        for number, watched in world.watches:
            if any(each.lock_id == watched for each in world.table):
                world = self._go_on(_with(world, number, called=True), number)
        return world

    # --- A party

    def _tell(self, world: World, number: int, answer: Any) -> World:
        history = (*world.parties[number].history, answer)
        return self._go_on(_with(world, number, history=history, waits=False), number)

    def _go_on(self, world: World, number: int) -> World:
        """A party goes on as far as it can without being told anything."""
        while True:
            party = world.parties[number]
            step = self._step(party)
            if party.state != "here" or (party.waits and isinstance(step, Enter | Look)):
                return world
            if isinstance(step, Outcome):
                return self._over(world, number, step)
            new = AgentId(party.agents + 1, str(number), 0)
            if isinstance(step, Enter):
                return _send(
                    world,
                    number,
                    ("request", new, (*party.root, "mutex"), "write"),
                    waits=True,
                    mutex=new,
                    agents=party.agents + 1,
                )
            if isinstance(step, Look):
                return _send(world, number, ("look",), waits=True)
            answer: Any = None
            if isinstance(step, Await):
                answer = Granted(tuple(g for g in party.grants.grants if g[0] in step.wanted))
                is_over = party.must_leave and step.patience == "deadline"
                if not answer.grants and step.patience != "none" and not is_over:
                    return world
            elif isinstance(step, AwaitCall):
                answer = True
                if not party.called and party.must_leave and party.waits:
                    answer = False
                elif not party.called:
                    if party.waits:
                        return world
                    return _send(world, number, ("watch", step.call), waits=True)
            elif isinstance(step, Begin):
                answer = new
                world = _with(world, number, standing=new, agents=party.agents + 1)
            elif isinstance(step, Stand):
                asked = [("request", party.standing, *each) for each in step.wanted]
                stands = any("turnstile" in lock_id for lock_id, _ in step.wanted)
                of = next(lock_id for lock_id, _ in step.wanted if lock_id[-1] == "host")
                world = _send(world, number, *asked, round=of if stands else None)
            elif isinstance(step, Leave):
                world = _send(world, number, ("remove", party.mutex))
            elif isinstance(step, Open):
                world = _send(world, number, ("release", party.standing, step.turnstile))
            else:
                assert isinstance(step, End)  # and it begins anew
                root = THERE if party.must_leave else party.root
                world = self._end(world, number)
                world = _with(world, number, history=(), waits=False, root=root)
                continue
            history = (*world.parties[number].history, answer)
            world = _with(world, number, history=history, waits=False)

    def _over(self, world: World, number: int, outcome: Outcome) -> World:
        party = world.parties[number]
        if party.must_leave and isinstance(outcome, TimedOut):
            world = self._end(world, number)
            return self._go_on(_with(world, number, history=(), waits=False, root=THERE), number)
        told = TimedOut() if isinstance(outcome, TimedOut) else outcome
        result = (party.round, number, party.visits, told)
        world = self._end(world._replace(results=world.results | {result}), number)
        if not party.visits or not isinstance(outcome, Passed):
            return _with(world, number, state="gone", history=())
        world = _with(world, number, history=(), waits=False, visits=party.visits - 1)
        return self._go_on(world, number)

    def _end(self, world: World, number: int) -> World:
        party = world.parties[number]
        ends = [("remove", agent) for agent in (party.standing, party.mutex) if agent is not None]
        watches = tuple(each for each in world.watches if each[0] != number)
        return _send(
            world._replace(watches=watches),
            number,
            *ends,
            standing=None,
            mutex=None,
            round=None,
            grants=Granted(()),
            called=False,
        )


def _changes_nothing(world: World, party: Party) -> bool:
    """Whether nobody can tell when the next message of a party arrives."""
    what, agent, *_ = *party.sent[0], None
    if what == "remove":
        return all(each.agent != agent for each in world.table)
    is_host = (
        party.round is not None
        and party.standing is not None
        and party.round[-4:-1] == party.standing
    )
    return (
        what == "request" and is_host and agent == party.standing
    )  # in the mutex, with ids that nobody knows


def _with(world: World, number: int, **changes: Any) -> World:
    parties = list(world.parties)
    parties[number] = parties[number]._replace(**changes)
    return world._replace(parties=tuple(parties))


def _send(world: World, number: int, *messages: Message, **changes: Any) -> World:
    return _with(world, number, sent=(*world.parties[number].sent, *messages), **changes)


def _conflict(one: Request, other: Request) -> bool:
    a, b = one.lock_id, other.lock_id
    related = a[: len(b)] == b[: len(a)]
    return one.agent != other.agent and related and "write" in (one.mode, other.mode)


def _contender(each: Request) -> Contender:
    return Contender(each.agent, "", each.lock_id, each.mode, each.granted, 0)


def _canonical(world: World) -> World:
    """The same world with the smallest versions."""
    versions = {v for party in world.parties for _, v in party.grants.grants}
    for party in world.parties:
        for told in party.history:
            if isinstance(told, Granted):
                versions |= {version for _, version in told.grants}
    rank = {version: number for number, version in enumerate(sorted(versions), 1)}
    if all(version == number for version, number in rank.items()):
        return world

    def ranked(granted: Granted) -> Granted:
        return Granted(tuple((lock_id, rank[version]) for lock_id, version in granted.grants))

    parties = [
        party._replace(
            grants=ranked(party.grants),
            history=tuple(ranked(t) if isinstance(t, Granted) else t for t in party.history),
        )
        for party in world.parties
    ]
    return world._replace(parties=tuple(parties))


def world(parties: int, visits: list[int], **options: Any) -> World:
    """A world of parties, each with how often it comes."""
    return World(tuple(Party(parties, number - 1) for number in visits), **options)


SMALL: dict[str, tuple[World, set[str]]] = {
    "two": (world(2, [1, 1]), {"Passed"}),
    "two, and one dies": (world(2, [1, 1], deaths=1), {"Passed", "died"}),
    "two, and one is late": (world(2, [1, 1], delays=1), {"Passed", "TimedOut"}),
    "two, and both are late": (world(2, [1, 1], delays=2), {"Passed", "TimedOut"}),
    "two, and the mutex is not to be had": (
        world(2, [1, 1], delays=1, hung=True),
        {"Passed", "TimedOut", "Broken"},
    ),
    "two come twice": (world(2, [2, 2]), {"Passed"}),
    "two come twice, and one dies": (world(2, [2, 2], deaths=1), {"Passed", "died"}),
    "one too many": (world(2, [1, 1, 1]), {"Passed"}),
    "three": (world(3, [1, 1, 1]), {"Passed"}),
    "two, and the barrier moves": (world(2, [1, 1], moves=True), {"Passed"}),
}
LARGE = {
    "two, of whom one dies, and the barrier moves": (
        world(2, [1, 1], deaths=1, moves=True),
        {"Passed", "died"},
    ),
    "three, and one dies": (world(3, [1, 1, 1], deaths=1), {"Passed", "died"}),
    "three, and one is late": (world(3, [1, 1, 1], delays=1), {"Passed", "TimedOut"}),
    "two come twice, and the barrier moves": (world(2, [2, 2], moves=True), {"Passed"}),
    "three, and the barrier moves": (world(3, [1, 1, 1], moves=True), {"Passed"}),
    "one too many, and the barrier moves": (world(2, [1, 1, 1], moves=True), {"Passed"}),
    "one too many, and one dies": (world(2, [1, 1, 1], deaths=1), {"Passed", "died"}),
    "one too many, and one is late": (world(2, [1, 1, 1], delays=1), {"Passed", "TimedOut"}),
}
HUGE = {
    "three, of whom one dies and one is late": (
        world(3, [1, 1, 1], deaths=1, delays=1),
        {"Passed", "died", "TimedOut"},
    ),
    "three come twice": (world(3, [2, 2, 2]), {"Passed"}),
    "one too many, all of whom come twice": (world(2, [2, 2, 2]), {"Passed"}),
}


def try_it(first: World, ends: set[str]) -> None:
    """Explore a world, and see what can come of it."""
    explorer = Explorer()
    states = explorer.explore(first)
    print(f"{states:,} states; {dict(explorer.ends)}")
    assert explorer.ends.keys() == ends


@pytest.mark.parametrize("name", SMALL)
def test_small_worlds(name: str) -> None:
    """All who must be there pass, or none of them; nobody is left behind, and nobody who gave up is counted."""
    try_it(*SMALL[name])


@pytest.mark.explore
@pytest.mark.parametrize("name", LARGE)
def test_larger_worlds(name: str) -> None:
    """The same, with more parties, and with some who come too late."""
    try_it(*LARGE[name])


@pytest.mark.explore
@pytest.mark.skipif(not EXPLORE, reason="takes minutes; LOCKS_EXPLORE=1")
@pytest.mark.parametrize("name", HUGE)
def test_huge_worlds(name: str) -> None:
    """The same, with more of it at once."""
    try_it(*HUGE[name])


# --- Wrong rules ------------------------------------------------------------------------------------


def changed(change: Callable[[Step, Any], Step | Outcome]) -> Attend:
    """Parties that do something else: what a step becomes, given what was told last."""

    def attend(root: LockId, parties: int) -> protocol.Party:
        steps = protocol.attend(root, parties)
        told = None
        while True:
            try:
                step = change(steps.send(told), told)
            except StopIteration as done:
                outcome: Outcome = done.value
                return outcome
            if isinstance(step, Outcome):
                return step
            told = yield step

    return attend


def turnstile_first(step: Step, told: Any) -> Step | Outcome:
    """Asks for the host lock after the turnstile."""
    return Stand(step.wanted[::-1]) if isinstance(step, Stand) and len(step.wanted) > 1 else step


def gives_up_outside(step: Step, told: Any) -> Step | Outcome:
    """Goes when its time is over, and does not enter the mutex for that."""
    return TimedOut() if isinstance(step, Enter) and told == {} else step


def does_not_call(step: Step, told: Any) -> Step | Outcome:
    """Comes too late, and does not call."""
    if isinstance(step, Stand) and not any("turnstile" in lock_id for lock_id, _ in step.wanted):
        return Stand(step.wanted[:1])
    return step


WRONG = [
    (turnstile_first, world(2, [1, 1], delays=1)),
    (gives_up_outside, world(2, [1, 1], delays=1)),
    (gives_up_outside, world(2, [1, 1], moves=True)),
    (does_not_call, world(2, [1, 1, 1], delays=1)),
]


@pytest.mark.parametrize(("rule", "where"), WRONG)
def test_a_wrong_rule_is_caught(rule: Callable[[Step, Any], Step | Outcome], where: World) -> None:
    """What each of these rules is for: without it, somebody passes alone, or waits for ever."""
    with pytest.raises(Violation) as caught:
        Explorer(changed(rule)).explore(where)
    print(str(caught.value)[:200])


def test_a_host_that_does_not_look_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is called, and opens without a look: the one who has called may have gone."""

    def host(own: Round) -> protocol.Part:
        yield Stand(((own.host_lock, "write"), (own.turnstile, "write")))
        yield Leave()
        if not (yield AwaitCall(own.call)):
            return TimedOut((yield Look()))
        yield Open(own.turnstile)
        yield Look()
        return Passed(0)

    monkeypatch.setattr(protocol, "_host", host)
    with pytest.raises(Violation, match="never there"):
        Explorer().explore(world(2, [1, 1], delays=1))


# --- What they rely on ------------------------------------------------------------------------------


def test_grants_tell_whether_the_host_has_opened() -> None:
    """In the real lock table: of an end of the host's, the host lock is granted first; of an opening, the turnstile."""
    agents = [AgentId(n, "a", n) for n in range(4)]
    of = Round(ROOT, 4, agents[0])

    def begin() -> LockTable:
        table = LockTable()
        for lock_id in (of.host_lock, of.turnstile):
            assert table.request(agents[0], "host", lock_id, "write")[0].granted
        for number in (1, 2, 3):
            for lock_id in (of.host_lock, of.turn(number)):
                assert not table.request(agents[number], "party", lock_id, "read")[0].granted
        return table

    def passed(table: LockTable) -> set[bool]:
        return {
            protocol.has_passed(
                {
                    entry.slot.lock_id: entry.since
                    for entry in table.owners[agents[number]].all()
                    if entry.granted
                },
                of.turn(number),
                of.host_lock,
            )
            for number in (1, 2, 3)
        }

    table = begin()
    assert passed(table) == {False}
    changed_entries = table.remove(agents[0])
    assert len(changed_entries) == 2 + 6  # in one step
    assert passed(table) == {False}
    table = begin()
    assert len(table.release(agents[0], of.turnstile)) == 1 + 3
    assert passed(table) == {True}
    table.remove(agents[0])
    assert passed(table) == {True}
    table = begin()
    table.release(agents[3], of.turn(3))
    table.remove(agents[0])  # and who asks when it is gone
    assert table.request(agents[3], "party", of.turn(3), "read")[0].granted
    assert passed(table) == {False}


def test_who_waits_and_who_disagrees() -> None:
    """The parties of the present round in the order of their numbers; another number of parties is refused."""
    of = Round(ROOT, 4, AgentId(1, "a", 1))

    def request(number: int, lock_id: LockId, mode: Mode, granted: bool = False) -> Contender:
        return Contender(AgentId(number, "a", number), f"party {number}", lock_id, mode, granted, 0)

    host = (request(1, of.host_lock, "write", True), request(1, of.turnstile, "write", True))
    seen = (*host, request(4, of.turn(3), "read"), request(3, of.turn(1), "read"))
    assert [each.client for each in protocol.who_waits(ROOT, seen)] == [
        "party 1",
        "party 3",
        "party 4",
    ]
    assert not of.is_full(seen)
    assert of.is_full((*seen, request(5, of.turn(2), "read")))
    assert protocol.who_waits(ROOT, seen[2:]) == ()
    steps = protocol.attend(ROOT, 3)
    assert next(steps) == Enter()
    assert steps.send(True) == Look()
    with pytest.raises(StopIteration) as done:
        steps.send(seen)
    assert done.value.value == protocol.Disagree(4)


def test_a_host_that_was_cut_off_does_not_know_what_became_of_its_opening() -> None:
    """It has released the turnstile, and then the lock server knows nothing of it: that may never have arrived."""
    me = AgentId(1, "a", 1)
    of = Round(ROOT, 2, me)

    def request(agent: AgentId, lock_id: LockId, mode: Mode) -> Contender:
        return Contender(agent, "", lock_id, mode, mode == "write", 0)

    host = request(me, of.host_lock, "write")
    full = (host, request(me, of.turnstile, "write"), request(me, of.turn(1), "read"))
    for seen, outcome in (((), Broken()), ((host,), Passed(0))):
        steps = protocol.attend(ROOT, 2)
        for told in (None, True, (), me, None, None, True, True, full, None):
            steps.send(told)
        assert steps.send(full) == Look()  # it is under way still
        with pytest.raises(StopIteration) as done:
            steps.send(seen)
        assert done.value.value == outcome
