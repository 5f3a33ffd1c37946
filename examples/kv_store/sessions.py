"""Clients that are driven from outside, one command at a time.

Each session has a thread. Its driver starts a command and looks whether it has ended or waits for a
lock. The REPL shows this by hand, and tests choose the order of the steps.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from locks.errors import LocksError

from .store import Store, Transaction

__all__ = ["Session", "settle"]


class Session:
    """One client of a store.

    Args:
        store: The store.
        name: Its name.

    Attributes:
        tx: Its transaction, if it has one.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.tx: Transaction | None = None
        self._busy = False
        self._result: str | Exception | None = None
        self._jobs: queue.SimpleQueue[Callable[[], str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def start(self, job: Callable[[], str]) -> None:
        """Have a job done; only when it is not busy."""
        self._busy = True
        self._jobs.put(job)

    @property
    def busy(self) -> bool:
        """Whether its job has not ended."""
        return self._busy

    @property
    def waits_for(self) -> tuple[Any, Any] | None:
        """The transaction whose lock its job waits for, and the key; `None` if it does not wait."""
        tx = self.tx
        for state in self.store.table.states():
            for place in (*state.waiting_readers, *state.queued_writers):
                ahead = state.holder or (state.reservation and state.reservation.txn)
                if place.waits and ahead and tx is not None and place.txn.id == tx.id:
                    return ahead.id, state.key
        return None

    def take_result(self) -> str | LocksError | None:
        """Return what the last job returned, or what the store raised in it, once."""
        result, self._result = self._result, None
        if isinstance(result, Exception) and not isinstance(result, LocksError):
            raise result
        return result

    def stop(self) -> None:
        """End its thread, after its job."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._result = job()
            except Exception as error:
                self._result = error
            self._busy = False


def settle(sessions: Iterable[Session]) -> None:
    """Wait until nothing moves any more: each session has ended its job or waits for a lock."""
    every = list(sessions)
    before: list[Any] = []
    pause = 0.0
    while True:
        now = [(session.busy, session.waits_for) for session in every]
        # One look is not enough: another session may have released the first one since.
        if now == before and all(wait is not None for busy, wait in now if busy):
            return
        before = now
        time.sleep(pause)  # at first it only lets others run
        pause = min(pause + 0.00001, 0.001)
