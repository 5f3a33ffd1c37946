"""Several threads, or greenlets, that act for one owner use the same lock, or the same transaction, at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
import pytest

import locks
from locks.node.client.acquisitions import Acquisition
from locks.node.client.agent import Agent
from locks.node.client.one_client import note_wait
from locks.node.client.thin import LightAgent, ThinLock, ThinRLock
from tests.api.test_owners import Between, holder_of
from tests.helpers import LIMIT, eventually

A, B = ("a",), ("b",)


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


def test_one_gives_up_an_upgrade_and_another_one_waits_on() -> None:
    """Both have it for reading, and want it for writing."""
    owner, other = locks.Owner("job"), locks.Owner("other")
    with locks.transaction(owner=owner) as tx, locks.Lock(A, "read", owner=other):
        tx.read_lock(A)
        first = waits(lambda: tx.lock_all([A]))
        second = waits(lambda: tx.lock_all([A]))
        reader = waits(lambda: tx.lock_all(read=[A]))  # for what was asked for before, too
        first.kill()
        gevent.sleep(0)
        assert not second.ready()
        (info,) = tx.agent.lock_info()
        assert (info.mode, info.held) == ("write", False)
        second.kill()
        reader.get(timeout=LIMIT)
        (info,) = tx.agent.lock_info()
        assert (info.mode, info.held) == ("read", True)


def test_two_threads_release_an_rlock_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each undoes one `acquire`, and then nobody has it."""
    node = locks.start()
    for made, pause in ((Agent, 100), (ThinRLock, 0)):
        node.thin.pause = pause
        owner = locks.Owner("job")
        lock = locks.RLock(A, owner=owner)
        assert lock.acquire()
        assert lock.acquire()
        between = Between(monkeypatch, made, "give_back")
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
    for pause in 100, 0:
        for begin, thin in (
            (locks.transaction().__enter__, LightAgent),
            (locks.Lock(A).acquire, ThinLock),
            (locks.RLock(A).acquire, ThinRLock),
        ):
            made = Agent if pause else thin
            between = Between(monkeypatch, made, "__init__")
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
