"""The errors of `locks` on the way between nodes: what an actor answers to an ask that it can't carry out.

A class, a text, and those attributes that have a field in `About`. Of long tuples as many of the first elements are sent as fit.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import locks.errors
from locks.errors import LocksError
from locks.net.messages import About, Raised, decode_part, encode
from locks.ranges import MOST_RECORDS

__all__ = ["about", "error_in"]

LARGEST: Final = (
    64 * 1024
)  # bytes of what an error says besides its text, but for the report of a deadlock
PLAIN: Final = (str, int, float, bool)
_FIELDS: Final = frozenset(About.__struct_fields__) - {"plain"}
_RESERVED: Final = frozenset((*dir(LocksError("")), "self", "message"))  # no attributes of an error
_CLASSES: Final[dict[str, type[LocksError]]] = {
    name: found
    for name in locks.errors.__all__
    if isinstance(found := getattr(locks.errors, name), type) and issubclass(found, LocksError)
}


def about(error: Exception) -> About:
    """What an error says besides its text."""
    if not isinstance(error, LocksError):
        return About()
    said: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    room = LARGEST
    for name, value in error.about.items():
        where = plain if type(value) in PLAIN else said if name in _FIELDS else None
        if where is None or value is None:
            continue
        value, size = _fitting(name, value, room)
        if size <= room:
            room -= size
            where[name] = value
    return About(plain, **said)


def _fitting(name: str, value: Any, room: int) -> tuple[Any, int]:
    """As much of an attribute as fits, and what it takes of the room; a report is small enough by itself."""
    try:
        if type(value) is tuple:
            value = value[:MOST_RECORDS]
        size = _size(name, value)
        while size > room and type(value) is tuple:
            value = value[: min(len(value) * room // size, len(value) - 1)]
            size = _size(name, value)
    except (LocksError, TypeError, ValueError, OverflowError, NotImplementedError):
        return None, room + 1  # it has something else than its type says, and is left out
    return value, 0 if name == "deadlock" else size


def _size(name: str, value: Any) -> int:
    """The size of an attribute that the other node can decode."""
    said = About({name: value}) if type(value) in PLAIN else About(**{name: value})
    packed = encode(said)
    decode_part(packed, About)
    return len(packed)


def error_in(raised: Raised) -> LocksError | None:
    """The error that another node tells of; `None` if there is no such error, or it lacks what it is about."""
    found = _CLASSES.get(raised.kind)
    if found is None:
        return None
    parameters = inspect.signature(found.__init__).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    fields = {name: getattr(raised.about, name) for name in _FIELDS}
    told = {**fields, **raised.about.plain}
    known = {
        name: value
        for name, value in told.items()
        if value is not None and (anything or name in parameters) and name not in _RESERVED
    }
    for name in _FIELDS & raised.about.plain.keys() & known.keys():  # plain in one class
        default = parameters[name].default if name in parameters else None
        if type(default) is not type(known[name]):
            del known[name]
    needed = {name for name, each in parameters.items() if each.default is each.empty}
    needed -= {"self", "message", "about"}
    return found(raised.text, **known) if needed <= known.keys() else None
