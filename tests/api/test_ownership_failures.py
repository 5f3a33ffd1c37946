"""Tasks that fail: the run stops, or they are begun again, or set aside."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import gevent
import pytest

from locks.errors import InvalidOption
from locks.ownership import AtHand, Backlog, Done, Ownership, SetAside, StaleToken, Waiting
from tests.api.clients import Run
from tests.api.played import TOKEN, Played
from tests.helpers import eventually


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


def test_a_worker_that_waits_for_a_retry_hears_of_new_tasks_and_of_stop(run: Run) -> None:
    """However long the delay is."""
    backlog = backlog_of([(0, "poison")], more=True, retries=1, retry_delay=3600)
    handler, mine = Handler(), Ownership("ingest", 2, group_for=group_for)
    answer = run.client().do(mine.run, backlog, handler)
    eventually(lambda: handler.begun[0, "poison"])
    for number in range(3):
        backlog.add((0, "behind it"), (1, str(number)))
        eventually(lambda number=number: (1, str(number)) in handler.done)  # type: ignore[misc]
    assert handler.begun[0, "poison"] == 1
    assert backlog.state((0, "behind it")) == Waiting(0, 1, mine)
    mine.stop()
    assert answer.get() == 3


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


def test_who_was_left_behind_sets_nothing_aside(run: Run) -> None:
    """A task hangs and then fails, when another worker has it at hand: the failure ends the first one's run."""
    backlog = backlog_of([(0, "a"), (0, "b")], 1, retries=5, on_failure="set aside")
    hung, let, at_hand, go_on = (threading.Event() for _ in range(4))
    old, new = (Ownership("ingest", 1, group_for=group_for) for _ in range(2))

    def hang(task: Any, token: int) -> None:
        hung.set()
        eventually(let.is_set)
        raise Poison

    def handle(task: Any, token: int) -> None:
        at_hand.set()
        eventually(go_on.is_set)

    stuck = run.client().do(old.run, backlog, hang)
    eventually(hung.is_set)
    old.stop(now=True)
    answer = run.client().do(new.run, backlog, handle)
    eventually(at_hand.is_set)
    assert isinstance(backlog.state((0, "a")), AtHand)
    let.set()
    with pytest.raises(Poison):
        stuck.get()
    go_on.set()
    assert answer.get() == 2
    assert backlog.set_aside == ()


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


def test_an_exception_between_two_tasks_sets_none_aside() -> None:
    """Of a signal handler, say: no task has failed, and the run ends by it."""
    backlog = backlog_of([(0, "a"), (0, "b")], on_failure="set aside")
    mine = Played(2, group_for=group_for)
    mine.join()
    line = backlog.line(0, TOKEN)

    class Torn:
        """A line that is disturbed when a task is taken out."""

        def __getattr__(self, name: str) -> Any:
            return getattr(line, name)

        def __len__(self) -> int:
            return len(line)

        def __getitem__(self, number: int) -> Any:
            return line[number]

        def popleft(self) -> None:
            line.popleft()
            signal.raise_signal(signal.SIGALRM)

    def disturb(number: int, frame: object) -> None:
        raise TimeoutError("time is over")

    before = signal.signal(signal.SIGALRM, disturb)
    try:
        backlog._lines[0].tasks = Torn()  # type: ignore[assignment]
        with pytest.raises(TimeoutError):
            mine.run(backlog, Handler())
    finally:
        signal.signal(signal.SIGALRM, before)
        mine.stop()
    assert backlog.set_aside == ()
    assert list(line) == [(0, "b")]


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


def test_a_failure_comes_out_as_it_was_raised() -> None:
    """With its cause, and with what was being handled when it came."""
    first_, cause = KeyError("first"), OSError("cause")

    def handle(task: Any, token: int) -> None:
        try:
            raise first_
        except KeyError:
            raise Poison from cause

    for retries in (0, 1):
        backlog = backlog_of([(0, "a")], retries=retries)
        with pytest.raises(Poison) as caught:
            Played(2, group_for=group_for).run(backlog, handle)
        assert caught.value.__cause__ is cause
        assert caught.value.__context__ is first_


@pytest.mark.parametrize("options", [{}, {"retries": 1}])
def test_a_line_that_is_empty_when_it_is_taken(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was left behind has done its last task in this very moment: nothing is done, and nothing counted."""
    backlog = backlog_of([(0, "poison")], **options)
    handler, mine, line = Handler(), Played(2, group_for=group_for), backlog.line

    def empty(group: int, token: int) -> Any:
        found = line(group, token)
        if handler.begun or not options:
            found.clear()
        return found

    monkeypatch.setattr(backlog, "line", empty)
    assert mine.run(backlog, handler) == 0
    assert mine.statistics().failed == len(options)
    assert backlog.finished
