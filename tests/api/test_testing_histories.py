"""`Simulation.history`: what is recorded, calls that no order explains, and what is refused."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import locks
from locks import aio
from locks.errors import MisuseError
from locks.runtime.monitor import current_client
from locks.testing import Simulation, Violation, simulate

SEEDS = 1000
FEW = 20  # seeds in which a planted bug is found


class Cell:
    """A register for one client alone."""

    def __init__(self) -> None:
        self.value = 0

    def read(self) -> int:
        return self.value

    def write(self, value: int) -> None:
        self.value = value


class Jobs:
    """A queue for one client alone."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def put(self, job: Any) -> None:
        self.jobs.append(job)

    def get(self) -> Any:
        if not self.jobs:
            raise queue.Empty
        return self.jobs.pop(0)


class Register:
    """A register with a cache, in front of something slow."""

    def __init__(self, simulation: Simulation) -> None:
        self.pause = simulation.sleep
        self.value = 0
        self.cached: int | None = None

    def write(self, value: int) -> None:
        with locks.Lock(("register",)):
            self.pause()
            self.value, self.cached = value, None

    def read(self) -> int:
        with locks.Lock(("register",)):
            return self.look()

    def look(self) -> int:
        if self.cached is None:
            value = self.value
            self.pause()
            self.cached = value
        return self.cached


class Uncovered(Register):
    """The bug: its read takes no lock."""

    def read(self) -> int:
        return self.look()


class Topic:
    """A queue of which one consumer at a time takes jobs; how far it has come is written down."""

    def __init__(self, simulation: Simulation) -> None:
        self.pause = simulation.sleep
        self.jobs: list[str] = []
        self.at = 0

    def put(self, job: str) -> None:
        with locks.Lock(("topic",)):
            self.jobs.append(job)

    def get(self) -> str:
        with locks.Lock(("topic",)):
            if self.at == len(self.jobs):
                raise queue.Empty
            job = self.jobs[self.at]
            self.at += 1
            self.pause()
            return job


class Forgetful(Topic):
    """The bug: what was taken is written down when the same consumer comes again, so not after its death."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.taken: dict[Any, int] = {}

    def get(self) -> str:
        me = current_client()
        with locks.Lock(("topic",)):
            self.at = self.taken.pop(me, self.at)
            if self.at == len(self.jobs):
                raise queue.Empty
            self.taken[me] = self.at + 1
            return self.jobs[self.at]


def register_of(kind: type[Register]) -> Callable[[Simulation], None]:
    """Two that write, two that read, again and again."""

    def scenario(simulation: Simulation) -> None:
        register = simulation.history(kind(simulation), Cell)

        def writes(*values: int) -> None:
            for value in values:
                register.write(value)

        def reads() -> None:
            for _ in range(4):
                register.read()
                simulation.sleep()

        simulation.client(writes, 1, 2)
        simulation.client(writes, 3)
        simulation.client(reads)
        simulation.client(reads)
        simulation.run()

    return scenario


def topic_of(kind: type[Topic]) -> Callable[[Simulation], None]:
    """A consumer dies; the next one has the session only then, and goes on."""

    def scenario(simulation: Simulation) -> None:
        topic = simulation.history(kind(simulation), Jobs)
        for job in "abcdef":
            topic.put(job)

        def consume() -> None:
            with locks.Lock(("consumer",)):
                while True:
                    try:
                        topic.get()
                    except queue.Empty:
                        return
                    simulation.sleep()

        for _ in range(3):
            simulation.client(consume)
        simulation.run(deaths=2)

    return scenario


def failure_of(scenario: Any, seeds: Any = FEW, **options: Any) -> tuple[str, str]:
    """What a history can't be, and the story."""
    with pytest.raises(Violation) as caught:
        simulate(scenario, seeds, **options)
    return str(caught.value), "\n".join(getattr(caught.value, "__notes__", []))


# --- Planted bugs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["mixed", "uniform", "pct"])
def test_read_that_the_lock_does_not_cover_is_found(strategy: Any) -> None:
    """Within few seeds, and the failure has the calls that matter, with their lines."""
    text, story = failure_of(register_of(Uncovered), strategy=strategy)
    lines = text.splitlines()
    assert "as those of a Cell do" in lines[0]
    calls = [line for line in lines if "[test_testing_histories.py:" in line]
    assert 2 <= len(calls) <= 4, text
    assert any("read() returned " in line for line in calls)
    assert "would have returned " in text
    if sys.version_info >= (3, 11):
        assert " calls read()" in story
        assert " from read" in story


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mixed", "uniform"])
def test_queue_that_delivers_twice_after_a_death_is_found(strategy: Any) -> None:
    """Within few seeds; two deliveries of one job are the smallest part."""
    text, _ = failure_of(topic_of(Forgetful), 3 * FEW, strategy=strategy)
    calls = [line for line in text.splitlines() if "[test_testing_histories.py:" in line]
    assert len(calls) <= 3
    assert len({line.split(" returned ")[1].split()[0] for line in calls}) < len(calls)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [register_of(Register), topic_of(Topic)])
@pytest.mark.parametrize("seeds", [100, pytest.param(range(100, SEEDS), marks=pytest.mark.explore)])
def test_correct_forms_pass(scenario: Any, seeds: Any) -> None:
    """A register and a queue whose locks cover all that they do, under deaths, too."""
    summary = simulate(scenario, seeds, expect=("wait",))
    if scenario.__qualname__.startswith("topic"):
        assert summary.deaths > summary.schedules // 4


# --- `Simulation.history`: what is recorded, what counts as an outcome, and what is refused. ---


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
    assert "[test_testing_histories.py:" in text

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
