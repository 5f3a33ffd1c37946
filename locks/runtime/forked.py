"""The process that this one was forked from: each of them has a lock table of its own.

It is noted from the import of `locks` on, when next to nothing else of it is loaded. If `locks` was imported after the fork
only, Linux shows it: a forked process has its parent's addresses, and a program that is started gets new ones.
"""

from __future__ import annotations

import os

__all__ = ["forked_from"]

_parent = 0


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


os.register_at_fork(after_in_child=_note)
