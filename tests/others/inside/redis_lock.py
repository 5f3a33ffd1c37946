"""A plugin of pytest: the lock of redis-py's clients (`client.lock(name)`), made of a `locks.Lock`.

Theirs is for a time, and is extended: a program that has died keeps it until then. Ours ends with its client, so there is nothing to extend; who
has lost it is told so where redis-py says it.
"""

from __future__ import annotations

from typing import Any

import redis.client
from redis.exceptions import LockError, LockNotOwnedError

import locks

servers: dict[Any, int] = {}  # each test has a server of its own


class Lock:
    """The names of theirs, with a lock of ours."""

    def __init__(
        self,
        redis: Any,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self._lock = locks.Lock(
            ("redis", servers.setdefault(redis.connection_pool, len(servers)), name),
            timeout=blocking_timeout,
        )
        self.blocking = blocking

    def acquire(self, blocking: bool | None = None, blocking_timeout: float | None = -1) -> bool:
        if not (self.blocking if blocking is None else blocking):
            return self._lock.acquire(blocking=False)
        return self._lock.acquire(timeout=blocking_timeout)

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise LockError("Unable to acquire lock within the time specified")
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def owned(self) -> bool:
        return self._lock.owned()

    def release(self) -> None:
        try:
            self._lock.release()
        except locks.NotHeld as error:
            raise LockNotOwnedError("Cannot release a lock that's no longer owned") from error

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        if not self.owned():
            raise LockNotOwnedError("Cannot extend a lock that's no longer owned")
        return True

    reacquire = extend


redis.client.Lock = Lock
