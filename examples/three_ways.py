"""Many workers, many tasks, never two tasks on one resource at once: three ways, and what they cost.

    python -m examples.three_ways [--tasks 10000] [--workers 8] [--plot FILE.svg] [--json]

1. A lock for each task: a worker picks any task that is not executed, and locks its resource.
2. Ownership of each resource: workers agree first which of them owns which resource. Then each one
   executes the tasks of its own resources, without asking.
3. Ownership of each group of resources: the same with fewer agreements; and as `locks.ownership` does
   it, with one agreement for all groups that move when a worker comes or goes.

Agreements are counted by the lock server: one is a lock that it has granted. On one node it costs
some microseconds, on several nodes a round of messages. There are two inputs: one in which nine of
ten tasks are on the same resource, and the worst one for the second way, in which all resources are
different.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import locks
from locks.ownership import Backlog, Ownership, stable_hash

HOT = 0  # the resource that nine of ten tasks are on
now = time.perf_counter


class Task(NamedTuple):
    """A task, and the resource that it is on."""

    number: int
    resource: int


@dataclass
class Diary:
    """How one worker has spent its time, in seconds, and what it was given to own."""

    executing: float = 0.0
    waiting: float = 0.0  # for locks, or until it owned something
    handed_over: int = 0


class Scene:
    """The tasks, which of them are executed, and which worker is on which resource right now.

    It stands for the database that the tasks are in. It does not keep workers apart: it checks that
    they are.
    """

    def __init__(self, tasks: list[Task], workers: int, groups: int, nap: float, seed: int) -> None:
        self.tasks, self.workers, self.groups, self.nap = tasks, workers, groups, nap
        self.resources = sorted({task.resource for task in tasks})
        self.executed: set[int] = set()
        self.begun: dict[int, float] = {}  # when, by the number of the task
        self.settled: set[int] = set()  # resources or groups whose owner is known
        self.diaries = [Diary() for _ in range(workers)]
        self.all_there = threading.Barrier(workers)
        self.all_asked = threading.Barrier(workers)
        self.all_done = threading.Barrier(workers)
        self._mutex = threading.Lock()
        self._random = random.Random(seed)
        self._open = list(tasks)
        self._place = {task.number: place for place, task in enumerate(tasks)}
        self._in_use: set[int] = set()
        self._here = threading.local()

    @property
    def diary(self) -> Diary:
        """The diary of the calling worker."""
        diary: Diary = self._here.diary
        return diary

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The worker can't go on before something is agreed on."""
        asked = now()
        try:
            yield
        finally:
            self.diary.waiting += now() - asked

    def pick(self) -> Task | None:
        """Any task that is not executed."""
        with self._mutex:
            return self._random.choice(self._open) if self._open else None

    def start_processing(self, task: Task) -> None:
        """A worker begins a task.

        Raises:
            RuntimeError: It is executed already, or another worker is on its resource.
        """
        with self._mutex:
            if task.number in self.executed or task.resource in self._in_use:
                raise RuntimeError(f"{task} is executed, or another worker is on its resource")
            self._in_use.add(task.resource)
            self.begun[task.number] = now()

    def end_processing(self, task: Task) -> None:
        """The task is executed."""
        with self._mutex:
            self._in_use.remove(task.resource)
            self.executed.add(task.number)
            place, last = self._place[task.number], self._open.pop()
            if last != task:
                self._open[place] = last
                self._place[last.number] = place

    def execute(self, task: Task) -> None:
        """Do a task."""
        begun = now()
        self.start_processing(task)
        time.sleep(self.nap)
        self.end_processing(task)
        self.diary.executing += now() - begun

    def work(self, way: Callable[[Scene, int], None], number: int) -> None:
        """What the thread of a worker does."""
        self._here.diary = self.diaries[number]
        self.all_there.wait()
        way(self, number)


# --- 1. A lock for each task ----------------------------------------------------------------------


def lock_for_each_task(scene: Scene, number: int) -> None:
    """Pick any task, lock its resource, and look again: it may have been executed meanwhile."""
    while task := scene.pick():
        with locks.transaction() as tx:
            with scene.asking():
                tx.write_lock(("resource", task.resource))
            if task.number not in scene.executed:
                scene.execute(task)


def lock_or_pick_another(scene: Scene, number: int) -> None:
    """The same without waiting for a lock: sleep as long as ten tasks take, and pick again.

    Without the sleep about a million requests fail, and it takes more than a minute.
    """
    while task := scene.pick():
        with locks.transaction() as tx:
            try:
                tx.write_lock(("resource", task.resource), timeout=0)
            except locks.LockTimeout:
                with scene.asking():
                    time.sleep(10 * scene.nap)
                continue
            if task.number not in scene.executed:
                scene.execute(task)


# --- 2. Ownership of each resource; 3. of each group of resources ---------------------------------


def own_each_resource(scene: Scene, number: int) -> None:
    """Own resources, and do their tasks."""
    own(scene, number, {resource: resource for resource in scene.resources})


def own_each_group(scene: Scene, number: int) -> None:
    """Own groups of resources, and do their tasks."""
    own(scene, number, {r: stable_hash(r) % scene.groups for r in scene.resources})


def own(scene: Scene, number: int, group_for: dict[int, int]) -> None:
    """Get the ownership of what has no owner yet, and keep it: the owner holds the lock."""
    groups = sorted(set(group_for.values()))
    first, end = (len(groups) * place // scene.workers for place in (number, number + 1))
    owned: dict[int, deque[Task]] = {}
    with locks.transaction() as tx:
        with scene.asking():
            for group in [*groups[first:end], None, *groups]:  # its share, then the rest
                if group is None:
                    scene.all_asked.wait()
                    continue
                if group in scene.settled:  # it has an owner already
                    continue
                try:
                    tx.write_lock(("group", group), timeout=0)
                    owned[group] = deque()
                except locks.LockTimeout:
                    pass  # another worker was a little earlier
                scene.settled.add(group)
        scene.diary.handed_over = len(owned)
        for task in scene.tasks:
            if (group := group_for[task.resource]) in owned:
                owned[group].append(task)
        lines = list(owned.values())
        while lines := [line for line in lines if line]:
            for line in lines:
                scene.execute(line.popleft())
        scene.all_done.wait()


# --- 3. Ownership of each group, by `locks.ownership` ---------------------------------------------


def by_group(scene: Scene) -> Callable[[Scene, int], None]:
    """Each worker does the tasks of the groups that it owns."""
    return share_out(Backlog(scene.tasks, lambda task: task.resource, groups=scene.groups))


def by_group_hot_apart(scene: Scene) -> Callable[[Scene, int], None]:
    """The same, but the resource that is known to be hot has a group to itself."""

    def group_for(resource: Hashable) -> int:
        return 0 if resource == HOT else 1 + stable_hash(resource) % (scene.groups - 1)

    return share_out(
        Backlog(scene.tasks, lambda task: task.resource, groups=scene.groups, group_for=group_for)
    )


def share_out(backlog: Backlog[Task]) -> Callable[[Scene, int], None]:
    """The way of a worker with a backlog that all share."""
    grouping = backlog.grouping

    def way(scene: Scene, number: int) -> None:
        asked = now()

        def handler(task: Task, token: int) -> None:
            scene.diary.waiting = scene.diary.waiting or now() - asked  # until the first task
            scene.execute(task)

        with Ownership("tasks", grouping.groups, group_for=grouping.group_for) as mine:
            mine.run(backlog, handler)
            scene.all_done.wait()
            scene.diary.handed_over = mine.statistics().gained

    return way


WAYS: dict[str, Callable[[Scene], Callable[[Scene, int], None]]] = {
    "1  lock for each task": lambda _: lock_for_each_task,
    "1b lock, or pick another": lambda _: lock_or_pick_another,
    "2  own each resource": lambda _: own_each_resource,
    "3  own each group": lambda _: own_each_group,
    "3b locks.ownership": by_group,
    "3c same, hot one apart": by_group_hot_apart,
}
PLOTTED = (("1 ", 0, False), ("1b", 0, True), ("3b", 1, False), ("3c", 1, True))


# --- Counting -------------------------------------------------------------------------------------


@dataclass
class Figures:
    """The cost of one way.

    Attributes:
        way: Its name.
        agreements: Locks that the lock server has granted.
        handed_over: Resources or groups that workers were given by them.
        in_vain: Requests for locks that were not free.
        seconds: From the start until the last task was begun.
        executing: The share of the workers' time in which they executed tasks.
        waiting: The share in which they waited for locks, or until they owned something.
        idle: The share in which they had nothing to do.
        others: When the tasks that are not on the hot resource were begun, in seconds, in order.
    """

    way: str
    agreements: int
    handed_over: int
    in_vain: int
    seconds: float
    executing: float
    waiting: float
    idle: float
    others: list[float] = field(repr=False)

    def waits(self) -> tuple[float, float, float]:
        """How long the others have waited: the median, the 95th percentile, and the last one."""
        count = len(self.others)
        return self.others[count // 2], self.others[count * 95 // 100], self.others[-1]

    def as_json(self) -> dict[str, object]:
        """As plain data."""
        named = zip(("median", "95 %", "last"), self.waits(), strict=True)
        return {**asdict(self), "others": dict(named)}


def measure(
    name: str, tasks: list[Task], workers: int, groups: int, nap: float, seed: int = 0
) -> Figures:
    """Have workers execute tasks in one of the ways.

    Raises:
        RuntimeError: Two workers were on one resource, or a task was not executed exactly once.
    """
    scene = Scene(tasks, workers, groups, nap, seed)
    way = WAYS[name](scene)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            scene.work(way, number)
        except BaseException as error:
            errors.append(error)
            for barrier in (scene.all_there, scene.all_asked, scene.all_done):
                barrier.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    before = locks.statistics().table
    begun = now()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time_of_all = workers * (now() - begun)
    after = locks.statistics().table
    if errors:
        raise errors[0]
    if len(scene.executed) != len(tasks):
        raise RuntimeError(f"{len(tasks) - len(scene.executed)} tasks were not executed")
    seconds = max(scene.begun.values()) - begun
    executing = sum(diary.executing for diary in scene.diaries) / time_of_all
    waiting = sum(diary.waiting for diary in scene.diaries) / time_of_all
    agreements = after.grants - before.grants
    return Figures(
        way=name,
        agreements=agreements,
        handed_over=sum(diary.handed_over for diary in scene.diaries) or agreements,
        in_vain=after.waits - before.waits,
        seconds=seconds,
        executing=executing,
        waiting=waiting,
        idle=max(0.0, 1 - executing - waiting),
        others=sorted(scene.begun[t.number] - begun for t in tasks if t.resource != HOT),
    )


def skewed(size: int, seed: int) -> list[Task]:
    """Nine of ten tasks are on one resource, four on each of the others."""
    others = size // 10
    resources = [HOT] * (size - others) + [1 + number // 4 for number in range(others)]
    random.Random(seed).shuffle(resources)
    return [Task(number, resource) for number, resource in enumerate(resources)]


def all_different(size: int) -> list[Task]:
    """Each task has a resource to itself."""
    return [Task(number, 1 + number) for number in range(size)]


# --- Telling --------------------------------------------------------------------------------------


def costs(rows: list[Figures]) -> Iterator[str]:
    """The cost of each way."""
    yield f"{'':24}  agree-  handed     not          share of workers' time"
    yield f"{'':24}   ments    over    free seconds at work waiting  idle"
    for row in rows:
        yield (
            f"{row.way:24} {row.agreements:7,} {row.handed_over:7,} {row.in_vain:7,} "
            f"{row.seconds:7.2f} {row.executing:7.0%} {row.waiting:7.0%} {row.idle:5.0%}"
        )


def starvation(rows: list[Figures]) -> Iterator[str]:
    """How long the tasks waited that are not on the hot resource."""
    yield f"{'':24}  begun after seconds       in % of the whole"
    yield f"{'':24}  median   95 %   last      median   95 %   last"
    for row in rows:
        waits = row.waits()
        yield (
            f"{row.way:24} {''.join(f'{wait:7.3f}' for wait in waits)}     "
            f"{''.join(f'{wait / row.seconds:7.0%}' for wait in waits)}"
        )


def drawing(rows: list[Figures]) -> str:
    """How many of those tasks still wait, over the time, as SVG."""
    from benchmarks.plot import Line, plot

    lines = []
    for name, colour, dashed in PLOTTED:
        (row,) = (row for row in rows if row.way.startswith(name))
        count = len(row.others)
        points = [(1.0, float(count))]
        for begun, left in zip(row.others, range(count, 0, -1), strict=True):
            if left <= 0.9 * points[-1][1]:  # not so many that they hide the line
                points.append((max(1.0, 1000 * begun), float(left)))
        lines.append(Line(row.way[3:], points, colour, dashed))
    lines.sort(key=lambda line: line.points[-1])  # so the labels are stacked
    title = "Tasks on other resources than the hot one that have not been begun, over the time"
    return plot(lines, "milliseconds", "tasks that wait", title)


def main(arguments: list[str] | None = None) -> int:
    """Run all ways with both inputs, and print their costs."""
    parser = argparse.ArgumentParser(prog="python -m examples.three_ways")
    parser.add_argument("--tasks", type=int, default=10_000, help="how many (10,000)")
    parser.add_argument("--workers", type=int, default=8, help="how many threads (8)")
    parser.add_argument("--groups", type=int, default=64, help="how many groups of resources (64)")
    parser.add_argument("--nap", type=float, default=0.1, help="milliseconds of each task (0.1)")
    parser.add_argument("--seed", type=int, default=0, help="of the order of tasks (0)")
    parser.add_argument("--plot", metavar="FILE", help="write a plot of who waits, as SVG")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(arguments)
    for name, least in (("tasks", 40), ("workers", 1), ("groups", 2), ("nap", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name} {getattr(options, name)} is less than {least}")
    tasks, workers, groups = options.tasks, options.workers, options.groups
    nap, seed = options.nap / 1000, options.seed
    inputs = {"skewed": skewed(tasks, seed), "all different": all_different(tasks)}

    out = sys.stderr if options.json else sys.stdout
    found: dict[str, list[Figures]] = {}
    locks.start("three-ways@localhost")
    try:
        for title, tasks_of_it in inputs.items():
            on_hot = sum(task.resource == HOT for task in tasks_of_it)
            resources = len({task.resource for task in tasks_of_it})
            print(
                f"{title}: {tasks:,} tasks on {resources:,} resources, {on_hot:,} on one; "
                f"{workers} workers, {groups} groups\n",
                file=out,
            )
            ways = [name for name in WAYS if on_hot or not name.startswith(("1b", "3c"))]
            rows = [measure(name, tasks_of_it, workers, groups, nap, seed) for name in ways]
            found[title] = rows
            print(*costs(rows), sep="\n", end="\n\n", file=out)
            if on_hot:
                print(f"The {tasks - on_hot:,} tasks on other resources:\n", file=out)
                print(*starvation(rows), sep="\n", end="\n\n", file=out)
    finally:
        locks.stop()
    if options.json:
        about = {"tasks": tasks, "workers": workers, "groups": groups, "nap": nap, "seed": seed}
        ways_of = {title: [row.as_json() for row in rows] for title, rows in found.items()}
        print(json.dumps({**about, "ways": ways_of}, indent=2))
    if options.plot:
        Path(options.plot).write_text(drawing(found["skewed"]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
