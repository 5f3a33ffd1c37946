"""What a backlog says of one task: it waits, is at hand, or is done, and where."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from locks.ownership import AtHand, Backlog, Done, Ownership, TaskState, Waiting
from tests.api.clients import Run
from tests.helpers import eventually

TASKS = [(0, "a"), (1, "b"), (0, "c")]


def first(task: tuple[Any, ...]) -> Any:
    """A task's resource."""
    return task[0]


def backlog_of(tasks: list[tuple[int, str]], **options: Any) -> Backlog[tuple[int, str]]:
    """A backlog with two groups."""
    return Backlog(tasks, first, groups=2, group_for=int, **options)


def worker() -> Ownership:
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
    return [backlog.state(task) for task in TASKS]


def test_a_task_waits_then_is_at_hand_then_done(run: Run) -> None:
    """With how many are ahead of it, its worker, and the token that its handler has; also while others wait."""
    backlog = backlog_of(TASKS)
    assert states(backlog) == [Waiting(0, 0, None), Waiting(1, 0, None), Waiting(0, 1, None)]
    mine, hands = worker(), Hands()
    answer = run.client().do(mine.run, backlog, hands)
    eventually(lambda: len(mine.owned()) == 2)  # it begins a task as soon as it has the first
    for number in (1, 2, 3):
        hands.wait_for(number)
        task, token = hands.tokens[-1]
        assert backlog.state(task) == AtHand(task[0], mine, token)
        at_hand = TASKS.index(task)
        done = [TASKS.index(each) for each, _ in hands.tokens[:-1]]
        for index, state in enumerate(states(backlog)):
            if index in done:
                assert state == Done(TASKS[index][0])
            elif index != at_hand:
                before = [i for i in range(index) if TASKS[i][0] == TASKS[index][0]]
                ahead = len([i for i in before if i not in done])
                assert state == Waiting(TASKS[index][0], ahead, mine)
        hands.let.release()
    assert answer.get() == 3
    assert states(backlog) == [Done(0), Done(1), Done(0)]


def test_a_worker_that_hangs_is_found_by_its_task_and_left_behind(run: Run) -> None:
    """The answer has the worker to stop; then the next owner has the task at hand, with a larger token."""
    backlog = backlog_of(TASKS[:1])
    hung, hands, more = worker(), Hands(), Hands()
    stuck = run.client().do(hung.run, backlog, hands)
    eventually(lambda: hands.tokens)
    other = worker()
    answer = run.client().do(other.run, backlog, more)
    eventually(lambda: other.owned())
    state = backlog.state(TASKS[0])
    assert state == AtHand(0, hung, hands.tokens[0][1])
    assert isinstance(state, AtHand)
    state.worker.stop(now=True)
    eventually(lambda: more.tokens)
    assert backlog.state(TASKS[0]) == AtHand(0, other, more.tokens[0][1])
    assert more.tokens[0][1] > hands.tokens[0][1]
    more.let.release()
    assert answer.get() == 1
    assert backlog.state(TASKS[0]) == Done(0)
    hands.let.release()
    stuck.get()


def test_a_task_whose_handler_has_failed_waits_again(run: Run) -> None:
    """It is not done; nobody has it at hand, and no worker owns its group."""
    backlog = backlog_of(TASKS[:1])

    def fail(task: Any, token: int) -> None:
        assert backlog.state(task) == AtHand(0, mine, token)  # also asked by its own handler
        raise ConnectionError("the network is gone")

    mine = worker()
    with pytest.raises(ConnectionError):
        run.client().call(mine.run, backlog, fail)
    assert backlog.state(TASKS[0]) == Waiting(0, 0, None)
