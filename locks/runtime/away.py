"""What may block for long: called in a native thread, while the caller waits as a greenlet does.

Threads are kept for the next call, and wait for it in their hub, if they have one: so greenlets that a call has begun there
run on. One that has waited for anything in a monkey-patched program has a hub, which
gevent can't free when the thread ends: a new thread for each call would use more and more memory.
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
    """Where a thread waits for what to do next."""

    __slots__ = ("waiter", "work")

    def __init__(self, work: Work) -> None:
        self.waiter = Waiter()
        self.work = work


_idle: list[_Seat] = []  # of each thread that has nothing to do


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
