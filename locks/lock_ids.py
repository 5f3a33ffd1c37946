"""Lock ids in canonical form: plain values, the same in every program and on every server.

A lock id is a tuple of key elements. Lock tables look ids up in dictionaries within a turn, and a turn must not run code of the program: a `__hash__` or
`__eq__` that raised there would leave the table half changed. And two values that are equal in one program, but not on a server, would be two locks where
a program means one. So `check_lock_id` converts each element, before the turn, to a plain value: `str`, `bytes`, `int` (64 bits), `float`, `bool` or
`None`, of exactly these types, or a tuple of such. An instance of a subclass, or an integer of another type (`__index__`, as numpy's), becomes the plain
value to which it is equal. A `UUID`, a `date` and a `datetime` stand for their text, and an enum member for its value. All else is refused, whether the
program has lock servers or not.

An id may end with a mark that makes it a *counted* id (`counted`): a given number of agents may hold it at
the same time. A counted id is below the id that it was made from, as a row is below its table.

The size of an id is limited, because the time of each lock table operation depends on it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from reprlib import Repr
from typing import Any

from locks.errors import InvalidLockId, InvalidOption
from locks.words import HELD_UP as HELD_UP
from locks.words import UNITS, show
from locks.words import LockId as LockId
from locks.words import is_held_up_id as is_held_up_id
from locks.words import units_of as units_of

__all__ = [
    "DEEPEST",
    "HELD_UP",
    "LARGEST",
    "MOST_ELEMENTS",
    "MOST_UNITS",
    "LockId",
    "check_lock_id",
    "counted",
    "is_held_up_id",
    "shown",
    "size_of",
    "units",
    "units_of",
]

MOST_UNITS = 10_000  # of a counted id: granting a unit takes time proportional to them

MOST_ELEMENTS = 256  # in all nested tuples of an id together
DEEPEST = 16  # levels of nested tuples, including the id itself
LARGEST = 64 * 1024  # bytes: the lengths of texts and large integers, and 8 per element
_WORD = 8  # bytes
_LEAST, _MOST = -(1 << 63), 1 << 63  # integers in this range take one word
_SHORT = LARGEST // MOST_ELEMENTS - _WORD  # texts up to this length need no sum of sizes


class _Writer(Repr):
    """A `Repr` that writes only as much of a value as is shown."""

    def repr_bytes(self, value: bytes, level: int) -> str:
        """Bytes, shortened like text."""
        cut = value[: self.maxstring]
        return repr(cut) if len(cut) == len(value) else f"{cut!r}..."


_writer = _Writer()
_writer.maxlevel = 4
_writer.maxtuple = _writer.maxlist = _writer.maxdict = _writer.maxset = _writer.maxfrozenset = 8
_writer.maxstring = _writer.maxother = _writer.maxlong = 120


def shown(value: object) -> str:
    """Format a value for an error, shortened. Never fails, even if the value's `__repr__` does."""
    try:
        return str.__str__(_writer.repr(value))
    except Exception:
        return f"<{type(value).__name__}>"


def _nothing(_: object) -> int:
    return 0


# Size of values by type, besides one word for each.
_SIZES: dict[type, Callable[[Any], int]] = {
    str: len,
    bytes: len,
    int: _nothing,
    float: _nothing,
    bool: _nothing,
    type(None): _nothing,
}


def size_of(lock_id: LockId) -> int:
    """The approximate size of a lock id in bytes: at most `LARGEST` for a checked id (text may take four times as much)."""
    size = 0
    todo = list(lock_id)
    while todo:
        element = todo.pop()
        size += _WORD
        measure = _SIZES.get(type(element))
        if measure is not None:
            size += measure(element)
        elif type(element) is tuple:
            todo += element
    return size


# --- The canonical form -------------------------------------------------------------------------


def check_lock_id(value: Any) -> LockId:
    """Check a lock id and return it in canonical form. Don't call it within a turn: code of the program may run.

    Args:
        value: A non-empty tuple or list of key elements, e.g. `("db", "users", 17)`.

    Raises:
        InvalidLockId: It is not such a tuple or list, an element of it is none of the types above, or it is too large.
    """
    if type(value) is tuple:  # most ids consist of short texts and integers, and are done here
        for element in value:
            kind = type(element)
            if kind is str:
                if len(element) > _SHORT or not element.isascii():
                    break
            elif kind is int:
                if not _LEAST < element < _MOST:
                    break
            else:
                break
        else:
            if 0 < len(value) <= MOST_ELEMENTS and value[0] != HELD_UP:
                return value
    lock_id = _canonical(value, _elements(value))
    if is_held_up_id(lock_id):
        raise _refused(
            value, f"begins with {HELD_UP!r}, which is reserved", "use another first element"
        )
    for each in lock_id:
        if type(each) is tuple and each[:1] == (UNITS,):
            _check_units(value, lock_id)
    return lock_id


def counted(lock_id: LockId, units: int) -> LockId:
    """The id of a counted lock below `lock_id` with this number of units; both arguments were checked."""
    return (*lock_id, (UNITS, units))


def units(lock_id: Sequence[Any], value: int) -> LockId:
    """The id of a counted lock: `value` clients may hold it at the same time, each of them one *unit*.

    Lock it like any other id, with a write lock. It is below `lock_id`: a lock on `lock_id`, or above
    it, excludes all holders of units. Other ids below `lock_id` are independent of it.

        with locks.transaction() as tx:
            tx.write_lock(locks.values.units(("licences",), 5))

    Args:
        lock_id: A non-empty tuple or list of key elements.
        value: The number of units, at most 10,000. All uses of `lock_id` must have the same number.

    Raises:
        InvalidOption: `value` is not such a number.
    """
    checked = check_lock_id(lock_id)
    if units_of(checked):
        raise InvalidOption(
            f"{show(checked)} is already a counted lock; pass the id without units",
            lock_id=checked,
        )
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_UNITS:
        raise InvalidOption(
            f"value={shown(value)} is wrong; use an int from 1 to {MOST_UNITS:,}",
            value=shown(value),
        )
    return check_lock_id(counted(checked, int(value)))


def _check_units(value: Any, lock_id: LockId) -> None:
    """Refuse an id that has the mark of a counted id in the wrong place or form."""
    (*before, last) = lock_id
    right = type(last) is tuple and len(last) == 2 and last[0] == UNITS
    units = last[1] if type(last) is tuple and right else None
    if (
        not before
        or type(units) is not int
        or not 0 < units <= MOST_UNITS
        or any(type(each) is tuple and each[:1] == (UNITS,) for each in before)
    ):
        raise _refused(
            value,
            f"has an element that begins with {UNITS!r}, which is reserved for counted locks",
            "use locks.values.units(lock_id, value)",
        )


def _elements(value: Any) -> Iterator[Any]:
    """The elements of what should be a lock id."""
    if isinstance(value, (str, bytes)):
        raise InvalidLockId(
            f"lock id {shown(value)} is a plain {type(value).__name__}; "
            f"pass a tuple of key elements: ({shown(value)},)",
            lock_id=shown(value),
        )
    if isinstance(value, tuple):
        elements: Iterator[Any] = tuple.__iter__(value)
    elif isinstance(value, list):
        elements = iter(list.copy(value))
    else:
        raise InvalidLockId(
            f"lock id {shown(value)} is not a tuple or list of key elements; pass one, "
            'such as ("db", "users", 17)',
            lock_id=shown(value),
        )
    return elements


def _canonical(value: Any, elements: Iterator[Any]) -> LockId:
    """The canonical form of a lock id with these elements."""
    number = size = 0
    # Incomplete tuples: their remaining elements, and their finished elements.
    done: list[Any] = []
    around: list[tuple[Iterator[Any], list[Any]]] = []
    while True:
        for element in elements:
            number += 1
            size += _WORD
            if number > MOST_ELEMENTS:
                raise _refused(value, f"has more than {MOST_ELEMENTS} elements", "use a shorter id")
            kind = type(element)
            measure = _SIZES.get(kind)
            if measure is None and kind is not tuple:
                if isinstance(element, tuple) and _is_as(tuple, kind):
                    kind = tuple
                else:
                    element = _plain(value, element)
                    kind = type(element)
                    measure = _SIZES.get(kind)
            if measure is None:
                if len(around) + 1 >= DEEPEST:
                    raise _refused(
                        value, f"is nested more than {DEEPEST} tuples deep", "use a flatter id"
                    )
                around.append((elements, done))
                elements, done = tuple.__iter__(element), []
                break
            if kind is float and not isfinite(element):
                raise _refused(value, f"has the element {element}", "use finite numbers")
            if kind is int and not _LEAST <= element < _MOST:
                raise _refused(
                    value,
                    "has an integer of more than 64 bits",
                    "use its text, or a shorter number",
                )
            if kind is str and not _is_text(element):
                raise _refused(
                    value,
                    "has a text with surrogates",
                    "decode it in another way, or use its bytes",
                )
            size += measure(element)
            if size > LARGEST:
                raise _refused(value, f"takes more than {LARGEST:,} bytes", "use a shorter id")
            done.append(element)
        else:
            complete = tuple(done)
            if not around:
                if not complete:
                    raise InvalidLockId(
                        "lock id () is empty; pass at least one key element", lock_id="()"
                    )
                return complete
            elements, done = around.pop()
            done.append(complete)


def _refused(value: Any, what: str, do: str) -> InvalidLockId:
    return InvalidLockId(f"lock id {shown(value)} {what}; {do}", lock_id=shown(value))


def _is_as(base: type, kind: type) -> bool:
    """Whether values of a subclass are hashed and compared like those of the base class."""
    return kind.__hash__ is base.__hash__ and kind.__eq__ is base.__eq__


def _is_text(element: str) -> bool:
    """Whether text can be sent: a lone surrogate, as of a file's name that is no UTF-8, can't."""
    if element.isascii():
        return True
    try:
        element.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: Any, element: Any) -> Any:
    """The plain value for an element of another type, which may be a tuple.

    Raises:
        InvalidLockId: There is none.
    """
    kind = type(element)
    try:
        plain = _stands_for(element, kind)
        if plain is _NOTHING:
            plain = _equal_value(element, kind)
    except Exception:  # a method of the program's class has failed
        plain = _NOTHING
    if plain is _NOTHING:
        raise _refused(
            value,
            f"has an element of the type {_named(kind)}, {shown(element)}",
            "use str, int, float, bool, None, bytes, a UUID, date, datetime or enum member, or a tuple of these",
        )
    return plain


def _named(kind: type) -> str:
    """The name of a type; some have the name of one of Python's own, such as `numpy.bool`."""
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


_NOTHING = object()


def _stands_for(element: Any, kind: type) -> Any:
    """The text of a UUID, date or datetime, the value of an enum member; `_NOTHING` for others."""
    for name, base, stands_for in _STAND_FOR:
        module: Any = sys.modules.get(name)
        type_of_it = getattr(module, base, None)  # if it is not loaded yet, there is no value of it
        if type_of_it is not None and issubclass(kind, type_of_it):
            return stands_for(module, element)
    return _NOTHING


def _value_of_member(module: Any, member: Any) -> Any:
    """The value of an enum member, in canonical form."""
    (plain,) = _canonical((member.value,), iter((member.value,)))
    return plain


def _text_of_time(module: Any, time: Any) -> str:
    """The text of a datetime; that of equal times in different zones is the same."""
    kind = module.datetime
    if kind.utcoffset(time) is not None:
        time = kind.astimezone(time, module.timezone.utc)
    return str(kind.isoformat(time))


# A datetime is a date, too, and an enum member may be anything else as well. Methods of subclasses are not called.
_STAND_FOR: tuple[tuple[str, str, Callable[[Any, Any], Any]], ...] = (
    ("enum", "Enum", _value_of_member),
    ("datetime", "datetime", _text_of_time),
    ("datetime", "date", lambda module, element: str(module.date.isoformat(element))),
    ("uuid", "UUID", lambda module, element: str(module.UUID.__str__(element))),
)


def _equal_value(element: Any, kind: type) -> Any:
    """The plain value that is equal to an instance of a subclass, or to an integer of another type; `_NOTHING` if none is."""
    for base, make in _BASES:
        if isinstance(element, base):
            plain = make(element)
            return plain if _is_as(base, kind) or _are_equal(plain, element) else _NOTHING
    if hasattr(kind, "__index__"):
        plain = operator.index(element)
        return plain if _are_equal(plain, element) else _NOTHING
    return _NOTHING


# The plain value of an instance of a subclass, without calling methods of the subclass.
_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (bytes, lambda element: b"".join((element,))),
    (int, int.__int__),
    (float, float.__float__),
)


def _are_equal(plain: Any, element: Any) -> bool:
    return hash(plain) == hash(element) and bool(element == plain)
