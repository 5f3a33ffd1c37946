"""Who may share a backlog, and who may run within whom: what can't be safe, or can't end, is refused at the start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import locks
import locks_leader
from locks.ownership import Backlog, Ownership
from tests.api.clients import Run
from tests.cluster.nodes import Nodes
from tests.helpers import eventually


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Nodes of this process, which are ended."""
    found = Nodes()
    yield found
    found.stop()


def nothing(task: Any, token: int) -> None:
    """Do a task."""


@pytest.mark.parametrize("first", [0, 1])
def test_workers_of_both_classes_share_no_backlog(run: Run, first: int) -> None:
    """Their coordinators know nothing of each other: each task would be done by both."""
    kinds: list[Any] = [Ownership, locks_leader.Ownership]
    tasks = Backlog(range(100), groups=4, more=True)
    done: Counter[int] = Counter()

    def handle(task: int, token: int) -> None:
        done[task] += 1
        run.pause()

    one, two = kinds[first]("x", 4), kinds[1 - first]("x", 4)
    answer = run.client().do(one.run, tasks, handle)
    eventually(lambda: done)
    with pytest.raises(locks.errors.InvalidOption, match="know nothing of those of"):
        run.client().call(two.run, tasks, handle)
    assert not two.joined
    tasks.close()
    assert answer.get() == 100
    assert set(done.values()) == {1}


@pytest.mark.parametrize("kind", [Ownership, locks_leader.Ownership])
def test_workers_of_two_nodes_share_no_backlog(kind: Any, nodes: Nodes) -> None:
    """Whoever is on another node has another backlog; those of one node share, also once it was stopped and started again."""
    one, two = nodes.start("n1@127.0.0.1"), nodes.start("n2@127.0.0.1")
    tasks = Backlog(range(10), groups=2)
    assert kind("x", 2, node=one).run(tasks, nothing) == 10
    assert kind("x", 2, node=one).run(tasks, nothing) == 0
    for other in (kind("x", 2, node=two), kind("x", 2)):
        with pytest.raises(locks.errors.InvalidOption, match="n1@127"):
            other.run(tasks, nothing)
        assert not other.joined
    one.stop()
    again = nodes.start("n1@127.0.0.1")
    assert kind("x", 2, node=again).run(tasks, nothing) == 0


# --- Within a handler -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Ownership, locks_leader.Ownership])
@pytest.mark.parametrize("same", [True, False])
def test_a_handler_runs_no_worker_of_the_same_name(run: Run, kind: Any, same: bool) -> None:
    """It would wait for the tasks in the groups of its own worker, which waits for it. The task fails by that, and says so."""
    tasks = Backlog([1], groups=2)
    others = tasks if same else Backlog(range(9), groups=2)

    def handle(task: int, token: int) -> None:
        kind("x", 2).run(others, nothing)

    with pytest.raises(locks.MisuseError, match="was called by the handler of a task"):
        run.client().call(kind("x", 2).run, tasks, handle)
    assert len(tasks) == 1
