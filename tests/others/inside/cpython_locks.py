"""`test.lock_tests` of CPython, with locks in the place of those of `threading`.

Each lock that a test makes is another lock: it has an id of its own. `LOCKS_OTHERS_CLIENTS` says who the clients are: `threads`,
of `_thread` as CPython has it (a patched program makes them greenlets), or `greenlets` in a program that is not patched.
"""

from __future__ import annotations

import itertools
import os

from test import lock_tests, support

import locks

new = itertools.count()
support.SHORT_TIMEOUT = (
    5.0  # seconds that a test waits for what must come; for 30 the differences would take minutes
)

if os.environ.get("LOCKS_OTHERS_CLIENTS") == "greenlets":
    from gevent import monkey, thread

    monkey.patch_time()  # a test that sleeps lets others run
    lock_tests.start_new_thread = thread.start_new_thread


class TestLock(lock_tests.LockTests):
    def locktype(self) -> locks.Lock:
        return locks.Lock(("lock", next(new)))


class TestRLock(lock_tests.RLockTests):
    def locktype(self) -> locks.RLock:
        return locks.RLock(("rlock", next(new)))


class TestSemaphore(lock_tests.SemaphoreTests):
    def semtype(self, value: int = 1) -> locks.Semaphore:
        return locks.Semaphore(("semaphore", next(new)), value)


def setUpModule() -> None:
    """The node has its thread before the first test, which would wait in vain for its end."""
    locks.start().executor.call(int)
