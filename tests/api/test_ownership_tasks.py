"""Tasks of a backlog: what is said of one, what follows when it fails, and whose turn it is."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from types import FrameType
from typing import Any

import gevent
import pytest

from locks.errors import InvalidOption
from locks.ownership import (
    AtHand,
    Backlog,
    Done,
    Ownership,
    SetAside,
    StaleToken,
    TaskState,
    Waiting,
    backlog,
    part,
    round_robin,
    run,
    worker,
)
from locks.ownership.round_robin import BATCH, QUICK, SLICE
from locks.runtime import port
from locks.runtime.waiter import Waiter
from tests.api.clients import Run
from tests.api.played import Played
from tests.helpers import eventually, lines_of


class Poison(Exception):
    """What a task of poison raises."""


def first(task: tuple[Any, ...]) -> Any:
    """A task's resource, and its group."""
    return task[0]


def group_for(group: int) -> int:
    """The group of a resource."""
    return group


def backlog_of(tasks: Any, groups: int = 2, **options: Any) -> Backlog[Any]:
    """A backlog whose tasks begin with their group."""
    return Backlog(tasks, first, groups=groups, group_for=group_for, **options)


class Handler:
    """Does tasks, and fails in those of poison.

    Attributes:
        begun: How often each task was begun.
        done: Those that are done.
        tolerance: How often a task of poison fails; None: always.
    """

    def __init__(self, tolerance: int | None = None) -> None:
        self.begun: Counter[Any] = Counter()
        self.done: list[Any] = []
        self.tolerance = tolerance

    def __call__(self, task: tuple[int, str], token: int) -> None:
        """Do a task."""
        self.begun[task] += 1
        if task[1] == "poison" and (self.tolerance is None or self.begun[task] <= self.tolerance):
            raise Poison(f"for the {self.begun[task]}. time")
        self.done.append(task)


TASKS = [(0, "a"), (0, "poison"), (0, "b"), (1, "c")]


def test_as_a_rule_a_failure_ends_the_run() -> None:
    """The task stays, for the next one; what has failed is counted."""
    backlog, handler, mine = backlog_of(TASKS), Handler(), Played(2, group_for=group_for)
    for _ in range(2):
        with pytest.raises(Poison):
            mine.run(backlog, handler)
        assert mine.statistics()[-2:] == (1, 0)
    assert backlog.set_aside == ()
    assert backlog.state((0, "poison")) == Waiting(0, 0, None)
    handler.tolerance = 0
    assert mine.run(backlog, handler) == 3
    assert sorted(handler.done) == sorted(TASKS)


def test_a_task_of_poison_is_set_aside(run: Run) -> None:
    """With its error; all other tasks are done, also of its group, in their order, and no worker ends."""
    backlog, handler = backlog_of(TASKS, on_failure="set aside"), Handler()
    workers = [Ownership("ingest", 2, group_for=group_for) for _ in range(2)]
    answers = [run.client().do(each.run, backlog, handler) for each in workers]
    assert sum(answer.get() for answer in answers) == 3
    assert [task for task in handler.done if task[0] == 0] == [(0, "a"), (0, "b")]
    (aside,) = backlog.set_aside
    assert aside[:2] == (0, (0, "poison"))
    assert isinstance(aside.error, Poison)
    assert aside.error.__traceback__ is not None
    assert aside.attempts == 1
    assert backlog.finished
    assert backlog.state((0, "poison")) == aside
    assert backlog.state((0, "b")) == Done(0)
    failed, set_aside = zip(*[worker.statistics()[-2:] for worker in workers], strict=True)
    assert (sum(failed), sum(set_aside)) == (1, 1)


@pytest.mark.parametrize("on_failure", ["stop", "set aside"])
def test_a_task_is_begun_again(on_failure: Any) -> None:
    """So many times; then what comes after that. Each task has its own number."""
    tasks = [*TASKS, (1, "poison"), (1, "poison")]
    backlog = backlog_of(tasks, retries=2, on_failure=on_failure)
    handler, mine = Handler(2), Played(2, group_for=group_for)
    assert mine.run(backlog, handler) == 6
    assert handler.begun[0, "poison"] == 3
    assert handler.begun[1, "poison"] == 4  # the second one did not fail
    assert mine.statistics()[-2:] == (4, 0)

    backlog, handler = backlog_of(tasks, retries=2, on_failure=on_failure), Handler()
    if on_failure == "stop":
        with pytest.raises(Poison, match=r"for the 3\. time"):
            mine.run(backlog, handler)
        assert (handler.begun[0, "poison"], handler.begun[1, "poison"]) == (3, 2)
    else:
        assert mine.run(backlog, handler) == 3
        assert [each.attempts for each in backlog.set_aside] == [3, 3, 3]
        assert mine.statistics()[-2:] == (9, 3)


def test_a_group_waits_for_a_task_that_is_begun_again() -> None:
    """For so many seconds, and nobody passes it; other groups go on meanwhile."""
    delay = 0.05
    begun: list[tuple[float, tuple[int, str]]] = []
    handler = Handler(2)

    def handle(task: tuple[int, str], token: int) -> None:
        begun.append((time.perf_counter(), task))
        handler(task, token)

    tasks = [(0, "poison"), (0, "b"), *[(1, str(number)) for number in range(50)]]
    mine = Played(2, group_for=group_for)
    assert mine.run(backlog_of(tasks, retries=2, retry_delay=delay), handle) == 52
    assert [task for _, task in begun if task[0] == 0] == [(0, "poison")] * 3 + [(0, "b")]
    times = [at for at, task in begun if task[1] == "poison"]
    assert all(later - earlier >= delay for earlier, later in pairwise(times))
    assert begun[1][1][0] == 1


def test_attempts_and_delays_go_on_with_the_next_owner(run: Run) -> None:
    """What one worker has tried counts for the other one, and it does not try sooner."""
    backlog = backlog_of([(0, "poison")], retries=1, retry_delay=0.05, on_failure="set aside")
    begun: list[float] = []

    def handle(task: tuple[int, str], token: int) -> None:
        begun.append(time.perf_counter())
        if len(begun) == 1:
            one.stop()
        raise Poison

    one, two = (Ownership("ingest", 2, group_for=group_for) for _ in range(2))
    assert run.client().do(one.run, backlog, handle).get() == 0
    assert run.client().do(two.run, backlog, handle).get() == 0
    assert [each.attempts for each in backlog.set_aside] == [2]
    assert begun[1] - begun[0] >= 0.05
    assert (one.statistics().failed, two.statistics()[-2:]) == (1, (1, 1))


@pytest.mark.parametrize(
    "error", [StaleToken("old", token=1, newest=2), KeyboardInterrupt(), gevent.GreenletExit()]
)
def test_what_is_no_failure_of_the_task_ends_the_run(error: BaseException) -> None:
    """A token that is too old, Ctrl-C, a kill: the task is as it was, and not a failure more."""
    backlog = backlog_of([(0, "a")], retries=5, on_failure="set aside")
    mine = Played(2, group_for=group_for)

    def handle(task: Any, token: int) -> None:
        raise error

    with pytest.raises(type(error)):
        mine.run(backlog, handle)
    assert mine.statistics()[-2:] == (0, 0)
    assert backlog.waits_until(0) is None
    assert len(backlog) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retries": -1}, "retries=-1"),
        ({"retries": 1.5}, "retries=1.5"),
        ({"retries": True}, "retries=True"),
        ({"retry_delay": -1}, "retry_delay=-1"),
        ({"retry_delay": float("nan")}, "retry_delay=nan"),
        ({"retry_delay": float("inf")}, "retry_delay=inf"),
        ({"retry_delay": 10**5000}, "retry_delay="),
        ({"retry_delay": "1"}, "retry_delay='1'"),
        ({"on_failure": "ignore"}, "on_failure='ignore': give one of 'stop', 'set aside'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    """With the value, and what can be given."""
    with pytest.raises(InvalidOption, match=text):
        backlog_of([], **options)


def test_a_task_that_was_set_aside_says_where() -> None:
    """Its group, the error and the attempts; of equal tasks one that waits comes first."""
    backlog = backlog_of([(0, "poison"), (1, "a")], on_failure="set aside", more=True)

    def handle(task: tuple[int, str], token: int) -> None:
        if task[1] == "poison":
            raise Poison
        backlog.add((0, "poison"))
        mine.stop()

    mine = Played(2, group_for=group_for)
    mine.run(backlog, handle)
    assert isinstance(backlog.set_aside[0], SetAside)
    assert backlog.state((0, "poison")) == Waiting(0, 0, None)
    assert len(backlog) == 1


# --- What a backlog says of one task: it waits, is at hand, or is done, and where. ---


THREE = [(0, "a"), (1, "b"), (0, "c")]


def backlog_of_three(tasks: list[tuple[int, str]], **options: Any) -> Backlog[tuple[int, str]]:
    """A backlog with two groups."""
    return Backlog(tasks, first, groups=2, group_for=int, **options)


def worker_of_pair() -> Ownership:
    """A worker for it."""
    return Ownership("ingest", 2, group_for=int)


class Hands:
    """A handler whose tasks go on one by one, when they are let."""

    def __init__(self) -> None:
        self.tokens: list[tuple[Any, int]] = []
        self.let = threading.Semaphore(0)

    def __call__(self, task: Any, token: int) -> None:
        """Do a task."""
        self.tokens.append((task, token))
        eventually(lambda: self.let.acquire(blocking=False))

    def wait_for(self, number: int) -> None:
        """Wait until so many tasks were begun."""
        eventually(lambda: len(self.tokens) == number)


def states(backlog: Backlog[tuple[int, str]]) -> list[TaskState]:
    """Of all tasks."""
    return [backlog.state(task) for task in THREE]


def test_a_task_waits_then_is_at_hand_then_done(run: Run) -> None:
    """With how many are ahead of it, its worker, and the token that its handler has; also while others wait."""
    backlog = backlog_of_three(THREE)
    assert states(backlog) == [Waiting(0, 0, None), Waiting(1, 0, None), Waiting(0, 1, None)]
    mine, hands = worker_of_pair(), Hands()
    answer = run.client().do(mine.run, backlog, hands)
    eventually(lambda: len(mine.owned()) == 2)  # it begins a task as soon as it has the first
    for number in (1, 2, 3):
        hands.wait_for(number)
        task, token = hands.tokens[-1]
        assert backlog.state(task) == AtHand(task[0], mine, token)
        at_hand = THREE.index(task)
        done = [THREE.index(each) for each, _ in hands.tokens[:-1]]
        for index, state in enumerate(states(backlog)):
            if index in done:
                assert state == Done(THREE[index][0])
            elif index != at_hand:
                before = [i for i in range(index) if THREE[i][0] == THREE[index][0]]
                ahead = len([i for i in before if i not in done])
                assert state == Waiting(THREE[index][0], ahead, mine)
        hands.let.release()
    assert answer.get() == 3
    assert states(backlog) == [Done(0), Done(1), Done(0)]


def test_a_worker_that_hangs_is_found_by_its_task_and_left_behind(run: Run) -> None:
    """The answer has the worker to stop; then the next owner has the task at hand, with a larger token."""
    backlog = backlog_of_three(THREE[:1])
    hung, hands, more = worker_of_pair(), Hands(), Hands()
    stuck = run.client().do(hung.run, backlog, hands)
    eventually(lambda: hands.tokens)
    other = worker_of_pair()
    answer = run.client().do(other.run, backlog, more)
    eventually(lambda: other.owned())
    state = backlog.state(THREE[0])
    assert state == AtHand(0, hung, hands.tokens[0][1])
    assert isinstance(state, AtHand)
    state.worker.stop(now=True)
    eventually(lambda: more.tokens)
    assert backlog.state(THREE[0]) == AtHand(0, other, more.tokens[0][1])
    assert more.tokens[0][1] > hands.tokens[0][1]
    more.let.release()
    assert answer.get() == 1
    assert backlog.state(THREE[0]) == Done(0)
    hands.let.release()
    stuck.get()


def test_a_task_whose_handler_has_failed_waits_again(run: Run) -> None:
    """It is not done; nobody has it at hand, and no worker owns its group."""
    backlog = backlog_of_three(THREE[:1])

    def fail(task: Any, token: int) -> None:
        assert backlog.state(task) == AtHand(0, mine, token)  # also asked by its own handler
        raise ConnectionError("the network is gone")

    mine = worker_of_pair()
    with pytest.raises(ConnectionError):
        run.client().call(mine.run, backlog, fail)
    assert backlog.state(THREE[0]) == Waiting(0, 0, None)


# --- Turns of groups in virtual time, and what an added task costs: counted, not timed. ---


MODULES = (backlog, part, round_robin, run, worker)


class Clock:
    """Seconds that pass because somebody works.

    Attributes:
        now: How many have passed.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Tell them."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all runs."""
    clock = Clock()
    monkeypatch.setattr(port, "monotonic", clock)
    return clock


def backlog_of_groups(groups: int, tasks: Any = (), **options: Any) -> Backlog[Any]:
    """A backlog whose tasks begin with their group."""
    return Backlog(tasks, first, groups=groups, group_for=group_for, **options)


@pytest.mark.parametrize(("seconds", "most"), [(1e-6, 8), (6e-6, 1)])
@pytest.mark.parametrize("quick", [10, 1000, 4000])
def test_a_group_does_not_wait_behind_slow_tasks_of_another(
    clock: Clock, quick: int, seconds: float, most: int
) -> None:
    """However many quick tasks went before, and of whichever group: it waits for a millisecond and a task.

    Or for eight, if some of the same slice took next to no time.
    """
    for before in (0, 1):  # the group of the quick ones
        tasks = [(before, seconds)] * quick + [(1, 0.005)] * 100 + [(2, 10e-6)] * 10
        begun: dict[int, float] = {}

        def handle(task: tuple[int, float], token: int, begun: dict[int, float] = begun) -> None:
            if task[1] > 0.001:
                begun.setdefault(1, clock.now)
            if task[0] == 2:
                begun.setdefault(2, clock.now)
            clock.now += task[1]

        Played(3, group_for=group_for).run(backlog_of_groups(3, tasks), handle)
        if begun[2] > begun[1]:  # else the quick ones of the same group have filled the first slice
            assert begun[2] - begun[1] <= SLICE + 0.005 * (1 if before == 0 else most)


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_group_waits_for_a_slice_of_each_other_at_most(
    clock: Clock, seed: int, steady: bool
) -> None:
    """The bound of the page, with random tasks that also come in meanwhile; it is less if tasks of a group take alike."""
    rng = random.Random(seed)
    groups = rng.randrange(2, 9)
    lengths = [rng.choice([1e-6, 5e-6, 1e-4, 0.002, 0.02]) for _ in range(groups)]

    def task(group: int) -> tuple[int, float]:
        length = lengths[group] if steady else rng.choice(lengths)
        return group, length * rng.uniform(0.9, 1.0)

    tasks = backlog_of_groups(
        groups, [task(rng.randrange(groups)) for _ in range(rng.randrange(3000))], more=True
    )
    waits = {group: 0.0 for group in range(groups) if tasks.has(group)}  # since when
    last, longest, added = -1, 0.0, 0

    def handle(task_: tuple[int, float], token: int) -> None:
        nonlocal last, longest, added
        group, length = task_
        if group != last:
            if last >= 0 and tasks.has(last):
                waits.setdefault(last, clock.now)
            longest = max(longest, clock.now - waits.pop(group))
            last = group
        clock.now += length
        if rng.random() < 0.02 and added < 2000:
            added += 1
            new = rng.randrange(groups)
            if new != group:
                waits.setdefault(new, clock.now)
            tasks.add(task(new))
        if len(tasks) == 1:
            tasks.close()

    mine = Played(groups, group_for=group_for)
    if len(tasks):
        assert mine.run(tasks, handle) == mine.statistics().done > 0
    most = max(lengths)
    slice_ = SLICE + (max(most, BATCH * QUICK) if steady else BATCH * most)
    assert longest <= groups * slice_


# --- What it costs --------------------------------------------------------------------------------


class Crew:
    """Played workers that wait in threads of their own for tasks.

    Args:
        workers: How many.
        groups: How many groups they share out.
    """

    def __init__(self, workers: int, groups: int) -> None:
        self.tasks = backlog_of_groups(groups, more=True)
        self.done: list[tuple[int, int]] = []  # worker and task
        self.lines = 0  # of the library that the first worker has carried out
        self.workers = [
            Played(groups, range(number, groups, workers), group_for=group_for)
            for number in range(workers)
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True)
            for number in range(workers)
        ]

    def __enter__(self) -> Crew:
        for thread in self._threads:
            thread.start()
        self.all_wait()
        return self

    def __exit__(self, *error: object) -> None:
        self.tasks.close()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)

    def all_wait(self) -> None:
        """Wait until all workers do."""

        def waits(each: Any) -> bool:
            return each._waiter is not None and each._waiter._parked is not None

        eventually(lambda: sum(map(waits, tuple(self.tasks._runs))) == len(self.workers))

    def add(self, group: int) -> None:
        """Add a task, and wait until it is done and all wait again."""
        before = len(self.done)
        self.tasks.add((group,))
        eventually(lambda: len(self.done) > before)
        self.all_wait()

    def _work(self, number: int) -> None:
        def handle(task: tuple[int], token: int) -> None:
            self.done.append((number, task[0]))

        work = lambda: self.workers[number].run(self.tasks, handle)  # noqa: E731
        if number:
            work()
            return
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in {module.__file__ for module in MODULES}:
            return None
        self.lines += event == "line"
        return self._trace


def test_an_added_task_wakes_the_worker_that_owns_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nobody else, however many wait."""
    with Crew(12, 60) as crew:
        woken: list[Waiter] = []
        wake = Waiter.wake
        monkeypatch.setattr(Waiter, "wake", lambda waiter: (woken.append(waiter), wake(waiter)))
        for number, group in enumerate([0, 13, 59, 13], 1):
            crew.add(group)
            assert crew.done[-1] == (group % 12, group)
            assert len(woken) == number
        monkeypatch.undo()


def test_the_cost_of_an_added_task_knows_no_numbers() -> None:
    """Neither of groups nor of workers: the same lines for who adds it, and for who is woken."""
    found = []
    for workers, groups in ((2, 8), (12, 3000)):
        with Crew(workers, groups) as crew:
            crew.add(0)
            before = crew.lines
            for _ in range(10):
                crew.add(0)
            working = crew.lines - before
            adding = lines_of(lambda crew=crew: crew.tasks.add((1,)), *MODULES)  # type: ignore[misc]
        found.append((working, adding))
    assert found[0] == found[1]
    assert all(map(all, found))
