"""A plugin of pytest: the lock of redis-py's clients (`client.lock(name)`) is that of `locks.compat`."""

from __future__ import annotations

from typing import Any

import redis.client

from locks.compat.redis import Lock

servers: dict[Any, int] = {}  # each test has a server of its own


def lock(client: Any, name: str, **options: Any) -> Lock:
    """A lock whose name has the server in it."""
    number = servers.setdefault(client.connection_pool, len(servers))
    return Lock(client, f"{number} {name}", **options)


redis.client.Lock = lock
