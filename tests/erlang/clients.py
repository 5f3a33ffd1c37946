"""Clients of Python nodes for these tests: threads that do one thing after the other."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import gevent

import locks

_Thread = gevent.monkey.get_original("threading", "Thread")
_numbers = itertools.count(1)


class PythonClient:
    """A thread that has a transaction on the node of this process."""

    def __init__(self, **options: Any) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = _Thread(target=self._run, name=f"client-{next(_numbers)}", daemon=True)
        self._thread.start()
        self.agent, _ = self.do(locks.original.begin_transaction, **options).result(5)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def do(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Have the thread call a function; returns at once."""
        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(job)
        return future

    def ask(self, lock_id: Any, mode: str, *nodes: str, **options: Any) -> Future[Any]:
        """Ask for a lock; returns at once."""
        options.setdefault("timeout", 15)
        return self.do(locks.original.lock, self.agent, lock_id, mode, list(nodes), **options)

    def lock(self, lock_id: Any, mode: str, *nodes: str, **options: Any) -> locks.values.LockResult:
        """Get a lock."""
        result: locks.values.LockResult = self.ask(lock_id, mode, *nodes, **options).result(20)
        return result

    def end(self) -> None:
        """End the transaction."""
        self.do(locks.original.end_transaction, self.agent).result(5)
        self.die()

    def die(self) -> None:
        """The thread ends; if it still has its transaction, that ends with it."""
        self._jobs.put(None)
        self._thread.join(5)


def is_waiting(agent: locks.actors.Agent) -> bool:
    """Whether an agent is known to wait for a lock."""
    return bool(agent.machine.lock_info()) and not all(i.held for i in agent.machine.lock_info())


__all__ = ["PythonClient", "is_waiting"]
