"""`threading.Condition` over `Lock` and `RLock`: a wait gives the lock back, and the blocks around it release it afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import locks
from tests.helpers import eventually

HALL = ("hall", 17)
Kind = type[locks.Lock] | type[locks.RLock]


def visit(kind: Kind, condition: threading.Condition, visited: list[bool]) -> None:
    """As another client: acquire the lock, which a waiting client has given back, and notify it."""
    with kind(HALL):
        visited.append(True)
    with condition:
        condition.notify_all()


@pytest.mark.parametrize("kind", [locks.Lock, locks.RLock])
@pytest.mark.parametrize("whose", ["caller", "named owner", "acting owner"])
@pytest.mark.parametrize("deep", [False, True])
def test_blocks_around_a_wait_release_the_lock(kind: Kind, whose: str, deep: bool) -> None:
    """Another client has the lock during the wait; afterwards it is held, and free after the last block.

    `deep`: within a second block, of the same `RLock`, or of another `Lock`.
    """
    owner = locks.Owner("request 17")
    named = kind(HALL, owner=owner) if whose == "named owner" else kind(HALL)
    condition = threading.Condition(named)
    visited: list[bool] = []
    visitor = threading.Thread(target=visit, args=(kind, threading.Condition(kind(HALL)), visited))
    with ExitStack() as stack:
        if whose == "acting owner":
            stack.enter_context(owner)
        if deep:
            stack.enter_context(named if kind is locks.RLock else locks.Lock(("other",)))
        with named:
            visitor.start()
            while not visited:
                condition.wait(0.01)
            assert named.owned()
        assert named.owned() is (deep and kind is locks.RLock)
    visitor.join()
    assert not named.locked()


@pytest.mark.parametrize(
    "make",
    [
        lambda: locks.Semaphore(HALL, 1),
        lambda: locks.Semaphore(HALL, 2),
        lambda: locks.RWLock(HALL).write_lock(),
        lambda: locks.RWLock(HALL).read_lock(),
    ],
    ids=["a semaphore of one", "a semaphore of two", "write", "read"],
)
@pytest.mark.parametrize("is_collected", [False, True])
def test_other_kinds_of_locks(make: Callable[[], locks.Lock], is_collected: bool) -> None:
    """They wait within a block of another lock, also one of a generator, and are free after all blocks."""
    lock, seen = make(), list[bool]()
    condition = threading.Condition(lock)  # type: ignore[arg-type]

    def within() -> Iterator[None]:
        with locks.Lock(("around",)):
            yield

    def notify() -> None:
        with condition:
            seen.append(True)
            condition.notify()

    around = within()
    next(around)
    notifier = threading.Thread(target=notify)
    with condition:
        notifier.start()
        while not seen:
            assert condition.wait(60)
        assert lock.owned()
    notifier.join()
    if is_collected:
        del around
        gc.collect()
    else:
        around.close()
    assert not lock.locked()
    eventually(lambda: not locks.Lock(("around",)).locked())


@pytest.mark.parametrize("kind", [locks.Lock, locks.RLock])
def test_threads_of_one_owner_wait_at_the_same_time(kind: Kind) -> None:
    """Each gives back what it has acquired itself, and has it again after its wait."""
    condition = threading.Condition(kind(HALL, owner=locks.Owner("all of them")))
    ready: list[bool] = []
    done: list[bool] = []
    waiting: list[bool] = []

    def consume() -> None:
        with condition:
            waiting.append(True)
            while not ready:
                condition.wait(60)
            done.append(True)

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for number, thread in enumerate(threads, 1):
        thread.start()  # one after the other: a `Lock` that its owner holds can't be acquired without a limit
        eventually(lambda number=number: len(waiting) == number and not locks.Lock(HALL).locked())  # type: ignore[misc]
    with condition:
        ready.append(True)
        condition.notify_all()
    for thread in threads:
        thread.join()
    assert len(done) == 3
    assert not locks.Lock(HALL).locked()


@pytest.mark.parametrize("kind", [locks.Lock, locks.RLock])
def test_a_transaction_that_is_aborted_during_the_wait_has_lost_the_lock(kind: Kind) -> None:
    """The wait raises `LockLost`, and the lock is free."""
    lock = kind(HALL)
    condition = threading.Condition(lock)
    node = locks.start()

    def abort() -> None:
        with kind(HALL):  # so the other client waits
            node.agents()[0].stop()

    thread = threading.Thread(target=abort)

    def wait() -> None:
        with lock:
            thread.start()
            while not condition.wait(0.01):
                pass

    with pytest.raises(locks.LockLost, match="while it waited for a Condition"):
        wait()
    thread.join()
    assert not lock.locked()


@pytest.mark.parametrize("kind", [locks.Lock, locks.RLock])
def test_nothing_is_left_after_the_blocks(kind: Kind) -> None:
    """The transaction that a wait has kept ends with the last block."""
    node = locks.start()
    lock = kind(HALL)
    with lock:
        threading.Condition(lock).wait(0.001)
    assert not node.agents()


def test_a_wait_without_the_lock_is_refused() -> None:
    """As with the locks of `threading`."""
    for lock in (locks.Lock(HALL), locks.RLock(HALL)):
        with pytest.raises(RuntimeError):
            threading.Condition(lock).wait(0.01)
