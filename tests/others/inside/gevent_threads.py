"""`TestSemaphoreMultiThread` of `gevent.tests.test__semaphore`: a lock in threads that have hubs, and in some that must not get one."""

from __future__ import annotations

import itertools

from gevent.tests import test__semaphore as authors

import locks

new = itertools.count()


class TestLock(authors.TestSemaphoreMultiThread):
    def _makeOne(self) -> locks.Lock:
        return locks.Lock(("lock", next(new)))

    def assertOneHasNoHub(self, sem: locks.Lock) -> None:
        """It belongs to no hub, ever."""


def setUpModule() -> None:
    """They begin with a node."""
    locks.start()
