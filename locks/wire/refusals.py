"""The errors of `locks` as terms: what an actor answers to a call from another node that it can't carry out.

A class, a text, and those attributes that have forms: each is checked when it arrives, like a field of a message. Of
long tuples as many of the first elements are sent as fit.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

import locks.errors
from locks.errors import InvalidLockId, LocksError
from locks.model import AgentId, Contender, Deadlock, LockId
from locks.otp.bytes import etf
from locks.otp.bytes.fields import BadMessage
from locks.ranges import MOST_RECORDS, Names
from locks.wire.forms import FORMS

__all__ = ["LARGEST_ABOUT", "pack_attributes", "unpack_error"]

LARGEST_ABOUT = (
    64 * 1024
)  # bytes of what an error says besides its text, but for the report of a deadlock
PLAIN = (str, int, float, bool)

_Ids = Annotated[tuple[LockId, ...], Meta(max_length=MOST_RECORDS)]
_FORMS = {
    name: FORMS.of(kind)
    for name, kind in {
        "agent": AgentId,
        "deadlock": Deadlock,
        "holder": AgentId,
        "holders": Annotated[tuple[Contender, ...], Meta(max_length=MOST_RECORDS)],
        "lock_id": LockId,
        "lock_ids": _Ids,
        "lost": _Ids,
        "nodes": Names,
    }.items()
}
_CLASSES: dict[str, type[LocksError]] = {
    name: found
    for name in locks.errors.__all__
    if isinstance(found := getattr(locks.errors, name), type) and issubclass(found, LocksError)
}


def pack_attributes(error: Exception) -> dict[str, Any]:
    """The attributes of an error, by name, as terms."""
    if not isinstance(error, LocksError):
        return {}
    terms: dict[str, Any] = {}
    room = LARGEST_ABOUT
    for name, value in error.about.items():
        if type(value) in PLAIN:
            term, size = value, _size(value)
        elif value is None or name not in _FORMS:
            continue
        else:
            term, size = _packed(name, value, room)
        if size <= room:
            room -= size
            terms[name] = term
    return terms


def _packed(name: str, value: Any, room: int) -> tuple[Any, int]:
    """The term of an attribute, and what it takes of the room; a report is small enough by itself."""
    try:
        term = _FORMS[name].pack(value)
        size = _size(term)
        while size > room and type(value) is tuple and name in ("holders", "lock_ids", "lost"):
            value = value[: min(len(value) * room // size, len(value) - 1)]
            term = _FORMS[name].pack(value)
            size = _size(term)
        return term, 0 if name == "deadlock" else size
    except (LocksError, AttributeError, TypeError, ValueError):
        return None, room + 1  # it has something else than its type says, and is left out


def _size(term: Any) -> int:
    return len(etf.encode(term))


def unpack_error(kind: str, text: str, about: Mapping[Any, Any]) -> LocksError | None:
    """The error that another node tells of; `None` if there is no such error, or it lacks what it is about."""
    found = _CLASSES.get(kind)
    if found is None:
        return None
    parameters = inspect.signature(found.__init__).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    known: dict[str, Any] = {}
    for name, term in about.items():
        if type(name) is not str or not (anything or name in parameters):
            continue
        try:
            if type(term) in PLAIN and (name not in _FORMS or found is InvalidLockId):
                known[name] = term
            elif name in _FORMS:
                known[name] = _FORMS[name].unpack(term)
        except BadMessage:
            continue
    needed = {name for name, each in parameters.items() if each.default is each.empty}
    needed -= {"self", "message", "about"}
    return found(text, **known) if needed <= known.keys() else None
