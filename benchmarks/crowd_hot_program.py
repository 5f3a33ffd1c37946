"""A program that wants one lock all the time, for `benchmarks.crowd_hot`.

    python -m benchmarks.crowd_hot_program hot JSON

It imports only what its kind of lock needs. It prints a line when it is ready, and for each line of its input how many turns it
had, its longest wait and its mean wait.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

__all__ = ["HELD", "main"]

HELD = 0.001  # seconds for which a program has the lock
now = time.monotonic


def main() -> None:
    """Want the lock all the time, for as many seconds as each line says."""
    given = json.loads(sys.argv[2])
    held = HOT[given["kind"]](given["place"])
    print('"ready"', flush=True)
    for line in sys.stdin:
        what = json.loads(line)
        waits = []
        last = now() + what["seconds"]
        while (asked := now()) < last:
            with held():
                waits.append(now() - asked)
                time.sleep(HELD)
        print(json.dumps([len(waits), max(waits), statistics.fmean(waits)]), flush=True)


def _of_locks(place: Any) -> Callable[[], AbstractContextManager[object]]:
    locks = importlib.import_module("locks")
    locks.start(**place)
    lock = locks.Lock(("crowd", "hot"))
    return lambda: lock  # type: ignore[no-any-return]


def _of_redis(place: Any) -> Callable[[], AbstractContextManager[object]]:
    client = importlib.import_module("redis").Redis(port=place)
    lock = client.lock("crowd", timeout=30)
    return lambda: lock  # type: ignore[no-any-return]


def _of_postgres(place: Any) -> Callable[[], AbstractContextManager[object]]:
    connection = importlib.import_module("psycopg").connect(place, autocommit=True)

    @contextmanager
    def held() -> Iterator[None]:
        connection.execute("select pg_advisory_lock(1)")
        yield
        connection.execute("select pg_advisory_unlock(1)")

    return held


HOT = {"locks": _of_locks, "redis": _of_redis, "postgres": _of_postgres}


if __name__ == "__main__":
    main()
