"""`test.test_asyncio.test_locks` of CPython, with `locks.aio` in the place of asyncio's locks.

Their tests ask `locked()`, `n_waiting` and the like without `await`; here that is asked of the lock behind it. In one program it is
answered at once.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from test.test_asyncio import test_locks as authors

import locks
from locks import aio
from locks.aio.tasks import at_once

new = itertools.count()


class Lock(aio.Lock):
    def __init__(self) -> None:
        super().__init__(("lock", next(new)))

    def locked(self) -> bool:
        return at_once(self._blocking.locked)


class Semaphore(aio.Semaphore):
    def __init__(self, value: int = 1) -> None:
        super().__init__(("semaphore", next(new)), value)

    def locked(self) -> bool:
        return at_once(self._blocking.locked)


class InTheirPlace:
    """The module `asyncio`, but for these names."""

    Lock = Lock
    Semaphore = BoundedSemaphore = Semaphore

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


authors.asyncio = InTheirPlace()


class TestLock(authors.LockTests):
    """All of them."""


class TestSemaphore(authors.SemaphoreTests):
    """All of them."""


def setUpModule() -> None:
    """They begin with a node."""
    locks.start()


def tearDownModule() -> None:
    """As theirs does."""
    authors.tearDownModule()
