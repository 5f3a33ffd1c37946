"""What may block for long: called in a native thread, while the caller waits as a greenlet does.

Threads are kept for the next call. One that has waited for anything in a monkey-patched program has a hub, which
gevent can't free when the thread ends: a new thread for each call would use more and more memory.
"""

from __future__ import annotations

import os
from _queue import SimpleQueue
from collections.abc import Callable
from typing import TypeVar

from locks.runtime.native import start_new_thread
from locks.runtime.waiter import Waiter

__all__ = ["call_in_thread"]

T = TypeVar("T")
Work = Callable[[], object]

_idle: list[SimpleQueue[Work]] = []  # of each thread that has nothing to do, what it waits at


def call_in_thread(function: Callable[[], T], timeout: float | None = None) -> T:
    """Call a function in a native thread, and wait for what it returns.

    Other greenlets of the caller's thread run meanwhile. A caller that stops waiting leaves the thread to
    itself; the process does not wait for it.

    Raises:
        TimeoutError: It has not returned within so many seconds; it goes on.
        BaseException: What the function has raised.
    """
    outcome: list[tuple[T | None, BaseException | None]] = []
    waiter = Waiter()

    def run() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))
        finally:
            waiter.wake()

    try:
        work = _idle.pop()
    except IndexError:
        work = SimpleQueue()
        start_new_thread(_do, (work,))
    work.put(run)
    if not waiter.wait(timeout):
        raise TimeoutError(f"timed out after {timeout:g} s waiting for an answer")
    ((result, error),) = outcome
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _do(work: SimpleQueue[Work]) -> None:
    """The life of a thread."""
    while True:
        work.get()()
        _idle.append(work)


os.register_at_fork(after_in_child=_idle.clear)
