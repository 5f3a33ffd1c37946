"""Clients that are no threads, greenlets or actors: `locks.Owner`."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import gevent
import pykka
import pytest

import locks
from locks.node.client.holders import Holders
from locks.runtime.monitor import current_client
from tests.api.clients import many
from tests.helpers import LIMIT, eventually

A, B = ("a",), ("b",)


def holder_of(lock_id: tuple[str, ...]) -> list[str]:
    """The names of those who hold an id."""
    return [each.client for each in locks.holders(lock_id)]


def in_thread(function: Callable[[], Any]) -> Any:
    """What a function returns, or raises, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(LIMIT)


def test_a_block_acts_for_its_owner_and_ends_it() -> None:
    """What is locked within `with Owner` is the owner's, shown by its name, and released with the block."""
    with locks.Owner("request 17") as owner:
        tx = locks.transaction()
        tx.__enter__()
        tx.write_lock(A)
        assert locks.Lock(B).acquire()
        assert holder_of(A) == holder_of(B) == ["request 17"]
    assert owner.ended
    assert holder_of(A) == holder_of(B) == []
    with pytest.raises(locks.TransactionEnded, match="because its client request 17 has ended"):
        tx.write_lock(B)


def test_a_transaction_of_an_owner_is_used_in_any_thread() -> None:
    """Its locks are asked for in one thread, looked at in a greenlet, and released in another thread."""
    owner = locks.Owner("session")
    tx = locks.transaction(owner=owner)
    in_thread(tx.__enter__)
    token = in_thread(lambda: tx.write_lock(A))
    assert gevent.spawn(tx.token, A).get() == token
    in_thread(lambda: tx.unlock(A))
    tx.write_lock(B)
    assert holder_of(B) == ["session"]
    in_thread(owner.end)
    assert holder_of(B) == []


def test_locks_of_an_owner_are_released_in_any_thread() -> None:
    """`Lock` and `RWLock` take an owner, who holds it wherever it is acquired."""
    owner = locks.Owner("job")
    lock = locks.Lock(A, owner=owner)
    reader = locks.RWLock(B, owner=owner).read_lock()
    assert in_thread(lock.acquire)
    assert in_thread(reader.acquire)
    assert lock.owned()
    assert in_thread(lock.owned)
    assert not locks.Lock(A).owned()
    lock.release()
    reader.release()
    assert holder_of(A) == holder_of(B) == []


def test_two_owners_in_one_thread_are_two_clients() -> None:
    """They exclude each other, as two threads do, and neither waits for itself."""
    one, two = locks.Owner("one"), locks.Owner("two")
    with one.acting():
        assert locks.Lock(A).acquire()
        with two.acting():
            assert not locks.Lock(A).acquire(blocking=False)
            with pytest.raises(locks.LockTimeout, match="held by one"):
                locks.run_transaction(lambda tx: tx.write_lock(A, timeout=0))
        locks.Lock(A).release()
    with two.acting():
        assert locks.Lock(A).acquire(blocking=False)
    two.end()


def test_two_threads_of_one_owner_are_one_client() -> None:
    """A second transaction of it that would wait for the first one is told so, also in another thread."""
    owner = locks.Owner("one")
    with locks.transaction(owner=owner) as tx:
        tx.write_lock(A)
        with pytest.raises(
            locks.errors.WaitsForItself, match="one would wait for itself: it requests write"
        ):
            in_thread(lambda: locks.run_transaction(lambda tx: tx.write_lock(A), owner=owner))


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Threads take turns as often as can be."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.00001)
    yield
    sys.setswitchinterval(interval)


def at_once(functions: Sequence[Callable[[], Any]]) -> None:
    """Call functions in threads of their own, at the same moment; raises what one of them raises."""
    met = threading.Barrier(len(functions), timeout=LIMIT)

    def run(function: Callable[[], Any]) -> None:
        met.wait()
        function()

    with ThreadPoolExecutor(len(functions)) as pool:
        for each in [pool.submit(run, function) for function in functions]:
            each.result(LIMIT)


def rlock_and_look(owner: locks.Owner, number: int) -> None:
    """Acquire an `RLock` that other threads of the owner have as well."""
    lock = locks.RLock(A, owner=owner)
    for _ in range(5):
        with lock:
            assert lock.owned()


def lock_own_and_look(owner: locks.Owner, number: int) -> None:
    """Acquire a lock that no other thread wants."""
    lock = locks.Lock(("own", number), owner=owner)
    for _ in range(5):
        with lock:
            assert lock.owned()


def lock_and_look(owner: locks.Owner, number: int) -> None:
    """Acquire a `Lock` if no other thread of the owner has it; whoever has it releases it."""
    lock = locks.Lock(A, owner=owner)
    for _ in range(5):
        if lock.acquire(timeout=0):
            assert lock.owned()
            lock.release()


@pytest.mark.usefixtures("busy_switching")
@pytest.mark.parametrize("work", [rlock_and_look, lock_own_and_look, lock_and_look])
def test_threads_of_an_owner_may_begin_at_the_same_moment(
    work: Callable[[locks.Owner, int], None],
) -> None:
    """They have one transaction, so each has what it has acquired, and nobody waits for himself."""
    for number in range(many(100, 2000)):
        owner = locks.Owner(f"job {number}")
        at_once([partial(work, owner, thread) for thread in range(4)])
        assert not [agent for agent in locks.start().agents() if agent.client is owner]
        owner.end()


class Between:
    """Does something once, in another thread, where a method is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str) -> None:
        self.do: Callable[[], Any] | None = None
        method = getattr(owner, name)

        def called(*args: Any, **options: Any) -> Any:
            do, self.do = self.do, None
            if do is not None:
                in_thread(do)
            return method(*args, **options)

        monkeypatch.setattr(owner, name, called)


@pytest.mark.parametrize("shape", [locks.Lock, locks.RLock])
def test_another_thread_of_the_owner_begins_first(
    shape: type[locks.Lock] | type[locks.RLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether the owner has a transaction, and the new one: that is not used."""
    locks.start().thin.pause = 100
    between = Between(monkeypatch, Holders, "put_first")
    owner = locks.Owner("job")
    one, two = shape(A, owner=owner), shape(B, owner=owner)
    between.do = two.acquire
    assert one.acquire()
    assert between.do is None
    assert one.owned()
    assert two.owned()
    (agent,) = (agent for agent in locks.start().agents() if agent.client is owner)
    one.release()
    two.release()
    assert not agent.is_alive()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_owner_is_not_copied(copied: Callable[[Any], Any]) -> None:
    """A copy would be another client of the same name; nor is a `Lock` that names one. A `Lock` alone is just its name."""
    owner = locks.Owner("job")
    lock = locks.Lock(A, owner=owner)
    for named in (owner, lock) if copied is not copy.copy else (owner,):
        with pytest.raises(locks.MisuseError, match="can't copy or pickle owner job"):
            copied(named)
    assert copied(locks.Lock(A))
    with lock:
        assert copy.copy(lock).owned()  # it names the same owner


def test_one_object_for_several_blocks_in_which_one_acts() -> None:
    """Within each other, or in two threads at once: after each it is as it was before."""
    one, two = locks.Owner("one"), locks.Owner("two")
    block = one.acting()
    with block:
        with block:
            assert current_client() is one
        assert current_client() is one
    assert current_client() not in (one, two)

    def within_two() -> bool:
        with two.acting():
            with block:
                met.wait()
                met.wait()
            return current_client() is two

    met = threading.Barrier(2, timeout=LIMIT)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(within_two)
        with block:
            met.wait()
        met.wait()
        assert found.result(LIMIT)
    assert current_client() not in (one, two)


def test_an_owner_that_has_ended_gets_nothing() -> None:
    """It is refused by name, with what to do; nothing was begun."""
    owner = locks.Owner("over")
    owner.end()
    owner.end()
    for use in (
        lambda: locks.run_transaction(lambda tx: tx.write_lock(A), owner=owner),
        lambda: locks.Lock(A, owner=owner).acquire(),
        lambda: locks.original.begin_transaction(client=owner),
    ):
        with pytest.raises(locks.MisuseError, match=r"^can't lock for owner over: it has ended\."):
            use()
    assert locks.statistics().agents == 0


class Sleeper(pykka.ThreadingActor):
    """An actor that does nothing."""


def _thread() -> tuple[Any, Callable[[], object]]:
    wait = threading.Event()
    thread = threading.Thread(target=wait.wait)
    thread.start()
    return thread, wait.set


def _greenlet() -> tuple[Any, Callable[[], object]]:
    greenlet = gevent.spawn(gevent.sleep, LIMIT)
    gevent.sleep(0)
    return greenlet, greenlet.kill


def _actor() -> tuple[Any, Callable[[], object]]:
    ref = Sleeper.start()
    return ref, ref.stop


def _owner() -> tuple[Any, Callable[[], object]]:
    owner = locks.Owner("parent")
    return owner, owner.end


def _future() -> tuple[Any, Callable[[], object]]:
    future: Future[None] = Future()
    return future, lambda: future.set_result(None)


def _cancelled_future() -> tuple[Any, Callable[[], object]]:
    future: Future[None] = Future()
    return future, future.cancel


@pytest.mark.parametrize("make", [_thread, _greenlet, _actor, _owner, _future, _cancelled_future])
def test_an_owner_ends_with_what_it_is_tied_to(
    make: Callable[[], tuple[Any, Callable[[], object]]],
) -> None:
    """A thread, a greenlet, an actor, an owner, a future: with its end all that the owner has is released."""
    subject, end = make()
    owner = locks.Owner("tied", tied_to=subject)
    try:
        assert locks.Lock(A, owner=owner).acquire()
        assert not owner.ended
    finally:
        end()
    eventually(lambda: owner.ended and holder_of(A) == [])
    eventually(lambda: locks.Owner("late", tied_to=subject).ended)  # it has ended already


def test_acting_goes_along_to_threads_of_asyncio_alone() -> None:
    """`asyncio.to_thread` acts for the owner, as do tasks; a plain thread does not."""

    async def main() -> tuple[Any, Any]:
        with locks.Owner("request").acting() as owner:
            there = await asyncio.to_thread(locks.runtime.monitor.current_client)
            plain = in_thread(locks.runtime.monitor.current_client)
            assert there is owner
            return there, plain

    there, plain = asyncio.run(main())
    assert there is not plain
    assert not isinstance(plain, locks.Owner)


def test_what_is_no_owner_is_refused() -> None:
    """By transactions, by locks; and what an owner can't be tied to."""
    for use in (
        lambda: locks.transaction(owner="me"),  # type: ignore[arg-type]
        lambda: locks.Lock(A, owner=threading.current_thread()),  # type: ignore[arg-type]
    ):
        with pytest.raises(locks.errors.InvalidOption, match=r"is not a locks\.Owner; create one"):
            use()
    with pytest.raises(locks.errors.InvalidOption, match="can't tie owner me to 7"):
        locks.Owner("me", tied_to=7)  # type: ignore[arg-type]


def test_a_lock_has_a_time_limit_of_its_own() -> None:
    """`Lock(timeout=)` is for waits of which it is not said: `acquire` says no, `with` raises."""
    with locks.Lock(A, owner=locks.Owner("holds")):
        lock = locks.Lock(A, timeout=0.01)
        assert lock.acquire() is False
        assert lock.acquire(blocking=False) is False
        with (
            pytest.raises(
                locks.LockTimeout,
                match=r"timed out after 0\.01 s waiting for write a, held by holds",
            ),
            lock,
        ):
            pass
    with lock:
        assert lock.owned()
