"""Forks, from the import of `locks` on, when next to nothing else of it is loaded.

**The process that this one was forked from** is noted, because each of them has a lock table of its own. If `locks` was imported after the fork
only, Linux shows it: a forked process has its parent's addresses, and a program that is started gets new ones.

**A fork waits until no other thread is importing a module of ours, or one that they stand on.** Python has a lock for each module that is being
imported. The child would get a copy that nobody releases, and its own import would wait for ever. The first use of `locks` imports most of it, and
may come in any thread.
"""

from __future__ import annotations

import _frozen_importlib
import _imp
import _thread
import logging  # noqa: F401  # a fork takes its lock, which an import needs: what is registered later is called earlier
import os
import time
from typing import Any

__all__ = ["forked_from"]

OURS = (
    *("locks", "locks_leader", "gevent", "greenlet", "msgspec", "pykka"),
    "multiprocessing",  # which our modules import late
)
PATIENCE = 10.0  # seconds that a fork waits for imports at most

_parent = 0
_held: list[bool] = []  # Python's own lock, under which an import begins
_module_locks: dict[str, Any] = getattr(_frozen_importlib, "_module_locks", {})


def forked_from() -> int:
    """Its number; 0 if this process was not forked, as far as is known, or its parent has ended since."""
    parent = os.getppid()
    return parent if parent == _parent or _has_addresses_of(parent) else 0


def _has_addresses_of(parent: int) -> bool:
    try:
        with open("/proc/self/auxv", "rb") as own, open(f"/proc/{parent}/auxv", "rb") as parents:
            return own.read() == parents.read()
    except OSError:  # another system, or another user's process
        return False


def _note() -> None:
    global _parent
    _parent = os.getppid()
    _go_on()


def _await_imports() -> None:
    """Wait until no other thread imports such a module; until `_go_on`, none begins."""
    end = time.monotonic() + PATIENCE
    while True:
        _imp.acquire_lock()
        if time.monotonic() > end or not _imported_elsewhere():
            _held.append(True)
            return
        _imp.release_lock()
        time.sleep(0.001)


def _imported_elsewhere() -> bool:
    """Whether a lock of such a module exists: it does as long as a thread has it, waits for it, or is about to."""
    me = _thread.get_ident()
    ours = (ref() for name, ref in _module_locks.copy().items() if name.partition(".")[0] in OURS)
    return any(each is not None and each.owner != me for each in ours)


def _go_on() -> None:
    if _held:  # not after a fork that only the child's Python knows of
        _held.pop()
        _imp.release_lock()


os.register_at_fork(before=_await_imports, after_in_parent=_go_on, after_in_child=_note)
