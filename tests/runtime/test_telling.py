"""Calls of the program's functions: each in its own order, and none waits for another one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

import locks
from locks.runtime import telling
from locks.runtime.executor import Executor
from tests.helpers import LIMIT, eventually


@pytest.fixture
def executor() -> Iterator[Executor]:
    """One in a thread of its own."""
    made = Executor(own_thread=True)
    yield made
    assert made.stop(LIMIT)


class Blocks:
    """A function that blocks until it is let go."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.begun = threading.Event()
        self._go_on = threading.Event()

    def __call__(self, news: object) -> None:
        self.seen.append(news)
        self.begun.set()
        assert self._go_on.wait(LIMIT)

    def go_on(self) -> None:
        """Let it go."""
        self._go_on.set()


def test_each_function_is_called_in_order(executor: Executor) -> None:
    """A thousand calls of three functions: each of them gets its own in their order, one at a time."""
    seen: tuple[list[int], ...] = ([], [], [])
    inside = [0, 0, 0]

    def function(which: int) -> None:
        inside[which] += 1
        assert inside[which] == 1
        seen[which].append(len(seen[which]))
        inside[which] -= 1

    told = [lambda _, which=which: function(which) for which in range(3)]
    for number in range(300):
        for each in told:
            executor.tell(each, number)
    eventually(lambda: [len(each) for each in seen] == [300] * 3)
    assert all(each == list(range(300)) for each in seen)


def test_functions_that_block_hold_up_no_other_one(executor: Executor) -> None:
    """Forty functions block for good: another one is called all the same, and so are they, when they go on."""
    blocks = [Blocks() for _ in range(40)]
    for each in blocks:
        executor.tell(each, 1)
        executor.tell(each, 2)
    for each in blocks:
        assert each.begun.wait(LIMIT)
    done = threading.Event()
    executor.tell(lambda _: done.set(), None)
    assert done.wait(LIMIT)
    assert executor.call(lambda: "background work") == "background work"
    assert all(each.seen == [1] for each in blocks)
    for each in blocks:
        each.go_on()
    eventually(lambda: all(each.seen == [1, 2] for each in blocks))


def test_a_slow_call_is_logged(
    executor: Executor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once while it lasts, with the function's name, and once when it has returned."""
    monkeypatch.setattr(telling, "SLOW", 0.1)
    go_on = threading.Event()

    def my_watcher(_: object) -> None:
        assert go_on.wait(LIMIT)

    with caplog.at_level(logging.WARNING, logger="locks.runtime"):
        executor.tell(my_watcher, None)
        eventually(lambda: "my_watcher has taken more than 0.1 s" in caplog.text)
        go_on.set()
        eventually(lambda: "my_watcher has returned after" in caplog.text)
    assert caplog.text.count("has taken more than") == 1


@pytest.mark.slow
def test_what_waits_is_bounded(executor: Executor, caplog: pytest.LogCaptureFixture) -> None:
    """Of a function that does not return the newest calls wait; the older ones are left out, and their number is logged."""
    slow = Blocks()
    most = telling.MOST_CALLS
    with caplog.at_level(logging.WARNING, logger="locks.runtime"):
        executor.tell(slow, -1)
        assert slow.begun.wait(LIMIT)
        for number in range(most + 17):
            executor.tell(slow, number)
        executor.call(lambda: None)
        assert caplog.text.count("does not keep up") == 1
        slow.go_on()
        eventually(lambda: len(slow.seen) == most + 1)
        assert slow.seen == [-1, *range(17, most + 17)]
        assert "was not called 17 times" in caplog.text


def test_the_end_waits_for_what_is_called(executor: Executor) -> None:
    """What was asked for before `stop` is called before it returns."""
    other = Executor(own_thread=True)
    seen: list[int] = []
    slow = Blocks()
    other.tell(slow, 0)
    for number in range(100):
        other.tell(seen.append, number)
    assert slow.begun.wait(LIMIT)
    executor.run_soon(lambda: (eventually(lambda: len(seen) == 100), slow.go_on()))
    assert other.stop(LIMIT)
    assert seen == list(range(100))


# --- Of a node ----------------------------------------------------------------------------------


@pytest.fixture
def node() -> Iterator[None]:
    """The program's node."""
    locks.start()
    yield
    locks.stop()


@pytest.mark.usefixtures("node")
def test_a_watcher_that_waits_for_a_lock_holds_up_nothing() -> None:
    """Another watcher, `notify` and monitors get on; and the watcher, when the lock is free."""
    owner = locks.Owner("holder")
    held = locks.Lock(("held",), owner=owner)
    held.acquire()
    waits, through = threading.Event(), threading.Event()

    def watcher(view: locks.values.View) -> None:
        if view.holders:
            waits.set()
            with locks.Lock(("held",), timeout=LIMIT):
                through.set()

    locks.watch(("watched",), watcher=watcher)
    with locks.Lock(("watched",)):
        pass
    assert waits.wait(LIMIT)

    seen = threading.Event()
    locks.watch(("other",), watcher=lambda view: seen.set() if view.holders else None)
    told, gone = threading.Event(), threading.Event()
    agent = locks.original.spawn_agent(
        notify=lambda news: told.set() if news.kind == "have_all_locks" else None
    )
    locks.actors.monitor(agent, lambda _: gone.set())
    locks.original.lock(agent, ("other",))
    assert seen.wait(LIMIT)
    assert told.wait(LIMIT)
    locks.original.end_transaction(agent)
    assert gone.wait(LIMIT)

    held.release()
    assert through.wait(LIMIT)


@pytest.mark.usefixtures("node")
def test_a_monitor_that_waits_for_the_lock_of_the_ended_thread() -> None:
    """The program's callback comes after the end of the transactions, so it gets what the thread has held."""
    got: list[bool] = []
    go_on = threading.Event()

    def run() -> None:
        assert go_on.wait(LIMIT)
        locks.Lock(("left",)).acquire()

    thread = threading.Thread(target=run)
    thread.start()

    def told(_: locks.actors.Down) -> None:
        with locks.Owner("heir"):
            got.append(locks.Lock(("left",)).acquire(timeout=LIMIT))

    locks.actors.monitor(thread, told)
    go_on.set()
    thread.join(LIMIT)
    assert eventually(lambda: got) == [True]
