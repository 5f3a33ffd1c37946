"""A plugin of pytest for redis-py's tests of its lock, which is that of `locks.compat`: the client shows what there is of it."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
import redis.lock

import locks
from locks.compat.redis import Lock


class Client:
    """What these tests do with a client: they look at a lock, and take it from its holder."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.made: list[Lock] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        for lock in self.made:
            if lock.owned():
                lock.release()

    def lock(self, name: str, lock_class: Any = Lock, **options: Any) -> Any:
        made = lock_class(self, name, **options)
        if isinstance(made, Lock):
            self.made.append(made)
        return made

    def get(self, name: str) -> int | None:
        """The token of the holder."""
        return next((each.token() for each in self.made if each.owned()), None)

    def set(self, name: str, value: str) -> None:
        """Somebody else has it now."""
        for each in locks.holders(("redis", name)):
            locks.facts.break_transaction(each.agent, reason="taken")
        other = Lock(None, name)
        assert other.acquire()
        self.made.append(other)

    def pttl(self, name: str) -> float:
        """The milliseconds that are left to the holder; -1 for no limit."""
        (held,) = (each._held for each in self.made if each.owned())
        assert held is not None
        left = held._until - time.monotonic()
        return -1 if left == float("inf") else 1000 * left

    def ttl(self, name: str) -> float:
        return self.pttl(name) / (1000 if self.pttl(name) > 0 else 1)

    def pexpire(self, name: str, milliseconds: float) -> bool:
        (held,) = (each._held for each in self.made if each.owned())
        assert held is not None
        return held.extend(milliseconds / 1000, True)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart() -> None:
    """Their helpers are loaded by now, their tests not yet."""
    sys.modules["tests.conftest"]._get_client = Client  # type: ignore[attr-defined]


redis.lock.Lock = Lock
