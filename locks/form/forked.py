"""The process that this one was forked from, if that has imported `locks`: each of them has a lock table of its own.

It is noted from the import of `locks` on, when next to nothing else of it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["forked_from", "in_forked_children"]

_parent = 0


def forked_from() -> int:
    """Its number; 0 if this process was not forked from one that has imported `locks`."""
    return _parent


def _note() -> None:
    global _parent
    _parent = os.getppid()


def in_forked_children(function: Callable[[], object]) -> None:
    """Call a function in each process that is forked from this one; on Windows there are none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


in_forked_children(_note)
