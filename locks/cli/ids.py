"""Lock ids as typed at a command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from locks.errors import InvalidLockId
from locks.facts.around import MERGE, PREFIX, ElectionLock
from locks.lock_ids import counted
from locks.model import LockId, check_lock_id, show

__all__ = ["ID_HELP", "near", "parse_id"]

FEW = 5  # ids that may be meant
ID_HELP = """a lock id: elements with slashes between them, accounts/ann for ("accounts", "ann") and accounts/17 for
("accounts", 17), as logs and commands print it; text that looks like a number is quoted, "accounts/'17'"; or a tuple of
Python: '("accounts", 17)'; or 'election "name"'"""


def _value(text: str) -> Any:
    """Evaluate a Python literal."""
    return ast.literal_eval(text)


def _of_election(text: str) -> ElectionLock:
    """The lock of an election; its name may also be written without quotes."""
    merges = text.endswith(MERGE)
    name = text.removeprefix(PREFIX).removesuffix(MERGE)
    try:
        (resource,) = _value(f"({name},)")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        if not name or not name[0].isalpha():
            raise InvalidLockId(
                f"{text!r} is not an election; write it as 'election \"name\"'"
            ) from None
        resource = name
    return ElectionLock(resource, merges)


# An element that begins like this is written as Python writes it, to its end.
_LITERAL = re.compile(r"""['"(\[]|b['"]""")
_UNITS = re.compile(r"(.+)\*([1-9]\d*)", re.DOTALL)
_NUMBER = re.compile(r"-?\d.*")


def parse_id(text: str) -> LockId:
    """The lock id that somebody has typed, as `locks.model.show` writes it, or as a tuple of Python.

    Raises:
        InvalidLockId: The text is not a lock id.
    """
    if text.startswith(PREFIX):
        return check_lock_id(_of_election(text).lock_id)
    units = _UNITS.fullmatch(text)
    if units is not None:
        return check_lock_id(counted(parse_id(units[1]), int(units[2])))
    if text.startswith(("(", "[")):
        try:
            value = _value(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise InvalidLockId(
                f"""{text!r} is not a Python tuple; write it as '("accounts", 17)'"""
            ) from None
        return check_lock_id(value)
    return check_lock_id(tuple(_element(part, text) for part in _parts(text)))


def _parts(text: str) -> Iterator[str]:
    """What stands between the slashes; a slash in a literal is none."""
    begin = 0
    while True:
        end = text.find("/", begin)
        if _LITERAL.match(text, begin):
            while end >= 0 and not _is_literal(text[begin:end]):
                end = text.find("/", end + 1)
        if end < 0:
            yield text[begin:]
            return
        yield text[begin:end]
        begin = end + 1


def _is_literal(text: str) -> bool:
    try:
        _value(f"({text},)")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _element(part: str, text: str) -> Any:
    """The element that one part stands for."""
    if part == "":
        raise InvalidLockId(
            f"{text!r} has an empty element; elements are separated by single slashes, as in accounts/ann"
        )
    if _LITERAL.match(part):
        if not _is_literal(part):
            raise InvalidLockId(
                f"{part!r} in {text!r} is not closed, or is nothing that Python can read; in a shell, put quotes around the whole id"
            )
        return _value(f"({part},)")[0]
    if part in ("None", "True", "False"):
        return _value(part)
    if _NUMBER.fullmatch(part) and _is_literal(part):
        value = _value(part)
        # What Python would write otherwise is text: 2026-11-25, 007, 1_000, 1.50.
        if type(value) in (int, float) and show((0, value)) == f"0/{part}":
            return value
    return part


def near(typed: LockId, there: Iterable[LockId]) -> list[str]:
    """The ids that somebody may have meant who typed another one: the same in other letters or types, or alike."""
    ids = {show(each): _loose(each) for each in there}
    wanted = _loose(typed)
    alike = set(get_close_matches(wanted, ids.values(), n=FEW))
    return sorted(text for text, loose in ids.items() if loose in alike)[:FEW]


def _loose(lock_id: LockId) -> str:
    return "/".join([str(each) for each in lock_id]).casefold()
