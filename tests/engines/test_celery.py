"""Celery's beat as one of several, and tasks that run one at a time: with the real programs, which are killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import locks
from tests.cluster.servers import Machine
from tests.engines.beats import Beats
from tests.helpers import eventually

pytestmark = pytest.mark.usefixtures("here")

pytest.importorskip("celery", reason="Celery is not installed: pip install pykka-locks[celery]")


@pytest.fixture(autouse=True)
def no_node() -> Iterator[None]:
    """The node of this process, if a test starts it, is stopped: other tests have one of their own."""
    yield
    locks.stop()


def beats(machine: Machine, folder: Path, step: float = 0.1, number: int = 600) -> Beats:
    """Beats with entries that are due from now on."""
    return Beats(machine, folder, time.time() + 2, step, number)


@pytest.mark.slow
def test_the_next_beat_goes_on_when_the_leader_is_killed(machine: Machine, tmp_path: Path) -> None:
    """One of two sends; when it is killed the other one goes on, and nothing is left out or sent more than once more.

    Between two entries is time for the other one to be told of the mark: it may miss those of the last moment.
    """
    crowd = beats(machine, tmp_path, step=0.5)
    with crowd.beat() as one, crowd.beat() as two:
        leader, first = crowd.leader(), crowd.due()
        assert leader in (one.process.pid, two.process.pid)
        eventually(lambda: crowd.waiting() == 1)
        eventually(lambda: crowd.due() > first + 2 and not crowd.unsent(first, crowd.due()))
        os.kill(leader, signal.SIGKILL)
        end = crowd.due() + 3
        eventually(lambda: not crowd.unsent(first, end))
        assert {leader, crowd.leader()} == {one.process.pid, two.process.pid}
    sent = Counter(number for number, _ in crowd.sent())
    assert sum(sent.values()) <= len(sent) + 1


def test_what_the_last_leader_sent_just_before_its_death_is_not_sent_again() -> None:
    """The next one was told of no mark, but the lock servers know it: it continues from there, and sends the next one in time."""
    from celery import Celery, beat

    from locks.engines.celery import LeaderMixin

    sent = []

    class Counts(LeaderMixin, beat.Scheduler):
        def apply_async(self, entry: Any, **options: Any) -> None:
            sent.append((self, entry.name))

    app = Celery("the last moment", broker="memory://")
    app.conf.beat_schedule = {name: {"task": "nothing", "schedule": 3600.0} for name in ("x", "y")}
    one, two = Counts(app=app), Counts(app=app)
    for each in (one, two):
        each._since -= timedelta(hours=2)  # it waits for so long
    two._leading._told = lambda view: None  # type: ignore[method-assign]
    two._leading.follow()
    try:
        one.tick()
        one._leading.give_up()  # it dies after it has sent one of two
        for _ in range(4):
            two.tick()
        assert [name for _, name in sent] in (["x", "y"], ["y", "x"])
        assert [by for by, _ in sent] == [one, two]
        assert two.tick() == two.max_interval  # nothing else is due
    finally:
        one.close()
        two.close()


def test_a_task_runs_one_at_a_time() -> None:
    """Another one at the same time does nothing; afterwards it runs again. The lock may depend on the arguments."""
    from locks.engines.celery import single

    done = []

    @single(lambda name, *_: ("test of single", name))
    def work(name: str, then: bool = True) -> str:
        """Do it."""
        done.append(name)
        if then:
            for other in ("ann", "bob"):
                with locks.Owner(f"another worker for {other}"):
                    done.append(str(work(other, False)))  # type: ignore[call-arg]
        return f"{name} is done"

    assert work("ann") == "ann is done"
    assert done == ["ann", "None", "bob", "bob is done"]
    assert work("ann", False) == "ann is done"
    assert work.__doc__ == "Do it."


def test_what_a_task_waits_for_is_an_error_of_its_own() -> None:
    """A `LockTimeout` within the task is the task's, and no reason to say that it was not run."""
    from locks.engines.celery import single

    @single(("test of single", "waits"))
    def work() -> None:
        with locks.Owner("another"), locks.transaction() as tx:
            tx.write_lock(("test of single", "waits"), timeout=0)

    with pytest.raises(locks.LockTimeout):
        work()


def test_a_single_task_of_nothing_is_refused() -> None:
    """What is no lock id, or no timeout, is said where it stands."""
    from locks.engines.celery import single

    with pytest.raises(locks.errors.InvalidLockId):
        single("report")
    with pytest.raises(locks.errors.InvalidOption):
        single(("report",), timeout=-1)


def test_a_single_task_that_its_own_thread_runs_already_does_nothing() -> None:
    """As with one that another worker runs; it would wait for itself."""
    from locks.engines.celery import single

    done = []

    @single(("test of single", "nested"))
    def work(again: bool) -> str:
        done.append(again)
        return str(work(False)) if again else "done"

    assert work(True) == "None"
    assert done == [True]
