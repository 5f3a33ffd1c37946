"""Checks of messages from a program, field by field.

Lock servers and agents are Pykka actors, so a program can send them anything. A message is a named
tuple. The annotations of its fields define its types and its bounds (`locks.ranges`). At import,
one check function is made from them for each type. It returns the value, with lock ids in their
canonical form, or raises `MisuseError`. So a new message or field needs no code here, unless it has
a type that is not in the table below. Then the import fails and names the type.

Messages from other nodes are checked by the same annotations where their terms are unpacked
(`locks.wire`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from locks.core.messages import AgentMessage, ServerMessage
from locks.errors import MisuseError
from locks.lock_ids import check_lock_id, shown
from locks.model import AgentId, LockId, Place
from locks.ranges import PLACE_BITS, Range, Size

__all__ = ["check_agent_id", "check_agent_message", "check_server_message"]

Check = Callable[[Any], Any]


class _Wrong(Exception):
    """A value is wrong; the argument says which value, and what it should be."""


def _exactly(kind: type) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise _Wrong(f"{shown(value)} should be a {kind.__name__}")
        return value

    return check


def _number(bound: Range) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not int or not bound.least <= value <= bound.most:
            raise _Wrong(f"{shown(value)} should be an int {bound}")
        return value

    return check


def _text(bound: Size) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not str or len(value) > bound.most:
            raise _Wrong(f"{shown(value)} should be a str of at most {bound.most:,} characters")
        return value

    return check


def _place(value: Any) -> Any:
    numbers = (value.numerator, value.denominator) if type(value) is Fraction else (value,)
    for number in numbers:
        if type(number) is not int or number.bit_length() > PLACE_BITS:
            raise _Wrong(f"{shown(value)} should be a number of at most {PLACE_BITS} bits")
    return value


def _anything(value: Any) -> Any:
    return value


# The types of message fields, apart from named tuples, tuples and literals.
_CHECKS: dict[Any, Check] = {
    bool: _exactly(bool),
    NoneType: _exactly(NoneType),
    LockId: check_lock_id,
    Place: _place,
    Hashable: _anything,  # a watcher: its receiver checks it
}


def _word(*words: str) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not str or value not in words:
            raise _Wrong(f"{shown(value)} should be one of {', '.join(words)}")
        return value

    return check


def _one_of(checks: list[Check]) -> Check:
    *first, last = checks

    def check(value: Any) -> Any:
        for each in first:
            try:
                return each(value)
            except _Wrong:
                continue
        return last(value)

    return check


def _many(each: Check, bound: Size) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not tuple or len(value) > bound.most:
            raise _Wrong(f"{shown(value)} should be a tuple of at most {bound.most:,}")
        return tuple([each(part) for part in value])

    return check


def _parts(kind: Any, names: list[str], checks: list[Check]) -> Check:
    """The check of a named tuple, or of a tuple of a fixed length."""
    make = kind._make if hasattr(kind, "_make") else tuple
    exact = kind if hasattr(kind, "_make") else tuple

    def check(value: Any) -> Any:
        if type(value) is not exact or len(value) != len(checks):
            raise _Wrong(f"{shown(value)} should be a {exact.__name__} of {len(checks)}")
        parts = []
        for name, each, part in zip(names, checks, value, strict=True):
            try:
                parts.append(each(part))
            except _Wrong as wrong:
                raise _Wrong(f"{name}: {wrong}") from None
        return make(parts)

    return check


def _check_of(kind: Any) -> Check:
    """The check of a type, made together with the checks of its parts."""
    found = _CHECKS.get(kind)
    if found is not None:
        return found
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        made = _bounded(kind)
    elif hasattr(kind, "_fields"):
        hints = get_type_hints(kind, include_extras=True)
        names = list(kind._fields)
        made = _parts(kind, names, [_check_of(hints[name]) for name in names])
    elif origin is Literal:
        made = _word(*args)
    elif origin in (Union, UnionType):
        made = _one_of([_check_of(each) for each in sorted(args, key=lambda a: a is not NoneType)])
    elif origin is tuple and args[-1] is not Ellipsis:
        names = [f"part {number}" for number in range(1, len(args) + 1)]
        made = _parts(kind, names, [_check_of(each) for each in args])
    else:
        raise TypeError(
            f"a message field has the type {kind}, for which there is no check or no bound"
        )
    _CHECKS[kind] = made
    return made


def _bounded(kind: Any) -> Check:
    """The check of a type with a bound."""
    base, bound = get_args(kind)[:2]
    if base is int and isinstance(bound, Range):
        return _number(bound)
    if base is str and isinstance(bound, Size):
        return _text(bound)
    if get_origin(base) is tuple and isinstance(bound, Size):
        return _many(_check_of(get_args(base)[0]), bound)
    raise TypeError(f"a message field has the type {kind}, for which there is no check")


def _checks_of(union: Any) -> dict[type, Check]:
    return {kind: _check_of(kind) for kind in get_args(union)}


_SERVER = _checks_of(ServerMessage)
_AGENT = _checks_of(AgentMessage)


def check_server_message(message: Any) -> ServerMessage:
    """Return a message for a lock server, in its canonical form.

    Raises:
        MisuseError: It is not such a message, or one of its fields is wrong.
    """
    checked: ServerMessage = _checked(message, _SERVER, "a lock server")
    return checked


def check_agent_id(value: Any) -> AgentId:
    """Return an agent's reference; raises `MisuseError` for any other value."""
    try:
        checked: AgentId = _check_of(AgentId)(value)
    except _Wrong as wrong:
        raise MisuseError(f"{shown(value)} is not an agent: {wrong}", agent=shown(value)) from None
    return checked


def check_agent_message(message: Any) -> AgentMessage:
    """Return a message for an agent, in its canonical form; raises like `check_server_message`."""
    checked: AgentMessage = _checked(message, _AGENT, "an agent")
    return checked


def _checked(message: Any, checks: dict[type, Check], receiver: str) -> Any:
    check = checks.get(type(message))
    if check is None:
        raise MisuseError(f"{shown(message)} is not a message for {receiver}", value=shown(message))
    try:
        return check(message)
    except _Wrong as wrong:
        raise MisuseError(
            f"{type(message).__name__} for {receiver} is wrong: {wrong}", value=shown(message)
        ) from None
