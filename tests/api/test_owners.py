"""Clients that are no threads, greenlets or actors: `locks.Owner`, and several threads that act for one at the same moment."""

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
from locks.node.client.acquisitions import Acquisition
from locks.node.client.agent import Agent
from locks.node.client.holders import Holders
from locks.node.client.one_client import note_wait
from locks.node.client.thin import ThinLocks
from locks.runtime.monitor import current_client
from tests.api.clients import many
from tests.helpers import LIMIT, eventually, in_thread

A, B = ("a",), ("b",)


def holder_of(lock_id: tuple[str, ...]) -> list[str]:
    """The names of those who hold an id."""
    return [each.client for each in locks.holders(lock_id)]


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


# --- Several threads, or greenlets, that act for one owner use the same lock, or the same transaction, at the same moment. ---


def waits(function: Callable[[], Any]) -> gevent.Greenlet[..., Any]:
    """Call a function, that waits, in a greenlet."""
    greenlet = gevent.spawn(function)
    gevent.sleep(0)
    assert not greenlet.ready()
    return greenlet


def rlock(owner: locks.Owner, mode: locks.values.Mode) -> Callable[[], Any]:
    """What acquires a lock by an `RLock`."""
    return locks.RLock(A, mode, owner=owner).acquire


def one_transaction(owner: locks.Owner, mode: locks.values.Mode) -> Callable[[], Any]:
    """The same in a transaction."""
    agent = locks.original.spawn_agent(client=owner)
    return lambda: locks.original.lock(agent, A, mode)


@pytest.mark.parametrize("how", [rlock, one_transaction])
@pytest.mark.parametrize("mode", ["read", "write"])
def test_one_gives_up_and_another_one_waits_on(
    how: Callable[[locks.Owner, locks.values.Mode], Callable[[], Any]], mode: locks.values.Mode
) -> None:
    """The lock that both wait for is asked for still, and the other one does not believe that it has it."""
    owner, other = locks.Owner("job"), locks.Owner("other")
    with locks.Lock(A, owner=other):
        lock = how(owner, mode)
        first, second = waits(lock), waits(lock)
        first.kill()
        gevent.sleep(0)
        assert not second.ready()
        assert holder_of(A) == ["other"]
    assert second.get(timeout=LIMIT)
    assert holder_of(A) == ["job"]
    owner.end()


@pytest.mark.parametrize("more", [True, False])
def test_a_lock_that_another_one_has_is_waited_for_within_a_limit(more: bool) -> None:
    """Whoever waits gets it with its release, not when the time is over; one of several that wait does."""
    owner = locks.Owner("job")
    lock, other = locks.Lock(A, owner=owner), locks.Lock(B, owner=owner)
    lock.acquire()
    if more:
        other.acquire()  # the transaction does not end with the release
    got: list[int] = []

    def acquire(number: int) -> None:
        assert lock.acquire(timeout=LIMIT * 10)
        got.append(number)

    waiting = [waits(partial(acquire, number)) for number in range(3)]
    for count in range(1, 4):
        lock.release()
        eventually(lambda count=count: len(got) == count)  # type: ignore[misc]
        gevent.sleep(0)
        assert len(got) == count
    gevent.joinall(waiting, timeout=LIMIT, raise_error=True)
    assert not lock.acquire(timeout=0.01)
    owner.end()


@pytest.mark.parametrize("before", ["nothing", "held", "asked for"])
def test_what_one_waits_for_is_unlocked_by_another_one(before: str) -> None:
    """It is told so, and never that it has the lock; nothing that only it wanted is asked for any longer."""
    owner, other = locks.Owner("job"), locks.Owner("other")
    with locks.Lock(B, owner=other), locks.transaction(owner=owner) as tx:
        if before == "held":
            tx.write_lock(A)
        both = waits(lambda: tx.lock_all([A, B]))
        if before == "asked for":
            locks.original.lock_nowait(tx.agent, A)  # by another one, that does not wait
        tx.unlock(A)
        with pytest.raises(
            locks.errors.NotHeld, match="in the same transaction while this call was waiting"
        ):
            both.get(timeout=LIMIT)
        assert tx.agent.lock_info() == []
        tx.lock_all([A])
        tx.ensure_held(A)


def test_two_threads_release_an_rlock_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each undoes one `acquire`, and then nobody has it."""
    node = locks.start()
    for pause in (100, 0):
        node.thin.pause = pause
        owner = locks.Owner("job")
        lock = locks.RLock(A, owner=owner)
        assert lock.acquire()
        assert lock.acquire()
        between = Between(monkeypatch, Agent, "give_back")
        between.do = lock.release
        lock.release()
        assert between.do is None
        assert not lock.owned()
        with pytest.raises(locks.errors.NotHeld):
            lock.release()
        owner.end()


@pytest.mark.parametrize("beside", [True, False])
def test_who_gives_up_takes_nothing_from_who_acquires_it_meanwhile(
    beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread's time is over; before it has said so, the lock is free, and another thread acquires it."""
    owner, other = locks.Owner("job"), locks.Owner("other")
    lock, others = locks.Lock(A, owner=owner), locks.Lock(A, owner=other)
    if beside:
        assert locks.Lock(B, owner=owner).acquire()
    assert others.acquire()
    between = Between(monkeypatch, Agent, "withdraw")

    def acquired() -> None:
        others.release()
        assert lock.acquire(timeout=LIMIT)

    between.do = acquired
    assert not lock.acquire(timeout=0)
    assert between.do is None
    assert lock.owned()
    assert holder_of(A) == ["job"]
    owner.end()


def test_nothing_begins_on_a_node_that_another_thread_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or it would have locks there, while others have the same ones on the next node."""
    begins = locks.transaction().__enter__, locks.Lock(A).acquire, locks.RLock(A).acquire
    for pause in 100, 0:
        for begin in begins:
            between = Between(monkeypatch, Agent, "__init__")
            if not pause and begin is not begins[0]:  # it is made in the turn
                between = Between(monkeypatch, ThinLocks, "_watch")
            node = locks.start()
            node.thin.pause = pause
            between.do = locks.stop
            with pytest.raises(locks.errors.NodeNotRunning):
                begin()
            assert between.do is None
            assert node.agents() == []
    assert locks.Lock(A).acquire()
    locks.Lock(A).release()


def test_a_wait_is_noted_while_another_one_begins() -> None:
    """A thread that notes its wait forgets no other one: a deadlock through that would not be found."""
    owner = locks.Owner("job")

    class Begins:
        """The machine of a transaction with which a thread begins to wait while somebody looks whether one does."""

        @property
        def awaited(self) -> bool:
            owner.waiting[other] = None
            return False

    class Transaction:
        """What has to be known of one."""

        client = owner
        machine = Begins()

    other: Any = Transaction()
    mine: Any = Transaction()
    owner.waiting[other] = None
    note_wait(mine)
    assert list(owner.waiting) == [other, mine]


def test_an_rlock_is_asked_for_while_the_last_one_is_released() -> None:
    """What another thread has put in by then has the lock: it is neither released, nor taken for a `Lock`'s."""
    owner = locks.Owner("job")
    lock = locks.RLock(A, owner=owner)
    lock.acquire()
    (agent,) = (agent for agent in locks.start().agents() if agent.client is owner)
    next_one = Acquisition()

    class Meanwhile(dict[Any, Any]):
        """Another thread puts one in as soon as the last one is out."""

        def pop(self, *args: Any) -> Any:
            found = super().pop(*args)
            if not next_one.entered:
                agent.enter(A, next_one)
            return found

    assert agent.acquisitions is not None
    agent.acquisitions.by_id = Meanwhile(agent.acquisitions.by_id)
    lock.release()
    assert next_one.entered
    assert holder_of(A) == ["job"]
    assert lock.acquire(timeout=0)
    lock.release()
    assert lock.owned()
    agent.give_back(A, next_one)
    assert holder_of(A) == []
    owner.end()
