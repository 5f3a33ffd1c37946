"""What programs of the soak do besides: each function does one kind of work over and over, and puts down what happened.

The records are judged by `tests.cluster.soak`: a *hold* (`Hold`), what became of a *job* (`Job`), or what was wrong at once (`broken`).

As a program, `python -m tests.cluster.mixed FOLDER UNTIL IDS SEED SERVER...` does each kind of work in a thread, forks, and stops its node every
few seconds beside all of that. It is never killed, and what it has may not grow.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import gevent

import locks
import locks.ownership
import locks_leader
from locks import aio
from tests.cluster.ledger import Broken, Ledger, Stale

UNITS = 2  # of the semaphore
GROUPS = 6  # of the ownership
JOBS = 10.0  # that are begun in a second, by all together
TASKS = 3  # of one event loop
PATIENCE = 5.0  # seconds
STOPS = 2.0, 8.0  # seconds from one stop of the node to the next one
COMES = "comes@127.0.0.1"  # what the program that stops is called in records


class Place(NamedTuple):
    """Where a client works.

    Attributes:
        node: The name of its node.
        folder: Where ledgers are.
        until: When to end, by `time.monotonic()`.
        nodes: The lock servers.
        ids: How many ids there are.
        chance: For what is random.
        put: Puts a record down.
        counts: How often what has happened.
    """

    node: str
    folder: Path
    until: float
    nodes: list[str]
    ids: int
    chance: random.Random
    put: Callable[..., None]
    counts: Counter[str]

    @property
    def over(self) -> bool:
        """Whether to end."""
        return time.monotonic() >= self.until

    def pause(self, longest: float = 0.1) -> None:
        """Do nothing for a short time."""
        gevent.sleep(self.chance.random() * longest)

    def hold(self, lock_id: Any, owner: str, token: int, asked: float, had: float, sure: float) -> None:  # fmt: skip
        """Put down a hold that ends now."""
        self.put(
            lock_id=lock_id, owner=owner, process=self.node, token=token, asked=asked, had=had, sure=sure, gone=time.monotonic()
        )  # fmt: skip

    def fenced(self, name: str, owner: str, token: int) -> None:
        """Increase the number of a ledger."""
        ledger = Ledger(self.folder / name)
        ledger.write(token, owner, ledger.read(token, owner))


def mix(
    kind: str, node: str, folder: str, until: float, nodes: list[str], ids: int, seed: int
) -> dict[str, int]:
    """Do one kind of work until its time is over; return how often what has happened."""
    counts = Counter[str]()
    with Path(folder, f"holds-{os.getpid()}-{kind}").open("a") as file:

        def put(**record: Any) -> None:
            file.write(json.dumps(record) + "\n")
            file.flush()

        place = Place(node, Path(folder), until, nodes, ids, random.Random(seed), put, counts)
        while not place.over:
            try:
                WORK[kind](place)
                counts[kind] += 1
            except locks.LocksError as error:
                counts[f"{kind} {type(error).__name__}"] += 1
            except Stale:
                counts[f"{kind} refused"] += 1
            except Broken as error:
                put(broken=f"{node}, {kind}: {error}")
            except RuntimeError as error:
                if "un-acquired" not in str(error):  # which a Condition says of a lock that is lost
                    raise
                counts[f"{kind} lost"] += 1
            place.pause()
    return dict(counts)


def _work(place: Place, lock: Any, number: int, who: str, asked: float, had: float) -> None:
    """Increase the number of an id that is locked, and put the hold down."""
    token = lock.token(timeout=PATIENCE)
    place.fenced(f"ledger-{number}", who, token)
    if lock.owned():
        place.hold(number, who, token, asked, had, time.monotonic())


def _waits_within_blocks(place: Place) -> None:
    """A Condition over an RLock, within another block of it, that another thread notifies: before, in and after the wait there are three holds."""
    number, who = place.chance.randrange(place.ids), f"{place.node}/condition-{time.monotonic_ns()}"
    lock = locks.RLock(["soak", number], nodes=place.nodes, require="majority", timeout=PATIENCE)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    told: list[bool] = []

    def notify(asked: float) -> None:
        with condition:
            _work(place, lock, number, f"{who}!", asked, time.monotonic())
            told.append(True)
            condition.notify()

    with ThreadPoolExecutor(1) as other:
        asked = time.monotonic()
        with lock, condition:
            _work(place, lock, number, who, asked, time.monotonic())
            asked = time.monotonic()
            notified = other.submit(notify, asked)
            condition.wait_for(lambda: told, PATIENCE)
            _work(place, lock, number, f"{who}'", asked, time.monotonic())
        notified.result()


def _acts_for_an_owner(place: Place) -> None:
    """One thread of an owner acquires, another one works and releases."""
    number, who = place.chance.randrange(place.ids), f"{place.node}/owner-{time.monotonic_ns()}"
    with locks.Owner(who) as owner, ThreadPoolExecutor(1) as other:
        lock = locks.Lock(["soak", number], nodes=place.nodes, require="majority", owner=owner)
        asked = time.monotonic()
        if lock.acquire(timeout=PATIENCE):
            other.submit(_work, place, lock, number, who, asked, time.monotonic()).result()
            other.submit(lock.release).result()


@contextlib.contextmanager
def _held(place: Place, number: int, who: str) -> Iterator[None]:
    """A block with a lock, in a generator."""
    asked = time.monotonic()
    with locks.Lock(["soak", number], nodes=place.nodes, require="majority", timeout=PATIENCE) as lock:  # fmt: skip
        had = time.monotonic()
        yield
        _work(place, lock, number, who, asked, had)


def _leaves_a_generator(place: Place) -> None:
    """A block of a generator is entered in one thread, and left in another one, while the first one does something else."""
    who = f"{place.node}/generator-{time.monotonic_ns()}"
    block = _held(place, place.chance.randrange(place.ids), who)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        one.submit(block.__enter__).result()
        one.submit(time.sleep, 0.02)
        other.submit(block.__exit__, None, None, None).result()


def _has_a_unit(place: Place) -> None:
    """A semaphore of one server: its units are locks, and each client has one at most."""
    semaphore = locks.Semaphore(["units"], UNITS, nodes=place.nodes[:1], timeout=PATIENCE)
    owner, asked = f"{place.node}/unit-{time.monotonic_ns()}", time.monotonic()
    with semaphore:
        had = time.monotonic()
        unit, token = semaphore.unit(), semaphore.token(timeout=PATIENCE)
        if not 0 <= unit < UNITS:
            place.put(broken=f"{owner} has the unit {unit}")
        place.pause(0.05)
        sure = time.monotonic() if semaphore.owned() else had
        place.hold(f"unit {unit}", owner, token, asked, had, sure)


def _does_once(place: Place) -> None:
    """Work that is done once; several clients try it at about the same time."""
    job = int(time.monotonic() * JOBS) - place.chance.randrange(20)
    owner, asked, token = f"{place.node}/once-{time.monotonic_ns()}", time.monotonic(), 0
    try:
        with locks.once(["job", job], remember=3600, timeout=PATIENCE) as once:
            token, had = once.token, time.monotonic()
            place.put(job=job, token=token, what="begun", at=had)
            place.pause(0.05)
            once.ensure_held()
            place.hold(f"job {job}", owner, token, asked, had, time.monotonic())
            if place.chance.random() < 0.2:
                place.put(job=job, token=token, what="failed", at=time.monotonic())
                raise Stale
        place.put(job=job, token=token, what="done", at=time.monotonic())
    except locks.AlreadyDone as done:
        place.put(job=job, token=done.token, what="told", at=time.monotonic())
        raise


def _owns_groups(place: Place) -> None:
    """A worker of an ownership, for some seconds; each task increases the number of its group."""
    name = f"{place.node}/owns-{time.monotonic_ns()}"
    end = min(place.until, time.monotonic() + place.chance.uniform(0.5, 5))
    mine = locks_leader.Ownership("soak", GROUPS, group_for=int, policy="majority", nodes=place.nodes)  # fmt: skip
    with mine:
        while time.monotonic() < end:
            for group in list(mine.owned()):
                asked = time.monotonic()
                with contextlib.suppress(locks.ownership.NotOwner), mine.hold(group) as token:
                    had = time.monotonic()
                    with contextlib.suppress(Stale):
                        place.fenced(f"group-{group}", name, token)
                    place.pause(0.01)
                    place.hold(f"group {group}", name, token, asked, had, time.monotonic())
                    place.counts["ownership tasks"] += 1
            place.pause(0.05)


def _in_tasks(place: Place) -> None:
    """Tasks of one event loop lock the ids of all others, one or two each."""
    asyncio.run(_tasks(place))


async def _tasks(place: Place) -> None:
    async def one(task: int) -> None:
        for _ in range(3):
            numbers = place.chance.sample(range(place.ids), place.chance.choice((1, 1, 2)))
            try:
                await _lock(place, numbers, f"{place.node}/task{task}-{time.monotonic_ns()}")
            except locks.LocksError as error:
                place.counts[f"tasks {type(error).__name__}"] += 1
            except Stale:
                place.counts["tasks refused"] += 1
            except (TimeoutError, asyncio.TimeoutError):
                place.counts["tasks cancelled"] += 1
            await asyncio.sleep(place.chance.random() * 0.05)

    await asyncio.gather(*[one(task) for task in range(TASKS)])


async def _lock(place: Place, numbers: list[int], owner: str) -> None:
    asked = time.monotonic()
    held: dict[int, tuple[int, float]] = {}
    sure = 0.0

    async def work() -> None:
        nonlocal sure
        async with aio.transaction(timeout=PATIENCE) as tx:
            for number in numbers:
                await tx.lock(["soak", number], nodes=place.nodes, require="majority")
                had = time.monotonic()
                held[number] = (await tx.token(["soak", number]), had)
            tx.ensure_held()
            sure = time.monotonic()
            for number in numbers:
                place.fenced(f"ledger-{number}", owner, held[number][0])
            await asyncio.sleep(place.chance.random() * 0.02)
            tx.ensure_held()
            sure = time.monotonic()
        place.counts["tasks held"] += 1

    try:
        await asyncio.wait_for(work(), place.chance.choice((0.02, 0.2, 2 * PATIENCE)))
    finally:
        for number, (token, had) in held.items() if sure else ():
            place.hold(number, owner, token, asked, had, sure)


def _watches(place: Place) -> None:
    """Watch an id on all servers for a while; versions rise, and the views end with the watch."""
    number, seen = place.chance.randrange(place.ids), dict[str, int]()
    owner = f"{place.node}/watch-{time.monotonic_ns()}"

    def look(view: Any) -> None:
        if view.version < seen.get(view.node, 0):
            place.put(broken=f"{owner}: a view of {view.node} went back from {seen[view.node]} to {view.version}")  # fmt: skip
        seen[view.node] = view.version
        place.counts["views"] += 1

    there = [name for name in place.nodes if place.chance.random() < 0.7] or place.nodes[:1]
    locks.watch(["soak", number], there, watcher=look)
    place.pause(2)
    locks.unwatch(["soak", number], there, watcher=look)


KINDS: dict[str, Callable[[Place], None]] = {
    "condition": _waits_within_blocks,
    "owner": _acts_for_an_owner,
    "generator": _leaves_a_generator,
    "semaphore": _has_a_unit,
    "once": _does_once,
    "ownership": _owns_groups,
    "tasks": _in_tasks,
    "watch": _watches,
}


# --- A program that stops its node, and forks -----------------------------------------------------


def _forks(place: Place) -> None:
    """The process forks while a thread of it holds a lock: the child is a client of its own, and gets the lock after its release."""
    number, child = place.chance.randrange(place.ids), 0
    try:
        with _held(place, number, f"{place.node}/forks-{time.monotonic_ns()}"):
            child = os.fork()
            if child == 0:
                _be_child(place, number)
            place.pause(0.05)
    finally:
        if child and (status := os.waitpid(child, 0)[1]):
            place.put(broken=f"{place.node}: a forked child has ended with {status}")
    place.pause(1)


def _be_child(place: Place, number: int) -> None:
    signal.alarm(int(12 * PATIENCE))  # it hangs
    try:
        with contextlib.suppress(locks.LocksError, Stale), _held(place, number, f"{place.node}/child-{os.getpid()}"):  # fmt: skip
            pass
        os._exit(0)
    finally:
        os._exit(1)


WORK = {**KINDS, "fork": _forks}


def main() -> None:
    """Do all of it until it is time."""
    folder, until, ids, seed, *nodes = sys.argv[1:]
    chance, end, counts = random.Random(int(seed)), float(until), Counter[str]()
    given = COMES, folder, end, nodes, int(ids), int(seed)
    with ThreadPoolExecutor(len(WORK)) as threads:
        done = [threads.submit(mix, kind, *given) for kind in WORK]
        while time.monotonic() < end:
            time.sleep(chance.uniform(*STOPS))
            locks.stop()
            counts["stop"] += 1
        for each in done:
            counts.update(each.result())
    locks.stop()
    Path(folder, "counts").write_text(json.dumps(counts))


if __name__ == "__main__":
    main()
