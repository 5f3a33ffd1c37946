"""Long blocking calls in a native thread, while the caller waits like a greenlet.

Threads are kept for the next call. If a thread has a hub, it waits in it, so greenlets that a call has
started there continue to run. In a monkey-patched program, a thread that has waited for anything has a
hub, which gevent can't free when the thread ends. So a new thread for each call would use more and
more memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from locks.runtime.native import start_new_thread
from locks.runtime.waiter import Waiter

__all__ = ["begin_in_thread", "call_in_thread"]

T = TypeVar("T")
Work = Callable[[], object]


class _Seat:
    """The place where a thread waits for its next work."""

    __slots__ = ("waiter", "work")

    def __init__(self, work: Work) -> None:
        self.waiter = Waiter()
        self.work = work


_idle: list[_Seat] = []  # the seats of idle threads


def call_in_thread(function: Callable[[], T], timeout: float | None = None) -> T:
    """Call a function in a native thread, and wait for its result.

    Other greenlets of the caller's thread run meanwhile. If the caller stops waiting, the thread
    continues alone; the process does not wait for it.

    Raises:
        TimeoutError: It has not returned within the time limit; it continues.
        BaseException: An exception of the function.
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

    begin_in_thread(run)
    if not waiter.wait(timeout):
        raise TimeoutError(f"timed out after {timeout:g} s waiting for an answer")
    ((result, error),) = outcome
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def begin_in_thread(function: Work) -> None:
    """Have a native thread call a function, which raises nothing."""
    try:
        seat = _idle.pop()
    except IndexError:
        start_new_thread(_do, (_Seat(function),))
    else:
        seat.work = function
        seat.waiter.wake()


def _do(seat: _Seat) -> None:
    """The life of a thread."""
    while True:
        seat.work()
        seat.work = _rest
        waiter = seat.waiter = Waiter()
        _idle.append(seat)
        waiter.wait()


def _rest() -> None:
    """What a thread does that has nothing to do."""


os.register_at_fork(after_in_child=_idle.clear)
