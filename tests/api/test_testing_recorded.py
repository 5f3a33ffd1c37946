"""`Simulation.history`: what is recorded, what counts as an outcome, and what is refused."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import locks
from locks import aio
from locks.errors import InvalidOption, MisuseError
from locks.testing import Simulation, Violation, simulate
from tests.api.test_testing_histories import Cell, Jobs, failure_of

# --- What is recorded -------------------------------------------------------------------------------


def one_by_one(
    *functions: Callable[[Any], object], thing: Any, model: Any = Jobs, **options: Any
) -> None:
    """A simulation in which clients use a thing, one after the other."""
    simulation = Simulation()
    wrapped = simulation.history(thing, model, **options)

    def work() -> None:
        for function in functions:
            function(wrapped)

    simulation.client(work, name="worker")
    simulation.run()


class Plain(Jobs):
    """A queue of one's own, with more than the model has."""

    extra = 1

    def drop(self) -> None:
        self.jobs.clear()


def is_empty(jobs: Any) -> None:
    """It says so."""
    with pytest.raises(queue.Empty):
        jobs.get()


def test_what_was_lost_is_found_at_the_end() -> None:
    """What a method that is not recorded does is not known to the model; the place of the call is told."""
    with pytest.raises(Violation) as caught:
        one_by_one(
            lambda jobs: jobs.put("a"),
            lambda jobs: jobs.drop(),
            is_empty,
            thing=Plain(),
        )
    text = str(caught.value)
    assert "get() raised Empty" in text
    assert "after put('a'), the get() of worker would have returned 'a'" in text


def test_errors_are_outcomes() -> None:
    """An error that the model raises, too, is right; another one, or none, is not."""
    one_by_one(is_empty, thing=Plain())

    class Quiet(Plain):
        def get(self) -> Any:
            return self.jobs.pop(0) if self.jobs else None

    with pytest.raises(Violation, match=r"at first, the get\(\) of worker would have raised Empty"):
        one_by_one(lambda jobs: jobs.get(), thing=Quiet())


class Late(Plain):
    """A queue whose answers to `put` are late."""

    def put(self, job: Any) -> None:
        if job != "lost":
            self.jobs.append(job)
        raise locks.LockTimeout("too late")


class Twice(Late):
    """The same, and what it has is delivered again and again."""

    def get(self) -> Any:
        return self.jobs[0]


def test_error_of_locks_says_nothing() -> None:
    """What a timeout has ended may have taken effect, or not; but not more than once."""

    def put(jobs: Any) -> None:
        for job in ("lost", "kept"):
            with pytest.raises(locks.LockTimeout):
                jobs.put(job)

    uses = [put, lambda jobs: jobs.get()]
    one_by_one(*uses, thing=Late())
    with pytest.raises(Violation) as caught:
        one_by_one(*uses, lambda jobs: jobs.get(), thing=Twice())
    assert str(caught.value).count("get() returned 'kept'") == 2


class Accounts:
    """A bank for one client alone."""

    def __init__(self, opening: int = 0) -> None:
        self.balances: dict[str, int] = {}
        self.opening = opening

    def pay_in(self, account: str, amount: int = 1) -> int:
        self.balances[account] = self.balance(account) + amount
        return self.balances[account]

    def balance(self, account: str) -> int:
        return self.balances.get(account, self.opening)


class Bank(Accounts):
    """One that adds before it has the lock, if it is hasty."""

    def __init__(self, simulation: Simulation, hasty: str = "") -> None:
        super().__init__(100)
        self.pause, self.hasty = simulation.sleep, hasty

    def pay_in(self, account: str, amount: int = 1) -> int:
        new = self.balance(account) + amount
        with locks.Lock(("bank", account)):
            if account != self.hasty:
                new = self.balance(account) + amount
            self.pause()
            self.balances[account] = new
            return new


@pytest.mark.parametrize("hasty", ["", pytest.param("bob", marks=pytest.mark.explore)])
def test_parts_are_checked_by_themselves(hasty: str) -> None:
    """With a key, for each of its values; then long histories are quick to check, and the failure says which it is."""

    def scenario(simulation: Simulation) -> None:
        bank = simulation.history(Bank(simulation, hasty), lambda: Accounts(100), key="account")

        def clerk(*accounts: str) -> None:
            for account in accounts:
                bank.pay_in(account, amount=10)
                bank.balance(account=account)

        for _ in range(4):
            simulation.client(clerk, *[f"account-{n}" for n in range(8)], "bob")
        simulation.run()

    if not hasty:
        simulate(scenario, 10)
        return
    text, _ = failure_of(scenario)
    assert "(all with account='bob')" in text
    assert "account-" not in text


def test_call_of_a_client_that_died_may_have_taken_effect() -> None:
    """Whether it had or not when it died: both are right."""

    class Slow(Plain):
        def __init__(self, simulation: Simulation, early: bool) -> None:
            super().__init__()
            self.pause, self.early = simulation.sleep, early

        def put(self, job: Any) -> None:
            if self.early:
                super().put(job)
            self.pause(1000)
            if not self.early:
                super().put(job)

    for early in (True, False):
        simulation = Simulation()
        jobs = simulation.history(Slow(simulation, early), Jobs)
        victim = simulation.client(jobs.put, "a")

        def kill(jobs: Any = jobs, victim: Any = victim, simulation: Any = simulation) -> object:
            simulation.sleep(10)
            simulation.kill(victim)
            simulation.sleep(10)
            try:
                return jobs.get()
            except queue.Empty:
                return None

        assert simulation.client(kill) is not None
        simulation.run()
        assert victim.killed


def test_tasks_and_threads_have_histories() -> None:
    """Coroutine functions and plain ones are recorded in tasks of asyncio, and in threads of patched programs."""

    class Async(Jobs):
        async def put(self, job: Any) -> None:  # type: ignore[override]
            async with aio.Lock(("jobs",)):
                super().put(job)

    class Lossy(Async):
        async def put(self, job: Any) -> None:  # type: ignore[override]
            await super().put(job if job != "b" else "c")

    def scenario(simulation: Simulation, kind: Any = Async) -> None:
        jobs = simulation.history(kind(), Jobs)

        async def use(job: str) -> None:
            await jobs.put(job)
            jobs.get()

        simulation.client(use, "a", name="ann")
        simulation.client(use, "b", name="bob")
        simulation.run()

    simulate(scenario, 20)
    text, _ = failure_of(lambda simulation: scenario(simulation, Lossy), 1)
    assert "get() returned 'c'" in text
    assert text.splitlines()[1].split()[0] in ("ann", "bob")
    assert "[test_testing_recorded.py:" in text

    def threads(simulation: Simulation) -> None:
        jobs = simulation.history(Plain(), Jobs)

        def work() -> None:
            each = [threading.Thread(target=jobs.put, args=(n,)) for n in range(3)]
            for thread in each:
                thread.start()
            for thread in each:
                thread.join()
            assert sorted(jobs.get() for _ in each) == [0, 1, 2]

        simulation.client(work)
        simulation.run()

    simulate(threads, 20, patch=True)


# --- What is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thing", "model", "key", "says"),
    [
        (Plain(), Jobs(), "", "it is not a class"),
        (Plain(), SimpleNamespace, "", "has no method"),
        (Cell(), Jobs, "", "it has a method get, which .* has not"),
        (Plain(), Jobs, "job", r"key='job': get\(\).* has no such parameter"),
        (Plain(), lambda: SimpleNamespace(put=threading.Lock()), "", "has no method"),
    ],
)
def test_what_can_not_be_compared_is_refused(thing: Any, model: Any, key: str, says: str) -> None:
    """At once, and by its name."""
    with pytest.raises(InvalidOption, match=says):
        Simulation().history(thing, model, key=key)


def test_too_many_orders_are_refused() -> None:
    """With what to do about it; nothing passes that was not found to be right."""
    simulation = Simulation()

    class Stuck(Jobs):
        def put(self, job: Any) -> None:
            raise locks.LockTimeout("maybe")

        def get(self) -> Any:
            return "never there"

    jobs = simulation.history(Stuck(), Jobs)

    def work() -> None:
        for number in range(20):
            with pytest.raises(locks.LockTimeout):
                jobs.put(number)
        jobs.get()

    simulation.client(work)
    with pytest.raises(MisuseError, match=r"history\(\.\.\., key=\.\.\.\)"):
        simulation.run()
