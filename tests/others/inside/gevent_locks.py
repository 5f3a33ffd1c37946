"""`gevent.tests.lock_tests`, with locks in the place of those of `threading`, in a patched program as with its authors."""

from __future__ import annotations

import cpython_locks
from gevent.tests import lock_tests


class TestLock(lock_tests.LockTests):
    locktype = cpython_locks.TestLock.locktype


class TestRLock(lock_tests.RLockTests):
    locktype = cpython_locks.TestRLock.locktype


class TestSemaphore(lock_tests.SemaphoreTests):
    semtype = cpython_locks.TestSemaphore.semtype


setUpModule = cpython_locks.setUpModule
