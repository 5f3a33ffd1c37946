"""The end of a node, beside every public call: nobody waits for a node that has ended, and nothing of it is left.

**The rule.** From the beginning of `stop` on, new calls are refused with `NodeNotRunning`. Calls that are under way are answered, or end with an error
of `locks` that says so (`TransactionEnded`, `LockLost`, `NodeNotRunning`, `OperatingError`); none waits longer than its limit, nor at all once the node has
ended. The parts end in this order: transactions and connections, in one turn; actors that depend on the node; the lock server; the services; the
background, with all greenlets and timers of its hub. A call that finds no node running begins a new one, as the first use does.

`RESULTS` is the table: each call at three moments. "begins" stands for a call that begins a new node.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import locks
import locks_leader
import locks_leader.aio
from locks import aio, original
from locks.ownership import Ownership
from locks.runtime.waiter import Event
from tests.helpers import SEED, eventually

pytestmark = pytest.mark.usefixtures("here")

_numbers = itertools.count()
LIMIT = 60.0  # seconds; calls that wait have a limit of their own
Call = Callable[[], object]


def waits() -> None:
    """Wait for a lock that another client holds."""
    with locks.Owner("the holder"), locks.transaction() as tx:
        tx.write_lock(("held",), timeout=LIMIT)
        with locks.Owner("one who waits"), locks.transaction() as other:
            other.write_lock(("held",), timeout=LIMIT)


def leads() -> None:
    """Lead until the leadership is lost."""
    locks_leader.Election("e").run(lambda leadership: leadership.lost.wait(LIMIT), timeout=LIMIT)


def stands() -> None:
    """Stand for election beside a leader."""
    leader, other = locks_leader.Election("e"), locks_leader.Election("e")
    leader.start()
    try:
        other.run(print, timeout=LIMIT)
    finally:
        leader.stop()


def owns() -> None:
    """Share work out on one node."""
    worker = Ownership("own", groups=4)
    worker.join()
    try:
        worker.run(iter(int, 1), lambda task: None)
    finally:
        worker.stop()


def asks_a_leader() -> None:
    """Start an instance, and call it."""
    instance = locks_leader.start(locks_leader.Behaviour)
    try:
        locks_leader.info(instance, timeout=LIMIT)
        Event().wait(0.0)
    finally:
        instance.stop(block=False)


def awaits_a_task() -> None:
    """Wait in a task of asyncio."""

    async def other() -> None:
        async with aio.Lock(("task",), timeout=LIMIT):
            pass

    async def main() -> None:
        async with aio.Lock(("task",)):
            await asyncio.create_task(other())

    asyncio.run(main())


def leads_in_a_task() -> None:
    """Lead in a task of asyncio."""

    async def work(leadership: locks_leader.aio.Leadership) -> None:
        await leadership.lost.wait(LIMIT)

    asyncio.run(locks_leader.aio.Election("task").run(work, timeout=LIMIT))


def has(lock: locks.Lock | locks.RLock | locks.Semaphore) -> None:
    """Acquire and release it."""
    with lock:
        pass


def waits_for_a_condition() -> None:
    """Wait within two blocks of one lock."""
    lock = locks.RLock(("b",), timeout=LIMIT)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    with lock, condition:
        condition.wait(0.001)


def waits_for_a_watch() -> None:
    """Watch an id, and stop watching."""

    def told(view: object) -> None:
        """Nothing to do."""

    locks.watch(("watched",), watcher=told)
    original.unwatch(("watched",), watcher=told)


def begins_and_ends() -> None:
    """The functions of the original."""
    agent, _ = original.begin_transaction()
    original.lock_nowait(agent, ("a",))
    original.await_all_locks(agent, timeout=LIMIT)
    original.end_transaction(agent)


# Calls that wait until the node has ended, each by itself.
WAITING: dict[str, Call] = {
    "a lock that is held": waits,
    "a leader's function": leads,
    "a candidate": stands,
    "a task that waits": awaits_a_task,
    "a task that leads": leads_in_a_task,
}
# Calls that are short, and meet the end at any of their moments.
SHORT: dict[str, Call] = {
    "Lock": lambda: has(locks.Lock(("a",), timeout=LIMIT)),
    "RLock": lambda: has(locks.RLock(("b",), timeout=LIMIT)),
    "Semaphore": lambda: has(locks.Semaphore(("c",), 2, timeout=LIMIT)),
    "a Condition": waits_for_a_condition,
    "once": lambda: has(locks.once(("once", next(_numbers)), timeout=LIMIT)),
    "run_transaction": lambda: locks.run_transaction(lambda tx: tx.write_lock(("a",))),
    "watch": waits_for_a_watch,
    "queue, holders, statistics": lambda: (locks.queue(("a",)), locks.statistics()),
    "the original's functions": begins_and_ends,
    "Election, start": lambda: locks_leader.Election("started").start(),
    "Election, run": lambda: locks_leader.Election("e").run(lambda _: None, timeout=LIMIT),
    "a behaviour": asks_a_leader,
    "Ownership": lambda: Ownership("own", groups=4).join(),
}


class Beside:
    """A thread that calls something again and again, and says what came of it."""

    def __init__(self, call: Call, times: int | None = None) -> None:
        self._call = call
        self._times = times
        self.results: Counter[str] = Counter()
        self.wrong: list[BaseException] = []
        self.ended = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.ended and self._times != 0:
            if self._times is not None:
                self._times -= 1
            time.sleep(0)  # in a patched program others go on only if it lets them
            try:
                self._call()
                self.results["done"] += 1
            except locks.LocksError as error:
                self.results[type(error).__name__] += 1
            except BaseException as error:
                if (
                    type(error).__name__ != "ActorDeadError"
                ):  # Pykka's own, of an actor that was asked itself
                    self.wrong.append(error)

    def join(self) -> None:
        """It ends in time."""
        self.ended = True
        self.thread.join(LIMIT)
        assert not self.thread.is_alive(), "it waits for a node that has ended"
        assert not self.wrong


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Locks of this program alone, also of a node that a call begins."""
    monkeypatch.setenv("LOCKS_SERVERS", "here")
    locks.stop()
    locks.start(servers=locks.HERE)
    yield
    locks.stop()


@pytest.mark.parametrize("call", WAITING)
def test_who_waits_is_told_of_the_end(call: str) -> None:
    """By an error of locks, as soon as the node stops, whatever limit the wait has."""
    node = locks.start()
    beside = Beside(WAITING[call], times=1)
    eventually(lambda: bool(node.agents()) or bool(node.dependents))
    locks.stop()
    beside.join()
    assert not beside.results["LockTimeout"]


@pytest.mark.parametrize("call", SHORT)
def test_a_call_beside_stop_is_done_or_refused(call: str) -> None:
    """Whenever the node stops, and whether another one begins or not: an error of locks at most, and no hang."""
    chance = random.Random(f"{SEED} {call}")
    besides = [Beside(SHORT[call]) for _ in range(2)]
    for _ in range(20):
        done = sum(sum(each.results.values()) for each in besides) + chance.randrange(3)
        eventually(lambda done=done: sum(sum(b.results.values()) for b in besides) >= done)  # type: ignore[misc]
        locks.stop()
        locks.start(servers=locks.HERE)
    for each in besides:
        each.join()
        allowed = {
            "done",
            "NodeNotRunning",
            "TransactionEnded",
            "LockLost",
            "OperatingError",
            "NotMarked",
        }
        assert set(each.results) <= allowed, each.results
    assert any(each.results["done"] for each in besides)


def test_nothing_of_a_node_is_left() -> None:
    """Objects, threads and file handles are the same after many cycles of start, everything, stop."""

    def cycle() -> None:
        locks.start(servers=locks.HERE)
        for call in SHORT.values():
            call()
        locks.stop()

    def counted() -> tuple[int, int, int]:
        eventually(lambda: not [t for t in threading.enumerate() if t.name == "locks-home"])
        gc.collect()
        return len(gc.get_objects()), threading.active_count(), len(os.listdir("/dev/fd"))

    locks.stop()
    for _ in range(5):
        cycle()
    objects, threads, files = counted()
    for _ in range(20):
        cycle()
    more, threads_now, files_now = counted()
    assert (threads_now, files_now) == (threads, files)
    assert (more - objects) / 20 < 3


def test_a_call_after_stop_begins_a_new_node() -> None:
    """As the first use does; what belongs to the old node is refused."""
    old = locks.start()
    lock = locks.Lock(("a",))
    lock.acquire()
    locks.stop()
    with pytest.raises(locks.errors.NodeNotRunning):
        old.spawn_agent()
    with pytest.raises(locks.errors.NodeNotRunning):
        locks_leader.start(locks_leader.Behaviour, node=old)
    with locks.Lock(("a",)):
        assert locks.start() is not old
