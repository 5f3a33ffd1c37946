"""The end of a node, beside every public call: nobody waits for a node that has ended, and nothing of it is left.

**The rule** is in `locks.stop`. `calls.CALLS` is the table of calls and of what each may end with. Here they meet the end of a node with
private locks, in threads; `test_everywhere` has all kinds of callers and lock servers, `test_at_lines` each line.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import gevent
import pykka
import pytest

import locks
import locks_leader
from locks.ownership import Backlog, Ownership
from locks.runtime import interrupts
from locks.runtime.waiter import Event
from tests.helpers import EXPLORE, SEED, eventually
from tests.stopping.calls import CALLS, LIMIT, allowed

ALONE = [name for name, call in CALLS.items() if call.needs != "servers"]
WAITING = [name for name in ALONE if CALLS[name].waits]
SHORT = [name for name in ALONE if not CALLS[name].waits]


class Beside:
    """A thread that calls something again and again, and says what came of it."""

    def __init__(self, call: Callable[[], object], times: int | None = None) -> None:
        self._call = call
        self._times = times
        self.results: Counter[str] = Counter()
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
            except BaseException as error:
                self.results[type(error).__name__] += 1
            else:
                self.results["done"] += 1

    def join(self) -> None:
        """It ends in time; it may have begun a new node, and wait there."""
        self.ended = True
        end = time.monotonic() + LIMIT / 2
        while self.thread.is_alive() and time.monotonic() < end:
            locks.stop()
            self.thread.join(0.05)
        assert not self.thread.is_alive(), "it waits for a node that has ended"


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Locks of this program alone, also those of a node that a call begins."""
    monkeypatch.setenv("LOCKS_SERVERS", "here")
    locks.stop()
    locks.start()
    yield
    locks.stop()


@pytest.mark.parametrize("call", WAITING)
def test_who_waits_is_told_of_the_end(call: str) -> None:
    """By an error of locks, as soon as the node stops, whatever limit the wait has."""
    node = locks.start()
    beside = Beside(CALLS[call].do, times=1)
    eventually(lambda: bool(node.agents()) or bool(node.dependents) or bool(beside.results))
    locks.stop()
    beside.join()
    assert set(beside.results) <= allowed(call)


@pytest.mark.parametrize("call", SHORT)
def test_a_call_beside_stop_is_done_or_refused(call: str) -> None:
    """Whenever the node stops, and whether another one begins or not: an error of locks at most, and no hang."""
    chance = random.Random(f"{SEED} {call}")
    besides = [Beside(CALLS[call].do) for _ in range(2)]
    for _ in range(500 if EXPLORE else 15):
        done = sum(sum(each.results.values()) for each in besides) + chance.randrange(3)
        eventually(lambda done=done: sum(sum(b.results.values()) for b in besides) >= done)  # type: ignore[misc]
        locks.stop()
        locks.start()
    for each in besides:
        each.join()
        assert set(each.results) <= allowed(call), each.results
    assert any(each.results["done"] or each.results["TransactionBroken"] for each in besides)


def test_nothing_of_a_node_is_left() -> None:
    """Objects, threads and file handles are the same after many cycles of start, everything, stop."""

    def cycle() -> None:
        locks.start()
        for call in SHORT:
            try:
                CALLS[call].do()
            except locks.errors.TransactionBroken:
                assert call == "break"
        locks.stop()

    def counted() -> tuple[int, int, int]:
        eventually(lambda: not [t for t in threading.enumerate() if t.name == "locks-home"])
        gc.collect()
        return len(gc.get_objects()), threading.active_count(), len(os.listdir("/dev/fd"))

    locks.stop()
    cycles = 200 if EXPLORE else 10
    for _ in range(5):
        cycle()
    objects, threads, files = counted()
    for _ in range(cycles):
        cycle()
    more, threads_now, files_now = counted()
    assert (threads_now, files_now) == (threads, files)
    assert (more - objects) / cycles < 3


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


def test_two_may_stop_it_and_start_it_beside_each_other() -> None:
    """Each `start` returns a node, and at the end there is one, or none."""
    besides = [Beside(each) for each in (locks.start, locks.stop, locks.start, locks.stop)]
    eventually(lambda: all(each.results["done"] > 300 for each in besides))
    for each in besides:
        each.join()
        assert set(each.results) == {"done"}
    locks.stop()
    eventually(lambda: not [t for t in threading.enumerate() if t.name == "locks-home"])


def test_two_may_stop_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both begin with its end, which takes the node's shield from Ctrl-C away once: others of the process may have one."""
    monkeypatch.setattr(interrupts, "install", lambda: True)
    taken: list[None] = []
    monkeypatch.setattr(interrupts, "uninstall", lambda: taken.append(None))
    locks.stop()
    node = locks.start()
    both = threading.Barrier(2, timeout=LIMIT)
    unregister = pykka.ActorRegistry.unregister
    monkeypatch.setattr(
        pykka.ActorRegistry, "unregister", lambda ref: (both.wait(), unregister(ref))
    )
    threads = [threading.Thread(target=node.stop) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LIMIT)
    assert taken == [None]


def test_who_stops_it_second_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of the node when `stop` returns, whoever has begun with it."""
    node = locks.start()
    ended = node.executor._ended  # type: ignore[attr-defined]
    goes_on, second, left = threading.Event(), threading.Event(), []
    stop = node.executor.stop

    def stop_executor(timeout: float | None = None) -> object:
        second.set()
        return stop(timeout)

    def stops() -> None:
        node.stop()
        left.append(not ended.is_open)
        second.set()

    first = threading.Thread(target=node.stop)
    monkeypatch.setattr(node.executor, "stop", stop_executor)
    monkeypatch.setattr(node.services, "node_stopped", lambda: goes_on.wait(LIMIT))
    first.start()
    eventually(lambda: not node.server.is_alive())
    other = threading.Thread(target=stops)
    other.start()
    assert second.wait(LIMIT)
    goes_on.set()
    for each in (first, other):
        each.join(LIMIT)
    assert left == [False]


def ends_with_the_node(works: Callable[[], object], began: list[int]) -> None:
    """A worker that has begun is told that its part has ended when the node stops."""
    beside = Beside(works, times=1)
    eventually(lambda: began)
    locks.stop()
    beside.join()
    assert beside.results["OwnershipEnded"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Ownership, locks_leader.Ownership])
def test_a_slow_callback_keeps_no_worker(kind: type[Ownership]) -> None:
    """It is broken off, and the worker is told that its part has ended."""

    def on_lost(group: int) -> None:
        Event().wait(LIMIT)

    def works() -> None:
        worker = kind(("slow", str(os.getpid())), groups=4, on_lost=on_lost)
        worker.run(Backlog(range(100), groups=4, more=True), lambda task, token: began.append(task))

    began: list[int] = []
    ends_with_the_node(works, began)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Ownership, locks_leader.Ownership])
def test_a_callback_that_refuses_to_end_keeps_no_worker(kind: type[Ownership]) -> None:
    """The node ends without it."""

    def on_gained(group: int, token: int) -> None:
        began.append(group)
        while True:
            with suppress(gevent.GreenletExit):
                gevent.sleep(LIMIT)

    def works() -> None:
        worker = kind(("refuses", str(os.getpid())), groups=4, on_gained=on_gained)
        worker.run(Backlog(range(100), groups=4, more=True), lambda task, token: None)

    began: list[int] = []
    ends_with_the_node(works, began)
