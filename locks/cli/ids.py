"""Lock ids as typed at a command line."""

from __future__ import annotations

import ast
from typing import Any

from locks.errors import InvalidLockId
from locks.facts.around import MERGE, PREFIX, ElectionLock
from locks.model import LockId, check_lock_id
from locks.otp.bytes.terms import Atom

__all__ = ["ID_HELP", "parse_id"]

ID_HELP = """a lock id: elements separated by slashes, accounts/ann for ("accounts", "ann"); for elements that are not
text, a Python tuple: '("accounts", 17)'; or 'election "name"'"""


def _value(text: str) -> Any:
    """Evaluate a Python literal; also `Atom('x')`, which lock ids of Erlang programs contain."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, (ast.Tuple, ast.List)):
            node.elts = [_atom(each) for each in node.elts]
    return ast.literal_eval(tree)


def _atom(node: ast.expr) -> ast.expr:
    match node:
        case ast.Call(func=ast.Name(id="Atom"), args=[ast.Constant(value=str(name))], keywords=[]):
            return ast.Constant(Atom(name))  # type: ignore[arg-type]  # literal_eval takes it as it is
        case _:
            return node


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


def parse_id(text: str) -> LockId:
    """Parse a typed lock id.

    Raises:
        InvalidLockId: The text is not a lock id.
    """
    if text.startswith(PREFIX):
        return check_lock_id(_of_election(text).lock_id)
    if text.startswith(("(", "[")):
        try:
            value = _value(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise InvalidLockId(
                f"""{text!r} is not a Python tuple; write it as '("accounts", 17)'"""
            ) from None
        return check_lock_id(value)
    words = tuple(text.split("/"))
    if "" in words:
        raise InvalidLockId(
            f"{text!r} has an empty element; elements are separated by single slashes, as in accounts/ann"
        )
    return check_lock_id(words)
