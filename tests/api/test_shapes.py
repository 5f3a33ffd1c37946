"""`RLock`, and functions that are run with a lock, for clients of every kind."""

from __future__ import annotations

import threading
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import locks
from tests.api.clients import Run
from tests.helpers import LIMIT

A, B = ("a",), ("b",)


@pytest.mark.every_kind
def test_rlock_is_acquired_again_and_released_as_often(run: Run) -> None:
    """Who has it acquires it at once; others get it after as many releases; all `RLock`s of an id are one."""
    one, two = run.client(), run.client()
    first, second = locks.RLock(A), locks.RLock(A)

    def twice() -> None:
        with first, second:
            assert first.acquire()
            first.release()
            assert first.owned()
            assert second.token() == first.token()

    one.call(twice)
    assert one.call(first.acquire)
    assert one.call(second.acquire)
    assert one.call(first.acquire, blocking=False)
    for _ in range(3):
        assert not two.call(first.acquire, blocking=False)
        assert first.locked()
        one.call(second.release)
    assert two.call(first.acquire)
    with pytest.raises(locks.errors.NotHeld):
        one.call(first.release)
    two.call(first.release)
    with pytest.raises(locks.errors.NotHeld):
        two.call(first.release)


def test_rlock_is_lost_by_an_abort(run: Run) -> None:
    """A deadlock through `RLock`s is found; who yields has none of them, and its counts begin anew."""
    one, two = run.client(), run.client()
    a, b = locks.RLock(A), locks.RLock(B)
    for _ in range(2):
        one.call(a.acquire)
        two.call(b.acquire)
    answer = one.do(b.acquire)
    run.pause()
    with pytest.raises(locks.DeadlockAborted):
        two.call(a.acquire)
    assert answer.get()
    with pytest.raises(locks.errors.NotHeld):
        two.call(b.release)
    one.call(b.release)
    one.call(a.release)
    one.call(a.release)
    assert two.call(b.acquire)
    two.call(b.release)
    with pytest.raises(locks.errors.NotHeld):
        two.call(b.release)


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_lock_is_not_released_by_an_rlock_of_its_id(run: Run, mode: locks.values.Mode) -> None:
    """Who has an id by a `Lock` does not get it by an `RLock`, whose release would be the `Lock`'s: others stay out."""
    one, two = run.client(), run.client()
    lock, again = locks.Lock(A, mode), locks.RLock(A)
    assert one.call(lock.acquire)
    with pytest.raises(locks.MisuseError, match="the caller already holds it by a Lock"):
        one.call(again.__enter__)
    with pytest.raises(locks.MisuseError, match="the caller already holds it by a Lock"):
        one.call(locks.locked(A)(lambda: None))
    with pytest.raises(locks.MisuseError, match="the caller already holds it by a Lock"):
        one.call(again.acquire)
    assert not one.call(again.acquire, blocking=False)
    assert not one.call(again.acquire, timeout=0.01)
    with pytest.raises(locks.errors.NotHeld, match="the caller holds it by a Lock"):
        one.call(again.release)
    assert one.call(lock.owned)
    assert not two.call(again.acquire, blocking=False)
    one.call(lock.release)
    assert two.call(again.acquire)
    two.call(again.release)


def test_an_rlock_waits_for_a_lock_of_its_owner() -> None:
    """With a limit, an `RLock` waits for the release of a `Lock` by another thread of its owner, and keeps it then."""
    owner, other = locks.Owner("job 17"), locks.Owner("other")
    lock, again = locks.Lock(A, owner=owner), locks.RLock(A, owner=owner)
    lock.acquire()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(again.acquire, timeout=LIMIT)
        with pytest.raises(futures.TimeoutError):
            waits.result(0.05)
        lock.release()
        assert waits.result(LIMIT)
    with pytest.raises(locks.MisuseError):
        lock.acquire()
    assert not locks.Lock(A, owner=other).acquire(blocking=False)
    again.release()
    assert locks.Lock(A, owner=other).acquire(blocking=False)
    owner.end()
    other.end()


# --- locked -----------------------------------------------------------------------------------------


@locks.locked(("fixed",))
def countdown(number: int) -> int:
    """Calls itself with its lock."""
    assert locks.RLock(("fixed",)).owned()
    return number and countdown(number - 1)


class Account:
    """Has a method with a lock of its own number."""

    def __init__(self, number: int) -> None:
        self.number = number

    @locks.locked(lambda self, *_, **__: ("accounts", self.number), timeout=0.01)
    def withdraw(self, amount: int, *, note: str = "") -> tuple[int, str]:
        """Some money."""
        assert locks.RLock(("accounts", self.number)).owned()
        return amount, note


@pytest.mark.every_kind
def test_locked_functions(run: Run) -> None:
    """A function is run with its lock, by its name, also again within itself; a method with that of its object."""
    one, two = run.client(), run.client()
    assert one.call(countdown, 3) == 0
    assert countdown.__doc__ == "Calls itself with its lock."
    account = Account(17)
    assert two.call(account.withdraw, 5, note="rent") == (5, "rent")
    lock = locks.Lock(("accounts", 17))
    one.call(lock.acquire)
    with pytest.raises(locks.LockTimeout):
        two.call(account.withdraw, 5)
    assert two.call(Account(18).withdraw, 5) == (5, "")
    one.call(lock.release)

    @locks.locked(A)
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        one.call(fails)


def test_locked_readers_run_together(run: Run) -> None:
    """With `mode="read"` functions run side by side."""
    one, two = run.client(), run.client()
    lock = locks.Lock(A, "read")
    one.call(lock.acquire)

    @locks.locked(A, "read", timeout=30)
    def read() -> bool:
        return True

    assert two.call(read)
    one.call(lock.release)


def test_what_can_not_be_run_with_a_lock() -> None:
    """Ids and options are looked at when the function is defined; generators are refused."""
    with pytest.raises(locks.errors.InvalidLockId):
        locks.locked("report")
    for lock_id in (A, lambda *_: A):
        with pytest.raises(locks.errors.InvalidOption, match="timeout=-2"):
            locks.locked(lock_id, timeout=-2)
        with pytest.raises(locks.errors.InvalidOption, match="mode 'wrote'"):
            locks.locked(lock_id, "wrote")  # type: ignore[arg-type]

    def numbers() -> Any:
        yield 1

    async def more() -> Any:
        yield 1

    for function in (numbers, more, 17):
        with pytest.raises(
            locks.errors.InvalidOption, match=r"can't be called|calling it does not run its body"
        ):
            locks.locked(A)(function)  # type: ignore[type-var]
    calls = locks.locked(lambda: "report")(lambda: None)
    with pytest.raises(locks.errors.InvalidLockId):
        calls()


def test_a_condition_of_the_standard_library_with_an_rlock() -> None:
    """`threading.Condition` waits with all acquisitions released, and has as many again after the wait."""
    lock = locks.RLock(A)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    told: list[str] = []

    def wait() -> int:
        with condition, condition:
            told.append("waits")
            assert condition.wait_for(lambda: "done" in told, timeout=LIMIT)
            lock.release()
            assert lock.owned()
            lock.acquire()
        return int(lock.owned())

    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(wait)
        with pytest.raises(RuntimeError):
            condition.notify()
        while True:
            with condition:
                if told:
                    told.append("done")
                    condition.notify()
                    break
        assert waiter.result(LIMIT) == 0
