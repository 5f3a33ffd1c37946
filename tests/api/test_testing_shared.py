"""`Simulation.shared`: the locks that were not taken are found, and those that were are seen."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import locks
from locks.testing import Simulation, Violation, simulate

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
        assert text.count("at test_testing_shared.py:") == 2


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


def test_owners_count_and_tasks_are_refused() -> None:
    """Locks of an owner that a client acts for are its locks; those of tasks are not seen, so tasks are refused."""

    def scenario(simulation: Simulation) -> None:
        account = simulation.shared(Account())

        def pay() -> None:
            with locks.Owner("till"), locks.transaction() as tx:
                tx.write_lock(A)
                account.pay_in(1)

        two(simulation, pay, pay)

    simulate(scenario, 10)

    def with_tasks(simulation: Simulation) -> None:
        account = simulation.shared(Account(), "account")

        async def pay() -> None:
            account.pay_in(1)

        two(simulation, pay)

    with pytest.raises(locks.MisuseError, match="account is shared with tasks of asyncio"):
        simulate(with_tasks, 1)
