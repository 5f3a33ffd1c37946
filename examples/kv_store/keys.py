"""Keys and values: what may be one."""

from __future__ import annotations

from locks.errors import InvalidOption
from locks.mvcc import Span

__all__ = ["END", "LONGEST", "LONGEST_KEY", "checked", "show", "text"]

END = "\U0010ffff"  # all keys are smaller
LONGEST = 100_000_000  # characters in a value; SQLite takes 1,000,000,000 bytes in a row
LONGEST_KEY = 1000  # characters in a key


def text(what: str, value: str, longest: int) -> str:
    """Return a string that SQLite can hold."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidOption(f"{what} {value!r} is not a string of Unicode characters") from error
    if len(value) > longest:
        raise InvalidOption(f"a {what} of {len(value)} characters is too long: at most {longest}")
    return value


def show(span: Span) -> str:
    """Return a span as readable text."""
    return repr(span.start) if span.end is None else f"{span.start!r} up to {span.end!r}"


def checked(key: str, *, or_end: bool = False) -> str:
    """Return a valid key, or raise `InvalidOption`."""
    if text("key", key, LONGEST_KEY) >= END and not (or_end and key == END):
        raise InvalidOption(f"key {key!r} is not below {END!r}, the end of all keys; name another")
    return key
