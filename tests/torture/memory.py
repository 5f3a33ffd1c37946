"""Allocations that fail, where this Python can have them fail.

Not every Python has its test modules. And CPython 3.12 and 3.13 end by themselves (SIGSEGV, in the interpreter) when memory ends in a
program with several threads and hubs, so nothing can be seen there.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["remove_mem_hooks", "set_nomemory"]

set_nomemory: Any = None
remove_mem_hooks: Any = None
if sys.version_info < (3, 12):
    try:
        import _testcapi
    except ImportError:
        pass
    else:
        set_nomemory = getattr(_testcapi, "set_nomemory", None)
        remove_mem_hooks = getattr(_testcapi, "remove_mem_hooks", None)
