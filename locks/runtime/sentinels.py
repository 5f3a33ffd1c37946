"""How a thread's end is noticed from within: the interpreter then drops its native thread-locals."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from gevent import monkey

from locks.runtime.interrupts import whole

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Sentinel", "sentinels"]

# In a patched program the patched one belongs to greenlets.
_this_thread = monkey.get_original("_thread", "_local")()
_DummyThread: type[threading.Thread] = monkey.get_original("threading", "_DummyThread")


def sentinels() -> dict[object, Sentinel]:
    """The sentinels of the caller's thread, by the subject that ends with it."""
    found: dict[object, Sentinel] = _this_thread.__dict__.setdefault("sentinels", {})
    return found


class Sentinel:
    """Reports that a thread has ended; only `sentinels` keeps it.

    Args:
        subject: The subject that ends with the thread.
        tell: Called then, and also if the sentinel is removed before.
    """

    __slots__ = ("_process", "_subject", "_tell")

    def __init__(self, subject: object, tell: Callable[[], object]) -> None:
        self._subject = subject
        self._tell = tell
        self._process = os.getpid()

    @whole
    def __del__(self) -> None:
        # In a forked child, the interpreter drops the sentinels of other threads, which live in the
        # parent.
        if not sys.is_finalizing() and os.getpid() == self._process:
            _forget_dummy(self._subject)
            self._tell()


def _forget_dummy(thread: object) -> None:
    """Remove the dummy object of a thread that Python did not start: a later thread must not get it.

    Python removes it itself only from 3.13 on. The thread is still alive here, so no other thread
    has its ident.
    """
    active: dict[int | None, threading.Thread] = getattr(threading, "_active", {})
    if isinstance(thread, _DummyThread) and active.get(thread.ident) is thread:
        active.pop(thread.ident, None)
