"""Ownership, its pure part: how groups are spread, who is granted what, and what a worker may begin."""

from __future__ import annotations

from collections import Counter, deque
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from locks.errors import InvalidOption, OperatingError
from locks.ownership import stable_hash
from locks.ownership.coordinator import Coordinator
from locks.ownership.groups import Grouping
from locks.ownership.member import Member
from locks.ownership.messages import (
    Agree,
    Effect,
    Grant,
    Renew,
    Report,
    Revoke,
    Welcome,
)
from locks.ownership.session import CoordinatorSession
from locks.ownership.spread import spread

# --- Spread ---------------------------------------------------------------------------------------


@st.composite
def ownerships(draw: st.DrawFn) -> tuple[int, dict[int, str], list[str]]:
    """Groups, who owns them now, and the workers, some of them new, some owners gone."""
    groups = draw(st.integers(1, 24))
    known = ["a", "b", "c", "d", "e", "f"]
    owners = draw(st.dictionaries(st.integers(0, groups - 1), st.sampled_from(known)))
    workers = draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
    return groups, owners, workers


@given(ownerships())
def test_each_worker_gets_its_share(given: tuple[int, dict[int, str], list[str]]) -> None:
    """All groups have an owner, and no two workers differ by more than one group."""
    groups, owners, workers = given
    plan = spread(groups, owners, workers)
    assert sorted(plan) == list(range(groups))
    counts = Counter(plan.values())
    shares = [counts[worker] for worker in workers]
    assert sum(shares) == groups
    assert max(shares) - min(shares) <= 1


@given(ownerships())
def test_as_few_groups_move_as_can_be(given: tuple[int, dict[int, str], list[str]]) -> None:
    """No even plan moves fewer groups: compared with all ways to deal the larger shares out."""
    groups, owners, workers = given
    plan = spread(groups, owners, workers)
    moves = sum(plan[group] != owners.get(group) for group in range(groups))
    has = Counter(owners.values())
    share, more = divmod(groups, len(workers))
    best = min(
        groups - sum(min(has[worker], share + (worker in larger)) for worker in workers)
        for larger in combinations(workers, more)
    )
    assert moves == best


# --- Groups ---------------------------------------------------------------------------------------


def test_the_hash_is_the_same_everywhere() -> None:
    """It does not depend on the process, the Python or its version: other nodes count on it."""
    assert [stable_hash(r) for r in ("r1", b"r1", 17, -1, ("a", 1), ())] == HASHES


HASHES = [0x0D0E09B1, 0xF8C5DD12, 0xC6A78B00, 0xC9B37368, 0xD4A0146B, 0x856A5AA8]


@given(st.recursive(st.text() | st.integers() | st.binary(), lambda r: st.tuples(r, r)))
def test_equal_resources_are_in_the_same_group(resource: Any) -> None:
    """A group is a function of the resource, and there are no other groups."""
    group = Grouping(7).group_of(resource)
    assert 0 <= group < 7
    assert Grouping(7).group_of(resource) == group


@pytest.mark.parametrize("resource", [1.5, None, ["a"], {"a"}, ("a", 1.5), object()])
def test_other_resources_are_refused(resource: Any) -> None:
    """A hash that would differ from process to process is no group."""
    with pytest.raises(InvalidOption, match="give group_for"):
        Grouping(7).group_of(resource)


# --- Coordinator ----------------------------------------------------------------------------------


def settled(groups: int, *workers: str) -> Coordinator[str]:
    """A coordinator whose workers have what they are to have; the last token is 10."""
    coordinator: Coordinator[str] = Coordinator(groups)
    for worker in workers:
        coordinator.joined(worker)
    coordinator.agreed(10)
    assert coordinator.settled
    return coordinator


def test_a_group_moves_only_when_it_was_released() -> None:
    """It is asked back first, and granted, with a larger token, when its owner has let it go."""
    coordinator = settled(2, "a")
    assert coordinator.joined("b") == [Agree()]
    assert coordinator.agreed(11) == [Revoke("a", (1,))]
    assert coordinator.owners == {0: "a", 1: "a"}
    assert not coordinator.settled
    assert coordinator.released("a", [1]) == [Grant("b", (1,), 11)]
    assert coordinator.settled


def test_a_dead_workers_groups_are_granted_at_once() -> None:
    """Nobody is waited for: the next agreement hands them over."""
    coordinator = settled(4, "a", "b")
    assert coordinator.gone("a") == [Agree()]
    assert coordinator.agreed(11) == [Grant("b", (0, 1), 11)]
    assert coordinator.gone("b") == []
    assert coordinator.joined("c") == [Agree()]


def test_an_agreement_covers_all_who_come_and_go_meanwhile() -> None:
    """Two newcomers and a death take one agreement, not three."""
    coordinator = settled(4, "a", "b")
    assert coordinator.joined("c") == [Agree()]
    assert coordinator.joined("d") == []
    assert coordinator.gone("a") == []
    assert coordinator.agreed(11) == [Grant("c", (0,), 11), Grant("d", (1,), 11)]
    assert coordinator.agreements == 2


def test_a_new_coordinator_leaves_groups_where_they_are() -> None:
    """Workers tell what they own: nothing moves because a leader has died; tokens rise."""
    coordinator: Coordinator[str] = Coordinator(4)
    coordinator.joined("a", {0: 10, 1: 10})
    coordinator.joined("b", {2: 9})
    assert coordinator.agreed(11) == [
        Renew("a", (0, 1), 11),
        Renew("b", (2,), 11),
        Grant("b", (3,), 11),
    ]
    assert coordinator.settled
    coordinator.joined("c")
    assert coordinator.agreed(12) == [Revoke("b", (3,))]


def test_a_renewed_token_is_for_tasks_begun_from_then_on() -> None:
    """Whoever keeps its groups gets a larger token for them, also while it is suspended."""
    member = Member()
    member.granted(0, 10)
    member.granted(1, 10)
    assert member.begin_task(0, "first") == 10
    member.renewed([0, 7], 11)
    assert member.begin_task(0, "second") == 11
    member.suspend()
    member.renewed([1], 12)
    assert member.report() == {0: 11, 1: 12}
    assert (member.gained, member.lost) == (2, 0)


def test_of_two_owners_the_one_with_the_smaller_token_must_let_go() -> None:
    """A network was parted: whoever was granted the group last keeps it, whoever is heard first."""
    for first, second in (("old", "new"), ("new", "old")):
        coordinator: Coordinator[str] = Coordinator(1)
        tokens = {"old": 10, "new": 11}
        effects = coordinator.joined(first, {0: tokens[first]})
        effects += coordinator.joined(second, {0: tokens[second]})
        assert Revoke("old", (0,)) in effects
        assert coordinator.owners == {0: "new"}
        assert coordinator.released("old", [0]) == []


def test_a_group_waits_for_its_last_holder() -> None:
    """Nobody gets a group while one who has lost it still has a task at hand."""
    coordinator: Coordinator[str] = Coordinator(1)
    coordinator.joined("new", {0: 11})
    coordinator.joined("old", {0: 10})
    coordinator.gone("new")
    assert coordinator.agreed(12) == []
    assert coordinator.released("old", [0]) == [Grant("old", (0,), 12)]


@pytest.mark.parametrize("token", [0, 9, 10])
def test_an_agreement_must_be_newer(token: int) -> None:
    """A number that is not larger than all before would let a former owner write; nothing changes."""
    coordinator = settled(2, "a")
    coordinator.joined("b")
    with pytest.raises(OperatingError, match=f"has the number {token}, but there was 10"):
        coordinator.agreed(token)
    assert coordinator.owners == {0: "a", 1: "a"}


# --- A session ------------------------------------------------------------------------------------


def test_a_session_opens_when_all_have_reported() -> None:
    """Until then nobody goes on, and no agreement is asked for; then all are welcome, and one is."""
    session: CoordinatorSession[str] = CoordinatorSession(2)
    assert session.received("a", Report({0: 10}, 3), ["a", "b", "c"]) == []
    assert session.received("b", Report({}, 5), ["a", "b", "c"]) == []
    assert not session.is_open
    assert session.gone("c", ["a", "b"]) == [Welcome("a"), Welcome("b"), Agree()]
    assert session.agreed(11, session.newest) == [Renew("a", (0,), 11), Grant("b", (1,), 11)]
    assert session.agreements == 6, "those under earlier sessions are counted as well"


# --- Member ---------------------------------------------------------------------------------------


def test_a_group_with_a_task_at_hand_is_let_go_after_it() -> None:
    """Asked back, it is not begun any more, and let go at the end of the last task."""
    member = Member()
    member.granted(0, 10)
    assert member.begin_task(0, "first") == 10
    assert member.begin_task(0, "second") == 10
    assert member.revoked([0, 5]) == []
    assert member.begin_task(0, "third") is None
    assert member.leaving == {0: 10}
    assert not member.end_task("first")
    assert not member.end_task("second")
    assert member.settle() == []
    assert member.end_task("third")  # nothing was begun, but somebody may have seen it
    assert member.settle() == [0]
    assert member.report() == {}


# --- All together ---------------------------------------------------------------------------------


class _Worker:
    """A simulated worker, with the links to and from who coordinates."""

    def __init__(self) -> None:
        self.member = Member()
        self.inbox: deque[Grant | Revoke | Renew] = deque()
        self.released: deque[list[int]] = deque()
        self.at_hand: tuple[int, int] | None = None  # task and token
        self.task: object = None
        self.leaving = False


class Workers(RuleBasedStateMachine):
    """Workers that join, leave, die and pause; coordinators that die; messages at any moment.

    Each group is a resource, with tasks 0, 1, ... What a task does to its resource passes a fence:
    tokens smaller than one that it has seen are refused, and a task that has its mark does nothing.
    """

    GROUPS = 3
    TASKS = 4

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.token = 0
        self.coordinator: Coordinator[int] | None = Coordinator(self.GROUPS)
        self.agreeing = False
        self.workers: dict[int, _Worker] = {}  # alive, as the coordinator believes
        self.lost: list[_Worker] = []  # paused: taken for dead, and they are not
        self.queues = [deque(range(g, g + 100 * self.TASKS, 100)) for g in range(self.GROUPS)]
        self.newest = [0] * self.GROUPS
        self.executed: Counter[int] = Counter()
        self.applied: Counter[int] = Counter()
        self.refused = 0
        self.deaths = 0

    def perform(self, effects: list[Effect]) -> None:
        """Carry out what the coordinator wants."""
        for effect in effects:
            if isinstance(effect, Agree):
                assert not self.agreeing
                self.agreeing = True
            else:
                assert isinstance(effect.worker, int)
                if effect.worker in self.workers:
                    self.workers[effect.worker].inbox.append(effect)

    def pick(self, among: list[Any], chosen: int) -> Any:
        """One of some."""
        return among[chosen % len(among)]

    @precondition(lambda self: self.coordinator is not None and len(self.workers) < 4)
    @rule()
    def join(self) -> None:
        """A worker comes."""
        self.number += 1
        self.workers[self.number] = _Worker()
        self.perform(self.coordinator.joined(self.number))  # type: ignore[union-attr]

    @precondition(lambda self: self.agreeing)
    @rule()
    def agree(self) -> None:
        """The agreement that is under way comes about."""
        self.agreeing = False
        self.token += 1
        self.perform(self.coordinator.agreed(self.token))  # type: ignore[union-attr]

    @precondition(lambda self: self.coordinator is not None)
    @rule(chosen=st.integers(0, 9))
    def deliver(self, chosen: int) -> None:
        """The next message to a worker arrives."""
        ready = [worker for worker in self.workers.values() if worker.inbox]
        if ready:
            worker = self.pick(ready, chosen)
            effect = worker.inbox.popleft()
            if isinstance(effect, Grant):
                for group in effect.groups:
                    worker.member.granted(group, effect.token)
            elif isinstance(effect, Renew):
                worker.member.renewed(effect.groups, effect.token)
            else:
                worker.released.append(worker.member.revoked(effect.groups))

    @precondition(lambda self: self.coordinator is not None)
    @rule(chosen=st.integers(0, 9))
    def hear(self, chosen: int) -> None:
        """The next message of a worker arrives."""
        ready = [name for name, worker in self.workers.items() if worker.released]
        if ready:
            name = self.pick(ready, chosen)
            released = self.workers[name].released.popleft()
            self.perform(self.coordinator.released(name, released))  # type: ignore[union-attr]

    @rule(chosen=st.integers(0, 9), group=st.integers(0, GROUPS - 1))
    def begin(self, chosen: int, group: int) -> None:
        """A worker begins the first task of a group, if it may."""
        idle = [w for w in [*self.workers.values(), *self.lost] if w.at_hand is None]
        if not idle or not self.queues[group]:
            return
        worker = self.pick(idle, chosen)
        task = object()
        token = worker.member.begin_task(group, task)
        if token is not None:
            for other in [*self.workers.values(), *self.lost]:
                if other.at_hand is not None and other.at_hand[0] % 100 == group:
                    assert other in self.lost or worker in self.lost, "two at once"
                    newer, older = (other, worker) if worker in self.lost else (worker, other)
                    newer_token = token if newer is worker else newer.at_hand[1]
                    older_token = token if older is worker else older.at_hand[1]
                    if not (newer in self.lost and older in self.lost):
                        assert newer_token > older_token, "a token that does not tell them apart"
            worker.at_hand = (self.queues[group][0], token)
            worker.task = task
        elif worker.member.end_task(task):
            worker.released.append(worker.member.settle())

    @rule(chosen=st.integers(0, 9))
    def end(self, chosen: int) -> None:
        """A worker has done its task: it writes, marks the task as done, and ends it."""
        busy = [w for w in [*self.workers.values(), *self.lost] if w.at_hand is not None]
        if not busy:
            return
        worker = self.pick(busy, chosen)
        task, token = worker.at_hand
        worker.at_hand = None
        group = task % 100
        self.executed[task] += 1
        if token < self.newest[group]:
            self.refused += 1
        else:
            self.newest[group] = token
            if not self.applied[task]:
                self.applied[task] += 1
            if self.queues[group] and self.queues[group][0] == task:
                self.queues[group].popleft()
        if worker.member.end_task(worker.task):
            worker.released.append(worker.member.settle())
        if worker.leaving:
            self.bury(worker)

    def bury(self, worker: _Worker) -> None:
        """A worker is gone, and everybody notices."""
        for name in [name for name, each in self.workers.items() if each is worker]:
            del self.workers[name]
            if self.coordinator is not None:
                self.perform(self.coordinator.gone(name))

    @precondition(lambda self: self.workers)
    @rule(chosen=st.integers(0, 9))
    def leave(self, chosen: int) -> None:
        """A worker leaves, after the task at hand."""
        worker = self.pick(list(self.workers.values()), chosen)
        worker.leaving = True
        worker.member.suspend()
        if worker.at_hand is None:
            self.bury(worker)
        elif self.coordinator is not None:
            self.tell_leaving(worker)

    def tell_leaving(self, worker: _Worker) -> None:
        """The coordinator hears that a worker is about to leave."""
        assert self.coordinator is not None
        for name in [name for name, each in self.workers.items() if each is worker]:
            self.perform(self.coordinator.leaving(name))

    @precondition(lambda self: self.workers)
    @rule(chosen=st.integers(0, 9), paused=st.booleans())
    def die(self, chosen: int, paused: bool) -> None:
        """A worker dies in the middle of its task, or seems to."""
        worker = self.pick(list(self.workers.values()), chosen)
        self.bury(worker)
        self.deaths += 1
        if paused:
            self.lost.append(worker)

    @precondition(lambda self: self.lost)
    @rule()
    def come_back(self) -> None:
        """A paused worker is told that it was taken for dead: it begins nothing more."""
        self.lost[0].member.suspend()
        if self.lost[0].at_hand is None:
            del self.lost[0]

    @precondition(lambda self: self.coordinator is not None)
    @rule()
    def lose_coordinator(self) -> None:
        """Who coordinates dies: what it has sent, and what it was sent, is lost with it."""
        self.coordinator = None
        self.agreeing = False
        for worker in self.workers.values():
            worker.inbox.clear()
            worker.released.clear()
            worker.member.suspend()

    @precondition(lambda self: self.coordinator is None)
    @rule()
    def take_over(self) -> None:
        """Somebody else coordinates: it asks all what they own, and they go on."""
        self.coordinator = Coordinator(self.GROUPS)
        for name, worker in self.workers.items():
            self.perform(self.coordinator.joined(name, worker.member.report()))
            if worker.leaving:
                self.tell_leaving(worker)
            else:
                worker.member.resume()

    @rule()
    def settle(self) -> None:
        """All messages arrive, and agreements come about."""
        while self.coordinator is not None and (
            self.agreeing or any(w.inbox or w.released for w in self.workers.values())
        ):
            if self.agreeing:
                self.agree()
            self.deliver(0)
            self.hear(0)

    @invariant()
    def each_group_has_one_owner(self) -> None:
        """No two who may begin tasks of a group, but for those who only seem dead."""
        owned = Counter(g for worker in self.workers.values() for g in worker.member.owned)
        assert all(count == 1 for count in owned.values()), owned

    @invariant()
    def nothing_is_applied_twice(self) -> None:
        """What passes the fence has an effect once."""
        assert all(count <= 1 for count in self.applied.values())

    def teardown(self) -> None:
        """Nothing happens any more but work: then every task is done, and groups are spread evenly."""
        note(f"{self.deaths} deaths, {self.refused} writes refused")
        while self.lost:
            self.come_back()
            if self.lost:
                self.lost[0].at_hand = None
        if self.coordinator is None:
            self.take_over()
        if not any(not worker.leaving for worker in self.workers.values()):
            self.join()
        for _ in range(1000):
            if self.agreeing:
                self.agree()
            for number in range(len(self.workers)):
                self.deliver(number)
                self.hear(number)
            for group in range(self.GROUPS):
                for number in range(len(self.workers)):
                    self.begin(number, group)
            while any(worker.at_hand for worker in self.workers.values()):
                self.end(0)
        assert not any(self.queues), "tasks that nobody does"
        assert set(self.applied) == set(self.executed)
        assert len(self.applied) == self.GROUPS * self.TASKS
        if not self.deaths:
            assert set(self.executed.values()) == {1}, "done again though nobody died"
        shares = [len(worker.member.owned) for worker in self.workers.values()]
        assert max(shares) - min(shares) <= 1
        assert self.coordinator is not None
        assert self.coordinator.settled


TestWorkers = Workers.TestCase
