"""The tests of locks in `test._test_multiprocessing` of CPython, with locks that processes of one machine share."""

from __future__ import annotations

import itertools
import unittest

from test import _test_multiprocessing as authors

import locks

new = itertools.count()


class Processes(authors.ProcessesMixin):
    """What the tests make, in the place of what `multiprocessing` makes."""

    @staticmethod
    def Lock() -> locks.Lock:
        return locks.Lock(("lock", next(new)))

    @staticmethod
    def RLock() -> locks.RLock:
        return locks.RLock(("rlock", next(new)))

    @staticmethod
    def Semaphore(value: int) -> locks.Semaphore:
        return locks.Semaphore(("semaphore", next(new)), value)

    BoundedSemaphore = Semaphore


class TestLock(Processes, authors._TestLock, unittest.TestCase):
    """All of them."""


class TestSemaphore(Processes, authors._TestSemaphore, unittest.TestCase):
    """All of them."""


def setUpModule() -> None:
    """Processes are forked, as with their authors on this platform."""
    locks.start(servers="local")
    authors.multiprocessing.set_start_method("fork", force=True)
