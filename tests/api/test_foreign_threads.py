"""Threads that Python did not start: of C, and of `_thread`. `threading` has but a dummy for each of them.

Before Python 3.13 the next thread with the same ident got the dummy of the one before it.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable

import pytest
from gevent import monkey

import locks
from locks.runtime.monitor import DeathWatch, current_client
from tests.helpers import eventually

Work = Callable[[], object]
Batch = Callable[[int, Work], None]
TOGETHER = 8


def of_c(count: int, work: Work) -> None:
    """Run it in threads that `pthread_create` starts, and wait for their end."""
    library = ctypes.CDLL(None)
    code = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: work() and None)
    threads = [ctypes.c_ulong() for _ in range(count)]
    for thread in threads:
        assert library.pthread_create(ctypes.byref(thread), None, code, None) == 0
    for thread in threads:
        library.pthread_join(thread, None)


def of_thread(count: int, work: Work) -> None:
    """Run it in threads that the interpreter starts, but not `threading`; wait until it has run."""
    start = monkey.get_original("_thread", "start_new_thread")
    done: list[object] = []
    for _ in range(count):
        start(lambda: done.append(work()), ())
    eventually(lambda: len(done) == count)


@pytest.fixture(params=[of_c, of_thread])
def batch(request: pytest.FixtureRequest) -> Batch:
    """Starts so many threads at once, and waits for them."""
    if request.param is of_c and not hasattr(ctypes.CDLL(None), "pthread_create"):
        pytest.skip("there is no pthread_create to be found here")
    found: Batch = request.param
    return found


def watches() -> int:
    """How many things are watched."""
    gc.collect()
    return sum(type(each) is DeathWatch for each in gc.get_objects())


@pytest.mark.parametrize("threads", [160, pytest.param(10_000, marks=pytest.mark.explore)])
def test_they_come_and_go(batch: Batch, threads: int) -> None:
    """Each one has its locks for itself until it lets go, and nothing of it is kept."""
    lock = locks.Lock(("foreign", "lock"))
    failures: list[BaseException] = []
    inside: list[int] = []
    turns: list[int] = []

    def work() -> None:
        try:
            with lock:
                inside.append(1)
                turns.append(len(inside))
                inside.pop()
            with locks.transaction() as tx:
                tx.write_lock(("foreign", "transaction"))
                tx.read_lock(("foreign", "other"))
                tx.ensure_held()
        except BaseException as error:
            failures.append(error)

    batch(TOGETHER, work)
    before, alive = watches(), threading.active_count() + TOGETHER
    for _ in range(threads // TOGETHER - 1):
        batch(TOGETHER, work)
    assert failures == []
    assert turns == [1] * threads
    assert [locks.queue(("foreign", name)).holders for name in ("lock", "transaction")] == [()] * 2
    eventually(lambda: watches() <= before + TOGETHER)
    eventually(lambda: len(threading.enumerate()) <= alive)


def test_their_end_is_noticed(batch: Batch) -> None:
    """What a thread has not given back is free as soon as it has ended; the next one is another client."""
    clients: list[object] = []

    def forget() -> None:
        agent, _ = locks.original.begin_transaction()
        locks.original.lock(agent, ("foreign", "forgotten"))
        clients.append(current_client())

    for _ in range(3):
        batch(1, forget)
    with locks.transaction(timeout=60) as tx:
        tx.write_lock(("foreign", "forgotten"))
    assert len(set(map(id, clients))) == 3
    eventually(lambda: not set(clients) & set(threading.enumerate()))
