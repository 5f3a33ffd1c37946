"""The faces of other libraries' locks: what their own tests (`tests/others`) don't show."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

import locks
from locks.compat import filelock, kazoo, redis
from locks.compat.filelock import FileLock
from tests.cluster.machine import Machine, hear
from tests.helpers import LIMIT, eventually

LOCKS: dict[str, Callable[[], Any]] = {
    "redis": lambda: redis.Lock(None, "x", blocking_timeout=LIMIT),
    "filelock": lambda: FileLock("/tmp/x"),
    "kazoo": lambda: kazoo.Lock(None, "/x"),
}
MAKE = {
    "redis": "from locks.compat.redis import Lock; lock = Lock(None, 'x')",
    "filelock": "from locks.compat.filelock import FileLock; lock = FileLock('/tmp/x')",
    "kazoo": "from locks.compat.kazoo import Lock; lock = Lock(None, '/x')",
}
HOLD = "; lock.acquire(); print('held', flush=True); input()"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of this program alone are meant."""
    monkeypatch.setenv("LOCKS_SERVERS", "here")
    locks.stop()


@pytest.mark.parametrize("face", LOCKS)
def test_a_lock_that_other_programs_would_not_see_is_refused(face: str) -> None:
    """A program without lock servers gets an error that says what to set, not a lock that keeps nobody out."""
    with pytest.raises(locks.MisuseError, match=r"no lock servers configured: .*LOCKS_SERVERS=loc"):
        LOCKS[face]().acquire()


@pytest.mark.slow
@pytest.mark.parametrize("face", MAKE)
def test_programs_exclude_each_other_and_a_killed_one_lets_go(face: str) -> None:
    """Of two programs one has the lock; when it is killed, the other one has it."""
    with Machine() as machine:
        one = machine.program(MAKE[face] + HOLD)
        assert hear(one) == "held"
        two = machine.program(MAKE[face] + HOLD)
        ask = f"import locks; print(len(locks.queue({LOCKS[face]().lock_id!r}).waiting))"
        eventually(lambda: machine.run(ask) == "1\n")
        one.kill()
        assert hear(two) == "held"


@pytest.mark.parametrize("face", LOCKS)
def test_a_lock_of_a_thread_that_has_ended_is_kept(face: str, here: None) -> None:
    """The object is the holder, as in the libraries: another one does not get it because the thread is gone."""
    lock, other = LOCKS[face](), LOCKS[face]()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    if face == "filelock":
        with pytest.raises(filelock.Timeout):
            other.acquire(blocking=False)
    else:
        assert not other.acquire(blocking=False)
    del lock
    assert (len(locks.holders(other.lock_id)) == 0) is (face == "filelock")  # as it is collected
    locks.stop()


@pytest.mark.parametrize("face", LOCKS)
def test_a_lost_lock_is_told_of(face: str, here: None) -> None:
    """A lock that an operator took away is none any more, and the end of the block says so, unless an error does."""
    lost = {"redis": redis.LockNotOwnedError}.get(face, locks.LockLost)
    lock = LOCKS[face]()

    def lose(error: Exception | None = None) -> None:
        with lock:
            (holder,) = locks.holders(lock.lock_id)
            locks.facts.break_transaction(holder.agent, reason="test")
            if error is not None:
                raise error

    with pytest.raises(lost):
        lose()
    lock.raise_on_release_error = False  # theirs hides the other error otherwise
    with pytest.raises(KeyError):
        lose(KeyError())


def test_redis_lock_expires_unless_it_is_extended(here: None) -> None:
    """After its time others have it; what adds to the time, or begins it anew, keeps it."""
    lock, other = redis.Lock(None, "x", timeout=0.05), redis.Lock(None, b"x", timeout=3600)
    assert lock.acquire()
    assert other.acquire(blocking_timeout=LIMIT)
    assert not lock.owned()
    for call in (lock.release, lambda: lock.extend(1)):
        with pytest.raises(redis.LockError):
            call()
    assert other.reacquire()
    assert other.extend(1)
    assert other.owned()
    assert other.extend(0.01, replace_ttl=True)
    eventually(lambda: not other.owned())
    with pytest.raises(redis.LockNotOwnedError, match="can't extend the lock b'x': no longer held"):
        other.extend(1)


def test_limits_that_are_over(here: None) -> None:
    """A limit below 0 is over, but filelock's, which is none; a time that a lock is kept is not below 0."""
    with redis.Lock(None, "x"):
        assert not redis.Lock(None, "x").acquire(blocking_timeout=-1)
    with kazoo.Lock(None, "/x"), pytest.raises(kazoo.LockTimeout):
        kazoo.Lock(None, "/x").acquire(timeout=-1)
    with pytest.raises(locks.errors.InvalidOption):
        redis.Lock(None, "x", timeout=-1)
    with redis.Lock(None, "x", timeout=0) as lock, pytest.raises(redis.LockError):
        lock.extend(1)


def test_redis_lock_of_a_client(here: None) -> None:
    """`client.lock(name, lock_class=Lock)` makes one with redis-py, whose errors it raises."""
    library = pytest.importorskip("redis", reason="redis-py is not installed")
    with (
        library.Redis().lock("x", timeout=60, lock_class=redis.Lock),
        pytest.raises(library.exceptions.LockError) as caught,
        redis.Lock(None, "x", blocking=False),
    ):
        pass
    assert caught.value.lock_name == "x"


def test_redis_lock_takes_no_token(here: None) -> None:
    """A token of the program's own is refused, and there is the fencing token."""
    lock = redis.Lock(None, "x")
    with pytest.raises(locks.errors.InvalidOption, match="leave it out"):
        lock.acquire(token="mine")
    with lock:
        first = lock.token()
    with lock:
        assert lock.token() > first


def test_file_lock_that_its_thread_would_wait_for_in_vain(here: None) -> None:
    """Another object of the same thread, without a limit: an error instead of a wait without an end."""
    with FileLock("/tmp/x"), pytest.raises(RuntimeError, match="Deadlock"):
        FileLock("/tmp/../tmp/x").acquire()
    FileLock("/tmp/x").acquire()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_file_lock_in_a_forked_child(here: None) -> None:
    """A child has nothing of its parent's: it can't release it, and what it collects is not the parent's."""
    lock = FileLock("/tmp/x")
    lock.acquire()
    child = os.fork()
    if not child:
        try:
            gone = not lock.is_locked
            del lock
            gc.collect()
        finally:
            os._exit(0 if gone else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert lock.is_locked
    assert len(locks.holders(lock.lock_id)) == 1


def test_kazoo_cancel(here: None) -> None:
    """A wait that is cancelled ends with the error, and the object can be used again; a held lock is kept."""
    held, waits = kazoo.Lock(None, "/x", "one"), kazoo.Lock(None, "x/", "two")
    assert held.acquire()
    told: list[object] = []

    def wait() -> None:
        try:
            waits.acquire()
        except kazoo.CancelledError as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: held.contenders() == ["one", "two"])
    waits.cancel()
    thread.join()
    assert told
    held.cancel()
    assert not waits.acquire(blocking=False)
    assert held.release()
    assert waits.acquire()
    assert waits.release()
    assert not waits.release()


def test_kazoo_refuses_what_it_has_not(here: None) -> None:
    """Nodes that outlive their program, other patterns of nodes, and another number of leases."""
    with pytest.raises(locks.errors.InvalidOption, match="ephemeral"):
        kazoo.Lock(None, "/x").acquire(ephemeral=False)
    with pytest.raises(locks.errors.InvalidOption, match="extra_lock_patterns"):
        kazoo.Lock(None, "/x", extra_lock_patterns=["-lock-"])
    assert kazoo.Semaphore(None, "/s", max_leases=2).acquire()
    with pytest.raises(ValueError, match="max_leases=3 is inconsistent"):
        kazoo.Semaphore(None, "/s", max_leases=3).acquire()
    locks.stop()
