"""Lock ids in their canonical form, in which no foreign code runs when they are hashed or compared.

A lock id is a tuple of key elements. Lock tables find ids in dictionaries, within a turn, and a turn
must run nothing that belongs to the program: a `__hash__` or `__eq__` that raises there would tear it.
So `check_lock_id` makes of each element, before the turn, one of

* a plain value: `str`, `bytes`, `int`, `float`, `bool`, `None`, of exactly these types, or a tuple of
  such; an instance of a subclass, or a number of another type, becomes the plain value to which it is
  equal;
* a value of a type of this project that was made known with `keep_values` or `keep_tuples`;
* a `Key`, which stands for any other value that can be hashed. Equal values get the very same `Key`, so
  keys are compared by identity and hashed by a number that they keep.

An id may end with a mark that makes it a *counted* one (`counted`): then a given number of agents may have it at once. It lies
below the id that it was made from, as a row lies below its table.

What is not well-behaved is refused: hashing or comparing it raises, it is not equal to itself, or it
has a different hash the second time. What an id may have at most is bounded, because each
operation of a lock table takes time in it.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator
from math import nan
from numbers import Number
from reprlib import Repr
from typing import Any

from locks.errors import InvalidLockId
from locks.words import HELD_UP as HELD_UP
from locks.words import UNITS
from locks.words import LockId as LockId
from locks.words import is_held_up_id as is_held_up_id
from locks.words import units_of as units_of

__all__ = [
    "DEEPEST",
    "HELD_UP",
    "LARGEST",
    "MOST_ELEMENTS",
    "MOST_UNITS",
    "Key",
    "LockId",
    "check_lock_id",
    "counted",
    "is_held_up_id",
    "keep_tuples",
    "keep_values",
    "shown",
    "size_of",
    "units_of",
]

MOST_UNITS = (
    10_000  # of a counted id: when a lock server looks whom to grant it, it takes time in them
)

MOST_ELEMENTS = 256  # in all tuples of an id together
DEEPEST = 16  # tuples within each other, the id itself among them
LARGEST = 64 * 1024  # text, bytes and large integers by their length, and 8 for each element
_WORD = 8  # bytes
_LEAST, _MOST = -(1 << 63), 1 << 63  # integers within take a word
_SHORT = LARGEST // MOST_ELEMENTS - _WORD  # texts of which any number is not too large


class _Writer(Repr):
    """Writes no more of a value than is shown of it."""

    def repr_bytes(self, value: bytes, level: int) -> str:
        """Bytes, cut as text is."""
        cut = value[: self.maxstring]
        return repr(cut) if len(cut) == len(value) else f"{cut!r}..."


_writer = _Writer()
_writer.maxlevel = 4
_writer.maxtuple = _writer.maxlist = _writer.maxdict = _writer.maxset = _writer.maxfrozenset = 8
_writer.maxstring = _writer.maxother = _writer.maxlong = 120


def shown(value: object) -> str:
    """A value as an error shows it: shortened, and in any case; its own `__repr__` may fail."""
    try:
        return str.__str__(_writer.repr(value))
    except Exception:
        return f"<{type(value).__name__}>"


# --- Keys ---------------------------------------------------------------------------------------


class Key:
    """Stands in a lock id for a value that is not plain. `check_lock_id` makes keys.

    Equal values have the same key for as long as it is used anywhere. It is equal to what its value is
    equal to, and to no plain value; written out, it looks like its value.

    Attributes:
        value: The value.
    """

    __slots__ = ("__weakref__", "_hash", "_repr", "_str", "value")

    value: Hashable

    def __new__(cls, value: Hashable) -> Key:
        """The key of a value; raises what the value's own methods raise, or `ValueError`."""
        number = hash(value)
        if hash(value) != number:
            raise ValueError("its hash has changed")
        if not value == value:
            raise ValueError("it is not equal to itself")
        key = super().__new__(cls)
        set_ = object.__setattr__
        set_(key, "value", value)
        set_(key, "_hash", number)
        set_(key, "_str", _text_of(str, value))
        set_(key, "_repr", _text_of(repr, value))
        entry = _Entry(key, _forget)
        entry.number = number
        while True:
            # Another thread may put an equal key in while values are compared. A second look finds the
            # one that is found first from then on.
            _keys.setdefault(entry, entry)
            found = _keys.get(entry)
            known = None if found is None else found()
            if known is not None:
                return known

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a key can't be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a key can't be changed: {name}")

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __eq__(self, other: object) -> bool:
        # Only what is not canonical, so never within a turn, is compared by the value's own method.
        kind = type(other)
        if kind is Key or kind in _SIZES or kind in _TUPLES:
            return self is other
        return bool(self.value == other)

    def __repr__(self) -> str:
        return self._repr  # type: ignore[attr-defined, no-any-return]

    def __str__(self) -> str:
        return self._str  # type: ignore[attr-defined, no-any-return]

    def __copy__(self) -> Key:
        return self

    def __deepcopy__(self, memo: object) -> Key:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Key, (self.value,)


class _Entry(weakref.ref[Key]):
    """A key in the table of keys; equal to another one if the keys' values are."""

    __slots__ = ("number",)

    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, _Entry):
            return self is other
        mine, others = self(), other()
        return mine is not None and others is not None and bool(mine.value == others.value)


_keys: dict[_Entry, _Entry] = {}


def _forget(entry: weakref.ref[Key]) -> None:
    _keys.pop(entry, None)  # type: ignore[call-overload]


def _text_of(write: Callable[[object], str], value: object) -> str:
    """The text of a value; errors are written within turns, where its own method must not run."""
    try:
        return str.__str__(write(value))
    except Exception:
        return f"<{type(value).__name__}>"


# --- Types that are kept ------------------------------------------------------------------------


def _nothing(_: object) -> int:
    return 0


def _bytes_of_int(number: int) -> int:
    return number.bit_length() >> 6 << 3


# What values of a type take, besides a word for each.
_SIZES: dict[type, Callable[[Any], int]] = {
    str: len,
    bytes: len,
    int: _bytes_of_int,
    float: _nothing,
    bool: _nothing,
    type(None): _nothing,
}
_TUPLES: dict[type, Callable[[list[Any]], Hashable]] = {tuple: tuple}


def keep_values(kind: type, size: Callable[[Any], int]) -> None:
    """Keep values of a type as they are: they are immutable, and their methods are the project's own.

    Args:
        kind: The type; values of its subclasses are not kept.
        size: How many bytes a value takes.
    """
    _SIZES[kind] = size


def keep_tuples(kind: Any) -> None:
    """Keep the type of named tuples of a class; what is in them is looked at."""
    _TUPLES[kind] = kind._make


def size_of(lock_id: LockId) -> int:
    """About how many bytes a lock id takes: at most `LARGEST` if it was checked; text may take four times as many."""
    size = 0
    todo = list(lock_id)
    while todo:
        element = todo.pop()
        size += _WORD
        measure = _SIZES.get(type(element))
        if measure is not None:
            size += measure(element)
        elif type(element) in _TUPLES:
            todo += element  # type: ignore[arg-type]
    return size


# --- The canonical form -------------------------------------------------------------------------


def check_lock_id(value: Any) -> LockId:
    """Check a lock id and return it in its canonical form. Not within a turn: foreign code may run.

    Args:
        value: A non-empty tuple or list of hashable key elements, e.g. `("db", "users", 17)`.

    Raises:
        InvalidLockId: It is something else, has an element that is not well-behaved, or is too large.
    """
    if type(value) is tuple:  # most are of small texts and integers, and go no further
        for element in value:
            kind = type(element)
            if kind is str:
                if len(element) > _SHORT:
                    break
            elif kind is not int or not _LEAST < element < _MOST:
                break
        else:
            if 0 < len(value) <= MOST_ELEMENTS and value[0] != HELD_UP:
                return value
    lock_id = _canonical(value, _elements(value))
    if is_held_up_id(lock_id):
        raise _refused(
            value, f"begins with {HELD_UP!r}, as those of locks itself do", "use another"
        )
    if any(type(each) is tuple and each[:1] == (UNITS,) for each in lock_id):
        _check_units(value, lock_id)
    return lock_id


def counted(lock_id: LockId, units: int) -> LockId:
    """The id of a lock below `lock_id` that so many agents may have at once; both were checked."""
    return (*lock_id, (UNITS, units))


def _check_units(value: Any, lock_id: LockId) -> None:
    """Refuse an id with the mark of a counted one, if it is none."""
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
            f"has a part that begins with {UNITS!r}, as counted locks' ids do, and is none of these",
            "use locks.units(lock_id, value)",
        )


def _elements(value: Any) -> Iterator[Any]:
    """The elements of what should be a lock id."""
    if isinstance(value, (str, bytes)):
        raise InvalidLockId(
            f"lock id {shown(value)} is a plain {type(value).__name__}; "
            f"write it as a tuple of key elements: ({shown(value)},)",
            lock_id=shown(value),
        )
    if isinstance(value, tuple):
        elements: Iterator[Any] = tuple.__iter__(value)
    elif isinstance(value, list):
        elements = iter(list.copy(value))
    else:
        raise InvalidLockId(
            f"lock id {shown(value)} is not a tuple or list of key elements, "
            'such as ("db", "users", 17)',
            lock_id=shown(value),
        )
    return elements


def _canonical(value: Any, elements: Iterator[Any]) -> LockId:
    """The canonical form of a lock id with these elements."""
    number = size = 0
    # Tuples that are not complete: what makes them, what is left of their elements, and what is done.
    make: Callable[[list[Any]], Any] = tuple
    done: list[Any] = []
    around: list[tuple[Callable[[list[Any]], Any], Iterator[Any], list[Any]]] = []
    while True:
        for element in elements:
            number += 1
            size += _WORD
            if number > MOST_ELEMENTS:
                raise _refused(value, f"has more than {MOST_ELEMENTS} elements", "use a short one")
            kind = type(element)
            measure = _SIZES.get(kind)
            if measure is None and kind not in _TUPLES:
                if isinstance(element, tuple) and _is_as(tuple, kind):
                    kind = tuple
                else:
                    element = _plain_or_key(value, element)
                    measure = _SIZES.get(type(element), _nothing)
            if measure is None:
                if len(around) + 1 >= DEEPEST:
                    raise _refused(
                        value, f"is nested more than {DEEPEST} tuples deep", "make it flatter"
                    )
                around.append((make, elements, done))
                make, elements, done = _TUPLES[kind], tuple.__iter__(element), []
                break
            if kind is float and element != element:
                raise _refused(value, "has an element that is not equal to itself", "use no NaN")
            size += measure(element)
            if size > LARGEST:
                raise _refused(value, f"takes more than {LARGEST:,} bytes", "use a short one")
            done.append(element)
        else:
            complete = make(done)
            if not around:
                if not complete:
                    raise InvalidLockId(
                        "a lock id needs at least one key element; () has none", lock_id="()"
                    )
                return complete  # type: ignore[no-any-return]
            make, elements, done = around.pop()
            done.append(complete)


def _refused(value: Any, what: str, do: str) -> InvalidLockId:
    return InvalidLockId(f"lock id {shown(value)} {what}; {do}", lock_id=shown(value))


def _is_as(base: type, kind: type) -> bool:
    """Whether values of a subclass are hashed and compared as those of the base are."""
    return kind.__hash__ is base.__hash__ and kind.__eq__ is base.__eq__


def _plain_or_key(value: Any, element: Any) -> Any:
    """What stands for an element of a lock id that is not plain: a plain value, or a key."""
    kind = type(element)
    if kind is Key:
        return element
    try:
        plain = _plain(element, kind)
        return Key(element) if plain is None else plain
    except TypeError as error:
        if kind.__hash__ is None or "unhashable" in str(error):
            raise InvalidLockId(
                f"lock id {shown(value)} has an element that can't be a dictionary key ({error}); "
                "use strings, numbers or tuples",
                lock_id=shown(value),
            ) from None
        raise _ill_behaved(value, element, error) from error
    except Exception as error:
        raise _ill_behaved(value, element, error) from error


def _ill_behaved(value: Any, element: Any, error: Exception) -> InvalidLockId:
    return InvalidLockId(
        f"lock id {shown(value)} has an element that can't be a key, {shown(element)}: hashing or "
        f"comparing it fails ({shown(error)}); use strings, numbers or tuples",
        lock_id=shown(value),
    )


def _plain(element: Any, kind: type) -> Any:
    """The plain value that an element is equal to, if there is one that can be found."""
    for base, make in _BASES:
        if isinstance(element, base):
            plain = make(element)
            return plain if _is_as(base, kind) or _are_equal(plain, element) else None
    if hasattr(kind, "__index__"):
        plain = operator.index(element)
        return plain if _are_equal(plain, element) else None
    return _plain_number(element) if isinstance(element, Number) else None


def _plain_number(number: Any) -> int | float | None:
    """The integer or float that a number of another type is equal to, if there is one."""
    try:
        if hasattr(kind := type(number), "__float__"):
            near = float(number)
        else:
            near = float(number.real) if number.imag == 0 else nan
        # A `Fraction` of Python 3.10 is made an integer by the second of these.
        old = sys.version_info < (3, 11) and hasattr(kind, "__trunc__")
        whole = near.is_integer() and (hasattr(kind, "__int__") or old)
        exact = int(number) if whole else near
    except (TypeError, ValueError, OverflowError):
        return None
    return next((plain for plain in (exact, near) if _are_equal(plain, number)), None)


# The value of an instance of a subclass, without calling anything that the subclass may have.
_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (bytes, lambda element: b"".join((element,))),
    (int, int.__int__),
    (float, float.__float__),
)


def _are_equal(plain: Any, element: Any) -> bool:
    return hash(plain) == hash(element) and bool(element == plain)
