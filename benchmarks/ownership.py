"""Figures of ownership: what it costs to do only tasks of one's own groups.

The yardstick of `owned` is the same loop without any coordination: the same threads take the same
tasks from one deque, and call the same handler. It does not keep two tasks of one resource apart, and
forgets the task that a dying thread had at hand.

    python -m benchmarks.ownership [WORKERS] [GROUPS] [--tasks]

counts what it takes when workers come and go one at a time: the same on each machine.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from itertools import repeat
from queue import SimpleQueue
from statistics import median
from typing import NamedTuple

import locks
from benchmarks.harness import Figure, Report, Runs, Sample, interleave, run_all
from locks.ownership import Backlog, Ownership, stable_hash
from locks.ownership.spread import spread

__all__ = ["FIGURES", "coming_and_going", "main"]

Task = tuple[str, int]

NAME = "benchmark"
WORKERS = 8
GROUPS = 64
now = time.perf_counter


# --- Many tasks -----------------------------------------------------------------------------------


def nothing(task: Task, token: int = 0) -> None:
    """The handler that does nothing."""


def busy(seconds: float) -> Callable[..., None]:
    """A handler that computes for about that long, without objects: those would measure memory."""
    laps = 100

    def handler(task: Task, token: int = 0) -> None:
        for _ in repeat(None, laps):
            pass

    def lap() -> float:
        begun = time.thread_time()
        for _ in range(1000):
            handler(("", 0))
        return (time.thread_time() - begun) / 1000 / 100

    laps = max(1, round(seconds / min(lap() for _ in range(20))))
    return handler


class Took(NamedTuple):
    """Seconds on the wall, and seconds that processors were busy."""

    wall: float
    processor: float


class Stopwatch:
    """Runs from its creation."""

    def __init__(self) -> None:
        self._begun = now(), time.process_time()

    def took(self) -> Took:
        """How long it has run."""
        return Took(now() - self._begun[0], time.process_time() - self._begun[1])


class Scene:
    """Tasks on a thousand resources, and a handler.

    Args:
        size: How many tasks.
        handler: What is to be done with each.
    """

    def __init__(self, size: int, handler: Callable[..., None]) -> None:
        self.tasks: list[Task] = [(f"resource {number % 1000}", number) for number in range(size)]
        self.handler = handler
        self.busy = Runs()  # the processor time, where `interleave` gets the time on the wall

    def bare(self) -> Took:
        """Without any coordination."""
        line = deque(self.tasks)
        handler = self.handler

        def work() -> None:
            take = line.popleft
            while line:
                try:
                    task = take()
                except IndexError:
                    return
                handler(task)

        watch = Stopwatch()
        run_all([work] * WORKERS)
        return watch.took()

    def owned(self) -> Took:
        """With ownership, from joining to having left."""
        backlog = self.backlog()
        watch = Stopwatch()
        self.own(backlog)
        return watch.took()

    def filled(self) -> Took:
        """The same, from filling the backlog."""
        watch = Stopwatch()
        self.own(self.backlog())
        return watch.took()

    def backlog(self) -> Backlog[Task]:
        """All tasks, by group."""
        return Backlog(self.tasks, lambda task: task[0], groups=GROUPS)

    def own(self, backlog: Backlog[Task]) -> None:
        """Do the tasks of one's own groups."""
        done: list[int] = []

        def work() -> None:
            done.append(Ownership(NAME, GROUPS).run(backlog, self.handler))

        run_all([work] * WORKERS)
        if sum(done) != len(self.tasks):
            raise AssertionError(f"{sum(done)} tasks were done of {len(self.tasks)}")

    def sample(self, name: str) -> Sample:
        """A sample of one of them."""
        self.busy[name] = []

        def sample() -> float:
            took: Took = getattr(self, name)()
            self.busy[name].append(took.processor)
            return took.wall

        return sample


def owned(report: Report) -> None:
    """Fill the rows of the figure `owned`."""
    locks.start("benchmark@localhost")
    size = 5_000 if report.quick else 100_000
    for each, handler, rounds, target in (
        ("nothing", nothing, 15, None),  # takes less time than the loop around it
        ("1.5 µs", busy(1.5e-6), 9, report.limit(1.5)),
        ("10 µs", busy(10e-6), 3, report.limit(1.5)),
    ):
        scene = Scene(size, handler)
        samples = {name: scene.sample(name) for name in ("owned", "bare", "filled")}
        runs = interleave(samples, 2 if report.quick else rounds)
        for name, says in (("owned", each), ("filled", f"{each}, backlog filled, too")):
            ratio = median(scene.busy.ratios(name, "bare"))
            report.compare(
                runs, name, "bare", "ms", label=f"{size:,} tasks of {says}",
                yardstick_label="no coordination", target=target if name == "owned" else None,
                note=f"{ratio:.2f}x the processor time",
            )  # fmt: skip
    trickle(report)
    locks.stop()


# --- A trickle of tasks ---------------------------------------------------------------------------


class Trickle:
    """Workers that wait for tasks, which come one at a time.

    Args:
        workers: How many.
        groups: How many groups they share out.
    """

    def __init__(self, workers: int, groups: int) -> None:
        self._tasks: Backlog[int] = Backlog(groups=groups, more=True)
        self._done: SimpleQueue[int] = SimpleQueue()
        self._next = 0
        owners = [Ownership(f"{workers} of {groups}", groups) for _ in range(workers)]
        work = [partial(each.run, self._tasks, self._handle) for each in owners]
        self._threads = [threading.Thread(target=each) for each in work]
        for thread in self._threads:
            thread.start()
        while any(
            not groups // workers <= len(owner.owned()) <= -(-groups // workers) for owner in owners
        ):
            time.sleep(0.01)

    def _handle(self, task: int, token: int) -> None:
        self._done.put(task)

    def sample(self) -> float:
        """The processor time for a task: of who adds it, of who is woken, and of whoever else is."""
        number = 200
        begun = time.process_time()
        for _ in range(number):
            self._next += 1
            self._tasks.add(self._next)
            self._done.get(timeout=30)
        return (time.process_time() - begun) / number

    def end(self) -> None:
        """All is done."""
        self._tasks.close()
        for thread in self._threads:
            thread.join()


def trickle(report: Report) -> None:
    """Fill the rows of tasks that come one at a time."""
    sizes = [(8, 64), (8, 10_000), (200, 256), (200, 10_000)][: 2 if report.quick else 4]
    before = threading.stack_size(1 << 18)
    try:
        crews = {
            f"{workers} workers, {groups:,} groups": Trickle(workers, groups)
            for workers, groups in sizes
        }
    finally:
        threading.stack_size(before)
    runs = interleave(
        {name: crew.sample for name, crew in crews.items()}, 2 if report.quick else 21
    )
    first, *others = crews
    for name in others:
        report.compare(
            runs, name, first, label=f"a task of a trickle, {name}",
            yardstick_label=first, target=report.limit(1.5) if name == [*crews][-1] else None, note="processor time",
        )  # fmt: skip
    for crew in crews.values():
        crew.end()


# --- Workers that come and go ---------------------------------------------------------------------


class Crowd:
    """Workers that own groups and do nothing.

    Args:
        workers: How many there are from the start.
        groups: How many groups they share out.
    """

    def __init__(self, workers: int, groups: int) -> None:
        self.groups = groups
        self.present: list[Ownership] = []
        self._expected = 0
        self._settled = threading.Event()
        self._at = 0.0
        for _ in range(workers):
            self.join()

    def worker(self) -> Ownership:
        """A worker that has not joined."""
        return Ownership(NAME, self.groups, on_gained=self._gained)

    def expect(self, groups: int) -> None:
        """Expect that many groups to be granted from now on."""
        self._settled.clear()
        self._expected = groups

    def settled(self) -> float:
        """Wait for that; return when it was."""
        if not self._settled.wait(30):
            raise AssertionError(f"{self._expected} groups were not granted within 30 s")
        return self._at

    def share(self) -> int:
        """How many groups a worker gets that joins now."""
        return self.groups // (len(self.present) + 1)

    def join(self) -> float:
        """Seconds until one more worker has its share."""
        worker = self.worker()
        self.expect(self.share())
        begun = now()
        worker.join()
        took = self.settled() - begun
        self.present.append(worker)
        return took

    def leave(self) -> float:
        """Seconds until the last one's share is with the others."""
        worker = self.present.pop()
        self.expect(len(worker.owned()))
        begun = now()
        worker.stop()
        return self.settled() - begun

    def die(self) -> float:
        """Seconds from the last action of a thread until the others have its share."""
        last: list[float] = []
        may_end = threading.Event()

        def work() -> None:
            self.worker().join()
            may_end.wait()
            last.append(now())

        self.expect(self.share())
        thread = threading.Thread(target=work)
        thread.start()
        self.settled()
        self.expect(self.share())
        may_end.set()
        thread.join()
        return self.settled() - last[0]

    def end(self) -> None:
        """All leave."""
        for worker in self.present:
            worker.stop()
        while any(worker.joined for worker in self.present):
            time.sleep(0.001)

    def _gained(self, group: int, token: int) -> None:
        self._expected -= 1
        if not self._expected:
            self._at = now()
            self._settled.set()


def agree() -> float:
    """Seconds that an agreement takes: a lock, and its token."""
    begun = now()
    with locks.transaction() as tx:
        tx.write_lock((NAME,))
    return now() - begun


def notice() -> float:
    """Seconds from the last action of a thread until its monitor is told."""
    last: list[float] = []
    told: list[float] = []
    noticed = threading.Event()
    may_end = threading.Event()

    def work() -> None:
        may_end.wait()
        last.append(now())

    def tell(down: object) -> None:
        told.append(now())
        noticed.set()

    thread = threading.Thread(target=work)
    thread.start()
    locks.actors.monitor(thread, tell)
    may_end.set()
    noticed.wait(30)
    thread.join()
    return told[0] - last[0]


def owners(report: Report) -> None:
    """Fill the rows of the figure `owners`."""
    locks.start("benchmark@localhost")
    rounds = 3 if report.quick else 21
    sizes = [(8, 64)] if report.quick else [(8, 64), (64, 64), (8, 1024), (64, 1024), (256, 1024)]
    for workers, groups in sizes:
        crowd = Crowd(workers - 1, groups)
        moves = crowd.share()
        runs = interleave({"notice": notice, "die": crowd.die}, rounds)
        agreement = [agree() for _ in range(rounds)]
        joins, leaves = zip(*[(crowd.join(), crowd.leave()) for _ in range(rounds)], strict=True)
        runs.update({"join": list(joins), "leave": list(leaves), "agreement": agreement})
        crowd.end()
        what = f"one of {workers} workers, {groups:,} groups"
        note = f"{moves} {'group moves' if moves == 1 else 'groups move'}"
        names = {"join": "joins", "leave": "leaves", "die": "dies"}
        for name, says in names.items():
            report.compare(
                runs, name, "notice" if name == "die" else "agreement", "ms",
                label=f"{what}, {says}", note=note,
                yardstick_label="its death noticed" if name == "die" else "an agreement",
            )  # fmt: skip
    locks.stop()


# --- Counting -------------------------------------------------------------------------------------


class Change(NamedTuple):
    """A worker has come or gone, and how many groups each one has then.

    Attributes:
        workers: How many workers there are.
        agreements: What the lock server has granted for it.
        moved: How many groups have another owner.
        least: The smallest number of groups that a worker has.
        most: The largest.
        hashed: Moved, least and most with rendezvous hashing.
    """

    workers: int
    agreements: int
    moved: int
    least: int
    most: int
    hashed: tuple[int, int, int]


def coming_and_going(workers: int, groups: int) -> Iterator[Change]:
    """Let workers come and go, each when all is settled."""
    crowd = Crowd(0, groups)
    owner: dict[int, int] = {}
    hashed: dict[int, int] = {}
    for count in [*range(1, workers + 1), *range(workers - 1, 0, -1)]:
        before = locks.statistics().table.grants
        if count > len(crowd.present):
            crowd.join()
        else:
            crowd.leave()
        had, owner = owner, {g: id(w) for w in crowd.present for g in w.owned()}
        had_hashed, hashed = hashed, {group: rendezvous(group, count) for group in range(groups)}
        yield Change(
            count,
            locks.statistics().table.grants - before,
            *_spread(had, owner, count),
            _spread(had_hashed, hashed, count),
        )
    crowd.end()


def _spread(had: dict[int, int], owner: dict[int, int], workers: int) -> tuple[int, int, int]:
    """How many groups have moved, and the smallest and largest number that a worker has."""
    shares = Counter(owner.values())
    moved = sum(had.get(group) != now_has for group, now_has in owner.items())
    return moved, min(shares.values()) if len(shares) == workers else 0, max(shares.values())


def rendezvous(group: int, workers: int) -> int:
    """Which of some workers has the largest hash together with a group."""
    return max(range(workers), key=lambda worker: blake2b(b"%d %d" % (worker, group)).digest())


# --- Tasks, not groups ----------------------------------------------------------------------------

Weights = dict[str, float]  # how many tasks each resource has, of 1
CLOSE = (8, 64, 1024)  # groups
RESOURCES = [f"account {number}" for number in range(1000)]


def skewed() -> Iterator[tuple[str, Weights, bool]]:
    """Some kinds of tasks, and whether `group_for` gives the hottest resource a group to itself."""
    equal = dict.fromkeys(RESOURCES, 1.0)
    falling = {resource: 1 / place for place, resource in enumerate(RESOURCES, 1)}
    hot = equal | {RESOURCES[0]: 9.0 * (len(RESOURCES) - 1)}
    yield "all resources equally busy", equal, False
    yield "the n-th one 1/n as busy as the first", falling, False
    yield "the same, the hottest in a group of its own", falling, True
    yield "one has nine tenths of all tasks", hot, False


def busiest(weights: Weights, groups: int, workers: int, apart: bool, by_load: bool) -> float:
    """The tasks of the busiest worker, as a multiple of an equal share."""
    loads = dict.fromkeys(range(groups), 0.0)
    for resource, weight in weights.items():
        if apart:
            group = 0 if resource == RESOURCES[0] else 1 + stable_hash(resource) % (groups - 1)
        else:
            group = stable_hash(resource) % groups
        loads[group] += weight
    shares = dict.fromkeys(range(workers), 0.0)
    if by_load:  # the heaviest first, to whoever has least
        for load in sorted(loads.values(), reverse=True):
            shares[min(shares, key=shares.__getitem__)] += load
    else:
        owners: dict[int, int] = {}
        for count in range(1, workers + 1):
            owners = spread(groups, owners, range(count))
        for group, owner in owners.items():
            shares[owner] += loads[group]
    return max(shares.values()) / sum(loads.values()) * workers


def tasks(workers: int) -> int:
    """Print how evenly tasks are spread."""
    print(f"{'':45}{'by number of groups':>24}{'by load':>12}{'at':>8}")
    print(f"{'groups':45}{CLOSE[0]:>8}{CLOSE[1]:>8}{CLOSE[2]:>8}{CLOSE[1]:>12}{'best':>8}")
    for name, weights, apart in skewed():
        found = [busiest(weights, groups, workers, apart, False) for groups in CLOSE]
        found.append(busiest(weights, CLOSE[1], workers, apart, True))
        found.append(max(1.0, max(weights.values()) / sum(weights.values()) * workers))
        print(
            f"{name:45}"
            + "".join(f"{n:>{w}.2f}" for n, w in zip(found, (8, 8, 8, 12, 8), strict=True))
        )
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Print a table of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ownership")
    parser.add_argument("workers", type=int, nargs="?", default=WORKERS)
    parser.add_argument("groups", type=int, nargs="?", default=GROUPS)
    parser.add_argument("--tasks", action="store_true", help="how evenly tasks are spread")
    options = parser.parse_args(arguments)
    workers, groups = options.workers, options.groups
    if options.tasks:
        return tasks(workers)
    if not 1 <= workers <= groups:
        parser.error(f"{workers} workers can't each have one of {groups} groups")
    locks.start("benchmark@localhost")
    try:
        print(
            f"{'':28}     with rendezvous hashing\nworkers  agreed  moved  each has     moved  each has"
        )
        for row in coming_and_going(workers, groups):
            moved, least, most = row.hashed
            print(
                f"{row.workers:7} {row.agreements:7} {row.moved:6} {_range(row.least, row.most):>9} "
                f"{moved:9} {_range(least, most):>9}"
            )
    finally:
        locks.stop()
    return 0


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} - {most}"


FIGURES = [
    Figure(
        "owned",
        f"time to do tasks with {WORKERS} threads that own {GROUPS} groups of their resources",
        {"threads": owned},
    ),
    Figure(
        "owners",
        "time until all groups are where they belong, when a worker comes or goes",
        {"threads": owners},
    ),
]

if __name__ == "__main__":
    sys.exit(main())
