"""Tasks that fail: the run stops, or they are begun again, or set aside."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import Any

import gevent
import pytest

from locks.errors import InvalidOption
from locks.ownership import Backlog, Done, Ownership, StaleToken, Waiting
from tests.api.clients import Run
from tests.api.played import Played


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
