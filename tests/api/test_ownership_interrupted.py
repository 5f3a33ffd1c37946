"""Ownership: calls that meet in the middle of each other, and calls that are broken off."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import locks
from locks.ownership import Backlog, Ownership
from locks.ownership.part import Part
from tests.api.clients import Run
from tests.helpers import eventually


class Failure(Exception):
    """What goes wrong on purpose."""


def group_for(task: int) -> int:
    """The group of a task."""
    return task % 2


def own(**options: Any) -> Ownership:
    """A worker of "ingest", which has two groups."""
    return Ownership("ingest", 2, group_for=group_for, **options)


def backlog_of(tasks: Any) -> Backlog[Any]:
    """A backlog with the same groups."""
    return Backlog(tasks, groups=2, group_for=group_for)


# --- Joining --------------------------------------------------------------------------------------


@pytest.mark.every_kind
def test_a_join_that_is_broken_off_keeps_no_groups(run: Run) -> None:
    """`KeyboardInterrupt`, or a kill, when the coordinator knows of the worker already."""

    class Interrupted(Ownership):
        def _start(self, part: Part) -> None:
            super()._start(part)
            raise KeyboardInterrupt

    mine, other = Interrupted("ingest", 2), Ownership("ingest", 2)
    with pytest.raises(KeyboardInterrupt):
        mine.join()
    assert not mine.joined
    run.client().call(other.join)
    eventually(lambda: len(other.owned()) == 2)
    other.stop()


def test_a_join_that_is_broken_off_before_it_arrives(run: Run) -> None:
    """The coordinator hears of a worker whose `join` was left long ago: it is shown out again."""
    mine = own()
    late: list[Part] = []

    class Slow(Ownership):
        def _start(self, part: Part) -> None:
            late.append(part)
            raise Failure

    with pytest.raises(Failure):
        run.client().call(Slow("ingest", 2, group_for=group_for).join)
    mine._start(late[0])
    run.client().call(mine.join)
    eventually(lambda: len(mine.owned()) == 2)
    mine.stop()


def test_a_stop_before_join_is_through_counts(run: Run) -> None:
    """`on_gained` stops the worker, and `join` has not returned yet."""
    told = threading.Event()

    class Slow(Ownership):
        def _start(self, part: Part) -> None:
            super()._start(part)
            eventually(told.is_set)

    def stop(group: int, token: int) -> None:
        mine.stop()
        told.set()

    mine = Slow("ingest", 2, on_gained=stop)
    client = run.client()
    client.call(mine.join)
    eventually(lambda: not mine.joined)


# --- Running --------------------------------------------------------------------------------------


def test_a_worker_runs_one_backlog_at_a_time(run: Run) -> None:
    """Two loops of one worker would do a task twice and take out another one: that is refused."""
    mine = own()
    backlog = backlog_of(range(10))
    done: list[int] = []

    def handle(task: int, token: int) -> None:
        with pytest.raises(locks.MisuseError, match="its own Ownership"):
            mine.run(backlog, handle)
        done.append(task)

    assert run.client().call(mine.run, backlog, handle) == 10
    assert sorted(done) == list(range(10))


def test_a_run_that_is_broken_off_after_the_last_task_tells_the_others(run: Run) -> None:
    """It is killed, or timed out, when all is done: who is idle does not wait for ever."""

    class Torn(deque[int]):
        def popleft(self) -> int:
            super().popleft()
            raise Failure

    one, two = run.client(), run.client()
    mine, other = own(), own()
    one.call(mine.join)
    two.call(other.join)
    eventually(lambda: len(mine.owned()) == len(other.owned()) == 1)
    backlog = backlog_of(mine.owned())
    (group,) = mine.owned()
    backlog.line(group, mine.owned()[group])
    backlog._lines[group].tasks = Torn(backlog._lines[group].tasks)
    waiting = two.do(other.run, backlog, print)
    eventually(lambda: any(run._waiter for run in backlog._runs))  # type: ignore[attr-defined]
    with pytest.raises(Failure):
        one.call(mine.run, backlog, lambda task, token: None)
    assert waiting.get() == 0
    mine.stop()
    other.stop()


# --- Stopping in the middle -----------------------------------------------------------------------


def test_control_c_leaves_nothing_at_hand(run_script: Callable[..., str]) -> None:
    """It comes when a task is being entered, as begun or ended: the worker can leave all the same."""
    script = """
        import signal, time
        import locks
        from locks.ownership import Ownership
        from locks.ownership.member import Member

        class Interrupted(Member):
            when = "begin"

            def begin_task(self, group, task):
                self.interrupt("begin")
                return super().begin_task(group, task)

            def end_task(self, task):
                self.interrupt("end")
                return super().end_task(task)

            def interrupt(self, what):
                if what == self.when:
                    Interrupted.when = ""  # once: the background may do it again
                    signal.raise_signal(signal.SIGINT)  # in this thread: it comes right here

        locks.start()
        for when in ("begin", "end"):
            mine = Ownership("ingest", 1)
            try:
                with mine:
                    while not mine.owned():
                        time.sleep(0.001)
                    Interrupted.when = when
                    mine._part.member.__class__ = Interrupted
                    with mine.hold("a"):
                        pass
            except KeyboardInterrupt:
                print(when, mine.joined, mine.statistics().at_hand)
    """
    assert run_script(script).splitlines() == ["begin False 0", "end False 0"]
