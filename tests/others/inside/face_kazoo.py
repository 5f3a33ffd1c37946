"""A plugin of pytest for kazoo's tests of its recipes, which are those of `locks.compat`: there is no ZooKeeper."""

from __future__ import annotations

import sys
import time
import unittest
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import kazoo.recipe.lock

from locks.compat.kazoo import Election, Lock, ReadLock, Semaphore, WriteLock


class Client:
    """The recipes of a client."""

    def __init__(self) -> None:
        self.handler = SimpleNamespace(sleep_func=time.sleep)
        self.Lock = partial(Lock, self)
        self.ReadLock = partial(ReadLock, self)
        self.WriteLock = partial(WriteLock, self)
        self.Semaphore = partial(Semaphore, self)
        self.Election = partial(Election, self)

    def start(self) -> None:
        """There is nothing to connect with."""

    stop = start


class KazooTestCase(unittest.TestCase):
    """Tests with a client."""

    def setUp(self) -> None:
        self.client = self._get_client()

    @staticmethod
    def _get_client(**_: Any) -> Client:
        return Client()


kazoo.recipe.lock.Lock = Lock
testing: Any = ModuleType("kazoo.testing")  # theirs starts ZooKeeper
testing.KazooTestCase = KazooTestCase
sys.modules["kazoo.testing"] = testing
