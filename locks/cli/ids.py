"""Lock ids as one types them at a command line."""

from __future__ import annotations

import ast
from typing import Any

from locks.errors import InvalidLockId
from locks.model import LockId, check_lock_id

__all__ = ["ID_HELP", "parse_id"]

ID_HELP = """a lock id: words with slashes between them, accounts/ann for ("accounts", "ann"); or, where an element is no
text, a tuple as one writes it in Python: '("accounts", 17)'"""


def parse_id(text: str) -> LockId:
    """The lock id that somebody has typed.

    Raises:
        InvalidLockId: There is none of this kind.
    """
    if text.startswith(("(", "[")):
        try:
            value: Any = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise InvalidLockId(
                f"""{text!r} is no tuple that Python can read; write it as '("accounts", 17)'"""
            ) from None
        return check_lock_id(value)
    words = tuple(text.split("/"))
    if "" in words:
        raise InvalidLockId(f"{text!r} has an empty word in it; write accounts/ann")
    return check_lock_id(words)
