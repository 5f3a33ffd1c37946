"""`locks.testing` with `patch=True`, and `Simulation.shared`: code under test that shares more than locks."""

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


# --- `Simulation.shared`: the locks that were not taken are found, and those that were are seen. ---


A, B = ("a",), ("b",)


class Account:
    """Something with attributes, and a method that uses them."""

    def __init__(self) -> None:
        self.balance = 100
        self.owner = "ann"

    def pay_in(self, amount: int) -> None:
        self.balance += amount


def two(simulation: Simulation, *functions: Any) -> None:
    """Clients that do these things."""
    for function in functions:
        simulation.client(function)
    simulation.run()


def test_no_lock_at_all_is_found() -> None:
    """Under each schedule, though nobody comes in between; both are named, with their lines."""

    def scenario(simulation: Simulation) -> None:
        account = simulation.shared(Account(), "account")
        two(simulation, lambda: account.pay_in(1), lambda: account.pay_in(1))

    for seed in range(5):
        with pytest.raises(Violation) as caught:
            simulate(scenario, [seed])
        text = str(caught.value)
        assert text.startswith("account.balance is ")
        assert text.count(" with no lock") == 2
        assert text.count("at test_testing_patched.py:") == 2


def held(lock_id: tuple[str, ...], mode: Any, use: Any) -> Any:
    """Do something under a lock."""

    def work() -> None:
        with locks.transaction() as tx:
            tx.lock(lock_id, mode)
            use()

    return work


@pytest.mark.parametrize(
    ("first", "second", "is_right"),
    [
        ((A, "write"), (A, "write"), True),
        ((A, "write"), (("a", 1), "write"), True),  # the one covers the other
        ((A, "write"), (A, "read"), True),
        ((A, "write"), (B, "write"), False),
        ((("a", 1), "write"), (("a", 2), "write"), False),
        ((A, "read"), (A, "read"), False),
    ],
)
def test_locks_keep_apart_what_they_cover(first: Any, second: Any, is_right: bool) -> None:
    """Two writers are kept apart by ids of which one covers the other, not both to read."""

    def scenario(simulation: Simulation) -> None:
        things = simulation.shared({"key": 0})

        def use() -> None:
            things["key"] += 1

        two(simulation, held(*first, use), held(*second, use))
        assert things == {"key": 2}

    if is_right:
        simulate(scenario, 20)
    else:
        with pytest.raises(Violation, match=r"dict\['key'\] is .* no lock keeps the two apart"):
            simulate(scenario, 20)


def test_readers_need_no_lock() -> None:
    """Nor do those who use other items, or do so before the others are there."""

    def scenario(simulation: Simulation) -> None:
        things = simulation.shared({"a": 0, "b": 0, "c": 0})

        def first() -> None:
            things["c"] = 1
            simulation.client(lambda: things["c"] + things["a"] - things["a"])
            assert things["a"] == 0

        def second() -> None:
            assert things.get("a") == 0
            things["b"] = 1

        two(simulation, first, second)
        assert sorted(things.items()) == [("a", 0), ("b", 1), ("c", 1)]

    simulate(scenario, 20)


def test_locks_of_threading_count() -> None:
    """With `patch=True`, one that both hold keeps them apart; two do not."""

    def scenario(guards: int) -> Any:
        def run(simulation: Simulation) -> None:
            account = simulation.shared(Account())
            locks_ = [threading.Lock() for _ in range(guards)]

            def pay(number: int) -> None:
                with locks_[number % guards]:
                    account.balance += 1

            for number in range(2):
                simulation.client(pay, number)
            simulation.run()

        return run

    simulate(scenario(1), 20, patch=True)
    with pytest.raises(Violation, match="with a lock of threading"):
        simulate(scenario(2), 20, patch=True)


def test_violation_is_not_swallowed() -> None:
    """A client that catches everything does not hide it."""

    def scenario(simulation: Simulation) -> None:
        account = simulation.shared(Account())

        def pay() -> None:
            try:
                account.pay_in(1)
            except Exception:
                return

        two(simulation, pay, pay)

    with pytest.raises(Violation, match=r"Account\.balance"):
        simulate(scenario, 1)
