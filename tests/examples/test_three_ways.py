"""The three ways of the example: what each takes, and that the example would find a wrong one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import locks
from examples import three_ways
from examples.three_ways import WAYS, Figures, Scene, Task, all_different, measure, skewed
from locks.ownership import stable_hash

SIZE, WORKERS, GROUPS = 400, 4, 16
BY_LOCKS = [name for name in WAYS if name.startswith("1")]
BY_OWNERSHIP = [name for name in WAYS if name.startswith(("3b", "3c"))]
EACH_RESOURCE, EACH_GROUP = (name for name in WAYS if name.startswith(("2 ", "3 ")))
INPUTS = {"skewed": skewed(SIZE, 1), "all different": all_different(SIZE)}


@pytest.fixture(autouse=True)
def node() -> Iterator[locks.node.Node]:
    """The node whose lock server counts the agreements."""
    locks.stop()
    yield locks.start("three-ways@localhost")
    locks.stop()


def took(way: str, kind: str, nap: float = 0.0) -> Figures:
    """What a way takes. It raises an error unless each task is executed once, and alone."""
    return measure(way, INPUTS[kind], WORKERS, GROUPS, nap)


def test_inputs_are_those_of_the_text() -> None:
    """Nine of ten tasks are on one resource; in the worst case each one has its own."""
    on = [task.resource for task in INPUTS["skewed"]]
    assert on.count(three_ways.HOT) == SIZE * 9 // 10
    assert len({task.number for task in INPUTS["skewed"]}) == SIZE
    assert len({task.resource for task in INPUTS["all different"]}) == SIZE


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("way", BY_LOCKS)
def test_a_lock_for_each_task_takes_an_agreement_for_each(way: str, kind: str) -> None:
    """At least Size(T) agreements, and some for tasks that somebody else has executed meanwhile."""
    assert SIZE <= took(way, kind).agreements < 1.5 * SIZE


@pytest.mark.parametrize("kind", INPUTS)
def test_ownership_of_resources_takes_an_agreement_for_each(kind: str) -> None:
    """N agreements for N resources: as many as tasks, in the worst case."""
    figures = took(EACH_RESOURCE, kind)
    resources = {task.resource for task in INPUTS[kind]}
    assert figures.agreements == figures.handed_over == len(resources)


@pytest.mark.parametrize("kind", INPUTS)
def test_ownership_of_groups_takes_an_agreement_for_each(kind: str) -> None:
    """As many agreements as groups that have resources."""
    used = {stable_hash(task.resource) % GROUPS for task in INPUTS[kind]}
    assert took(EACH_GROUP, kind).agreements == len(used) <= GROUPS


@pytest.mark.parametrize("groups", [8, 512])
@pytest.mark.parametrize("way", BY_OWNERSHIP)
def test_ownership_takes_an_agreement_for_each_worker_at_most(way: str, groups: int) -> None:
    """One for each that comes or goes, however many groups they hand over."""
    figures = measure(way, INPUTS["skewed"], WORKERS, groups, 0.0)
    assert 1 <= figures.agreements <= 2 * WORKERS
    assert figures.handed_over >= groups
    assert figures.in_vain == 0


def test_only_locks_for_each_task_starve_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """By locks the other tasks wait as long as those on the hot resource; by ownership they don't."""
    order: list[Task] = []
    start = Scene.start_processing

    def noted(scene: Scene, task: Task) -> None:
        start(scene, task)
        order.append(task)

    def late(way: str) -> float:
        """The share of all tasks that are begun before 95 % of those on other resources are."""
        order.clear()
        figures = took(way, "skewed", nap=0.0002)
        assert (figures.in_vain > 0) == (way in BY_LOCKS)
        others = [n for n, task in enumerate(order) if task.resource != three_ways.HOT]
        return others[len(others) * 95 // 100] / len(order)

    monkeypatch.setattr(Scene, "start_processing", noted)
    assert late(BY_LOCKS[0]) > 2 * late(BY_OWNERSHIP[1])


def test_a_way_without_coordination_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example fails when two workers are on one resource, or a task is done twice."""

    def careless(scene: Scene, number: int) -> None:
        while task := scene.pick():
            scene.execute(task)

    monkeypatch.setitem(WAYS, "careless", lambda _: careless)
    with pytest.raises(RuntimeError, match="another worker is on its resource"):
        took("careless", "skewed", nap=0.001)


def test_a_way_that_leaves_tasks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example fails when not all tasks are executed."""
    monkeypatch.setitem(WAYS, "lazy", lambda _: lambda scene, number: None)
    with pytest.raises(RuntimeError, match="400 tasks were not executed"):
        took("lazy", "skewed")


def test_preconditions_of_the_text_are_checked() -> None:
    """No task begins on a resource that is in use, and none that is executed; others may."""
    first, second, third = tasks = [Task(1, 7), Task(2, 7), Task(3, 8)]
    scene = Scene(tasks, 1, GROUPS, 0.0, 0)
    scene.start_processing(first)
    with pytest.raises(RuntimeError):
        scene.start_processing(second)
    scene.start_processing(third)
    scene.end_processing(first)
    with pytest.raises(RuntimeError):
        scene.start_processing(first)
    scene.start_processing(second)
    scene.end_processing(third)
    assert scene.pick() == second
    scene.end_processing(second)
    assert scene.pick() is None


# --- The command line -----------------------------------------------------------------------------
