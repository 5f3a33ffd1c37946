"""`locks.testing` with `patch=True`: time, threading and queue of the code under test are in virtual time."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import locks
from locks.testing import Simulation, Violation, seeds, simulate

NAMES = {
    (time, "sleep"): time.sleep,
    (time, "monotonic"): time.monotonic,
    (threading, "Lock"): threading.Lock,
    (threading, "RLock"): threading.RLock,
    (threading.Thread, "start"): threading.Thread.start,
    (queue, "SimpleQueue"): queue.SimpleQueue,
}


def test_time_passes_at_once() -> None:
    """`time.sleep` sleeps by the virtual clock, which is what the clocks of `time` say; in other threads they are what they were."""

    def scenario(simulation: Simulation) -> None:
        def work() -> None:
            wall, began = time.time(), time.monotonic()
            time.sleep(86400)
            assert 86400 <= time.monotonic() - began < 86500
            assert 86400 <= time.time() - wall < 86500
            assert simulation.time >= 86400

        simulation.client(work)
        simulation.run()

    simulate(scenario, 8, patch=True)


def test_all_is_as_it_was_afterwards() -> None:
    """The standard library is given back, also after a failure."""

    def scenario(simulation: Simulation) -> None:
        assert all(getattr(where, name) is not there for (where, name), there in NAMES.items())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(scenario, 1, patch=True)
    assert all(getattr(where, name) is there for (where, name), there in NAMES.items())


@seeds(16, patch=True)
def test_queues_events_and_conditions(simulation: Simulation) -> None:
    """What waits for another client is woken by it, or when its time is up."""
    items: queue.Queue[int] = queue.Queue(maxsize=1)
    done, changed = threading.Event(), threading.Condition()
    got: list[int] = []

    def produce() -> None:
        for number in range(3):
            items.put(number)
            time.sleep(100)
        with changed:
            changed.notify_all()
        done.set()

    def consume() -> None:
        for _ in range(3):
            got.append(items.get(timeout=1000))
        with pytest.raises(queue.Empty):
            items.get(timeout=5)

    def wait() -> None:
        with changed:
            assert changed.wait(10_000)
        assert done.wait(1000)
        assert not threading.Event().wait(3600)

    for function in (produce, consume, wait):
        simulation.client(function)
    simulation.run()
    assert got == [0, 1, 2]
    assert 3900 <= simulation.time < 5000


def racing(simulation: Simulation, lock: Any) -> None:
    """Two clients that add to a number, with something slow between."""
    number = 0

    def add() -> None:
        nonlocal number
        with lock:
            before = number
            time.sleep(0.01)
            number = before + 1

    simulation.client(add)
    simulation.client(add)
    simulation.run()
    assert number == 2


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore"])
def test_locks_of_threading_exclude(kind: str) -> None:
    """Two clients are never in at the same time; without the lock they are."""
    simulate(lambda simulation: racing(simulation, getattr(threading, kind)()), 40, patch=True)
    with pytest.raises(AssertionError):
        simulate(lambda simulation: racing(simulation, threading.Semaphore(2)), 40, patch=True)


def test_deadlock_of_threading_and_locks_is_found() -> None:
    """A lock of `threading` around a transaction, and within another one: stuck, with the lines where they stand."""

    def scenario(simulation: Simulation) -> None:
        guard = threading.Lock()

        def around() -> None:
            with guard, locks.transaction() as tx:
                tx.write_lock(("a",))

        def within() -> None:
            with locks.transaction() as tx:
                tx.write_lock(("a",))
                with guard:
                    pass

        simulation.client(around)
        simulation.client(within)
        simulation.run()

    with pytest.raises(Violation, match=r"^stuck: around-1, within-2") as caught:
        simulate(scenario, patch=True)
    assert "within-2 waits at test_testing_patched.py:" in str(caught.value)


def test_threads_are_clients() -> None:
    """A thread that a client starts is scheduled like one, may use `locks`, and its error fails the run."""

    def scenario(simulation: Simulation) -> None:
        order: list[int] = []

        def take(number: int) -> None:
            with locks.Lock(("a",)):
                order.append(number)

        def client() -> None:
            threads = [threading.Thread(target=take, args=(number,)) for number in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not any(thread.is_alive() for thread in threads)
            assert sorted(order) == [0, 1]
            orders.add(tuple(order))
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(take, range(2, 4)))

        simulation.client(client)
        simulation.run()

    orders: set[tuple[int, ...]] = set()
    simulate(scenario, 20, patch=True)
    assert orders == {(0, 1), (1, 0)}

    def failing(simulation: Simulation) -> None:
        simulation.client(lambda: threading.Thread(target=lambda: 1 / 0).start())
        simulation.run()

    with pytest.raises(ZeroDivisionError):
        simulate(failing, 1, patch=True)
