"""Which of these tests run here."""

from __future__ import annotations

import sys

# CPython 3.12 ends by itself (SIGSEGV, in the interpreter) when instructions are traced in several threads.
collect_ignore = (
    ["test_checkers.py", "test_ownership.py", "test_systematic.py"]
    if sys.version_info[:2] == (3, 12)
    else []
)
