"""Native threads, also in a monkey-patched program.

In such a program, the names of Python's modules mean greenlets. But signals, turns and background
threads need native threads.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import gevent.hub
from gevent import monkey

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = [
    "get_ident",
    "insist",
    "is_main_thread",
    "native_lock",
    "native_rlock",
    "send_interrupt",
    "start_new_thread",
    "start_thread",
]

get_ident = monkey.get_original("_thread", "get_ident")
"""The native thread of the caller."""

native_lock = monkey.get_original("_thread", "allocate_lock")
"""Make a lock of native threads."""

native_rlock = monkey.get_original("_thread", "RLock")
"""A native re-entrant lock, which knows whether the calling thread holds it."""

_sleep = monkey.get_original("time", "sleep")

start_new_thread = monkey.get_original("_thread", "start_new_thread")
"""Start a native thread; the process does not wait for its end."""

# A patched program was patched in its main thread, whose `main_thread().ident` is that of the
# greenlet.
_hub_module: Any = gevent.hub
_main: int = (
    _hub_module.MAIN_THREAD_IDENT
    if monkey.is_module_patched("threading")
    else monkey.get_original("threading", "main_thread")().ident
)


def is_main_thread() -> bool:
    """Whether the caller is in the main thread: the only one in which Python runs signal handlers."""
    return bool(get_ident() == _main)


def start_thread(function: Callable[[], object], name: str) -> Callable[[float | None], bool]:
    """Start a native thread that the process does not wait for.

    Returns:
        A function that waits for its end, with the calling thread, some seconds at most; it returns
        whether it has ended. Then nothing is left of it that the end of the interpreter would have
        to fear.
    """
    if not monkey.is_module_patched("threading"):
        thread = threading.Thread(target=function, name=name, daemon=True)
        thread.start()

        def join(timeout: float | None) -> bool:
            thread.join(timeout)
            return not thread.is_alive()

    elif sys.version_info >= (3, 13):
        handle = monkey.get_original("_thread", "start_joinable_thread")(function, daemon=True)

        def join(timeout: float | None) -> bool:
            handle.join(timeout)
            return bool(handle.is_done())

    else:
        alive: list[Any] = []
        started = native_lock()
        started.acquire()

        def run() -> None:
            alive.append(monkey.get_original("_thread", "_set_sentinel")())
            alive[0].acquire()
            started.release()
            function()

        def join(timeout: float | None) -> bool:
            has_ended: bool = alive[0].acquire(timeout=-1 if timeout is None else timeout)
            if has_ended:
                alive[0].release()
            return has_ended

        start_new_thread(run, ())
        started.acquire()
    return join


def send_interrupt(main: int) -> None:
    """Send SIGINT to the main thread."""
    signal.pthread_kill(main, signal.SIGINT)


def _forked() -> None:
    """In a child, the thread that has forked is the main thread."""
    global _main
    _main = get_ident()


os.register_at_fork(after_in_child=_forked)


PATIENCE = 100  # times, a millisecond apart


def insist(function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
    """Call a function that must be done; if there is no memory now, try again after a while.

    Raises:
        MemoryError: There was no memory for a tenth of a second.
    """
    tries = 0
    while True:
        try:
            function(*args)
            return
        except MemoryError:
            tries += 1
            if tries > PATIENCE:
                raise
            _sleep(0.001)
