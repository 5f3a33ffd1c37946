"""What may block for long: called in a native thread of its own, while the caller waits as a greenlet does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from locks.runtime.native import start_new_thread
from locks.runtime.waiter import Waiter

__all__ = ["call_in_thread"]

T = TypeVar("T")


def call_in_thread(function: Callable[[], T], timeout: float | None = None) -> T:
    """Call a function in a native thread of its own, and wait for what it returns.

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

    start_new_thread(run, ())
    if not waiter.wait(timeout):
        raise TimeoutError(f"no answer within {timeout:g} s")
    ((result, error),) = outcome
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
