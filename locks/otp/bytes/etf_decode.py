"""Decoding of the external term format; `etf.py` has the table of types.

One loop with its own stack decodes a term. Lengths are checked before memory is allocated for them;
parts, depth and integers are counted as they come. So the worst that any input can cause is a
`DecodeError`, and a term takes a small multiple of the received bytes. Frequent tags are handled in
the loop, the most frequent ones first. Atoms and pids are cached by their bytes; a full cache is
emptied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from math import isfinite
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from locks.errors import InvalidOption, OperatingError
from locks.otp.bytes.terms import LONGEST_ATOM, Atom, ImproperList, Pid, Reference, Term

__all__ = ["DecodeError", "Limits", "constant", "decode", "decode_from", "decode_slowly"]

CACHED: Final = 4096  # entries of each cache
MOST_ALIKE: Final = 100  # keys of a map that have the same hash
STEP: Final = 2048  # bytes of a large term that are decoded at once

_u16: Final = Struct(">H").unpack_from
_u32: Final = Struct(">I").unpack_from
_i32: Final = Struct(">i").unpack_from
_f64: Final = Struct(">d").unpack_from
_2u32: Final = Struct(">II").unpack_from
_3u32: Final = Struct(">III").unpack_from
_u32_u8: Final = Struct(">IB").unpack_from


class DecodeError(OperatingError, ValueError):
    """The received bytes are not a term, or exceed a limit."""


class Limits(NamedTuple):
    """The limits of one decoded term.

    Attributes:
        depth: Nested containers; at most some hundreds, because Python's own functions on such
            terms recurse.
        elements: Terms in it, itself included.
        integer_bytes: Bytes of an integer; Python does not convert more than 1,785 to text.
    """

    depth: int = 64
    elements: int = 100_000
    integer_bytes: int = 1024


DEFAULT: Final = Limits()
_NAMED: Final[dict[bytes, Any]] = {b"true": True, b"false": False, b"undefined": None}
_atoms: Final[dict[bytes, Any]] = dict(_NAMED)  # by their text in UTF-8
_known_pids: Final[dict[bytes, Pid]] = {}  # by what follows the tag NEW_PID

# The kinds of containers.
_TOP: Final = 0
_TUPLE: Final = 1
_LIST: Final = 2
_TAIL: Final = 3
_MAP: Final = 4
_EXPORT: Final = 5
_FUN: Final = 6
_FUN_HEAD: Final = 30  # bytes of a function ahead of its first term


def decode(data: bytes | bytearray, limits: Limits = DEFAULT) -> Any:
    """Decode bytes that are one term, with the version byte 131.

    Args:
        data: The bytes.
        limits: The limits of the term.

    Returns:
        The term, by the table at the top of `etf.py`.

    Raises:
        DecodeError: They are not exactly one term, or the term exceeds a limit.
    """
    term, end = decode_from(data, 0, limits)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes follow a term of {end} bytes")
    return term


def decode_from(
    data: bytes | bytearray,
    offset: int,
    limits: Limits = DEFAULT,
    stop: int | None = None,
    paused: _Paused | None = None,
) -> tuple[Any, int]:
    """Decode the term that begins at an offset; return it, and the offset behind it.

    Args:
        data: The bytes.
        offset: The offset of the version byte.
        limits: The limits of the term.
        stop: Where to pause, for `decode_slowly`.
        paused: The result of the paused call.

    Raises:
        DecodeError: There is no term, or it exceeds a limit.
    """
    if type(data) is not bytes:
        data = bytes(data)
    stop = len(data) if stop is None else stop
    try:
        if paused is not None:
            return _read(data, offset, limits, stop, paused)
        if data[offset] != 131:
            raise DecodeError(f"a term begins with the byte 131, not with {data[offset]}")
        return _read(data, offset + 1, limits, stop)
    except (IndexError, StructError):
        raise DecodeError(f"a term is cut off after {len(data) - offset} bytes") from None


def decode_slowly(
    data: bytes, offset: int, limits: Limits = DEFAULT
) -> Generator[None, None, tuple[Any, int]]:
    """Decode as `decode_from` does, a few terms for each `next`."""
    at, paused = offset, None
    while True:
        value, at = decode_from(data, at, limits, min(at + STEP, len(data)), paused)
        if type(value) is not _Paused:
            return value, at
        paused = value
        yield


class _Paused(NamedTuple):
    """A term that is partly decoded; see `_read`."""

    state: tuple[Any, ...]


def _read(
    data: bytes, at: int, limits: Limits, stop: int, paused: _Paused | None = None
) -> tuple[Any, int]:
    """Decode the term at `at`; raises IndexError or StructError if it is cut off.

    If both the term and the data continue at `stop`, a `_Paused` is returned, and the offset to
    continue at.

    This is one function because calls cost most: with a function for each tag, our messages take a
    fifth to a third longer. Each branch of the loop reads one tag. It either leaves a `value` and
    its end, or opens a container and continues with its contents. Below the branches, the value is
    put into its container, and each container that is full by this into the next one.
    """
    size = len(data)
    max_depth, max_elements, max_integer = limits
    # The open container: its kind, its items so far, how many are missing, where it began. Outer
    # ones are on the stack.
    kind, left, begin, elements = _TOP, 1, at, 1
    items: list[Any] = []
    stack: list[tuple[int, list[Any], int, int]] = []
    if paused is not None:
        kind, left, begin, items, stack, elements = paused.state
    value: Any
    while at < stop:
        tag = data[at]
        if tag == 109:  # BINARY
            start = at + 5
            count = data[at + 4]
            if data[at + 1] or data[at + 2] or data[at + 3]:  # rarely
                count = _u32(data, at + 1)[0]
            at = start + count
            if at > size:
                raise IndexError
            try:
                value = data[start:at].decode()
            except UnicodeDecodeError:
                value = data[start:at]
        elif tag == 97:  # SMALL_INTEGER
            value = data[at + 1]
            at += 2
        elif tag == 119 or tag == 100:  # SMALL_ATOM_UTF8, ATOM
            if tag == 119:
                start = at + 2
                at = start + data[at + 1]
                text = data[start:at]
            else:
                text, at = _atom_text(data, at)
            if at > size:
                raise IndexError
            value = _atoms.get(text, text)
            if value is text:
                value = _new_atom(text)
        elif tag == 104 or tag == 108 or tag == 105 or tag == 116:  # containers
            start = at
            if tag == 104:  # SMALL_TUPLE
                count = data[at + 1]
                at += 2
            else:
                count = _u32(data, at + 1)[0]
                at += 5
            if tag == 116:  # MAP
                count *= 2
            if count or tag == 108:
                elements += count
                if elements > max_elements or count > size - at:
                    raise _too_many(elements, max_elements, count, size - at)
                if len(stack) >= max_depth:
                    raise DecodeError(f"a term is nested more than {max_depth} deep")
                stack.append((kind, items, left, begin))
                begin = start
                left = count
                items = []
                if tag == 108:  # LIST
                    kind = _LIST
                    if not count:
                        kind, left = _TAIL, 1
                else:
                    kind = _MAP if tag == 116 else _TUPLE
                continue
            value = {} if tag == 116 else ()
        elif tag == 106:  # NIL
            value = []
            at += 1
        elif tag == 98:  # INTEGER
            value = _i32(data, at + 1)[0]
            at += 5
        elif tag == 88 and data[at + 1] == 119:  # NEW_PID
            start = at + 1
            at += 15 + data[at + 2]
            if at > size:
                raise IndexError
            text = data[start:at]
            value = _known_pids.get(text)
            if value is None:
                value = _new_pid(text)
        elif tag == 110 or tag == 111:  # SMALL_BIG, LARGE_BIG
            if tag == 110:
                count, start = data[at + 1], at + 2
            else:
                count, start = _u32(data, at + 1)[0], at + 5
            at = start + 1 + count
            if count > max_integer:
                raise DecodeError(f"an integer has {count} bytes, more than {max_integer}")
            if at > size:
                raise IndexError
            value = int.from_bytes(data[start + 1 : at], "little")
            if data[start]:
                if data[start] != 1:
                    raise DecodeError(f"the sign of an integer is 0 or 1, not {data[start]}")
                value = -value
        elif tag == 107:  # STRING
            start = at + 3
            at = start + _u16(data, at + 1)[0]
            if at > size:
                raise IndexError
            value = list(data[start:at])
            elements += len(value)
            if elements > max_elements:
                raise _too_many(elements, max_elements, 0, 0)
        elif tag == 113 or tag == 112:  # EXPORT, NEW_FUN
            if len(stack) >= max_depth:
                raise DecodeError(f"a term is nested more than {max_depth} deep")
            stack.append((kind, items, left, begin))
            kind, left, begin = _EXPORT, 3, at
            at += 1
            if tag == 112:
                at = begin + _FUN_HEAD
                kind, left = _FUN, 4 + _u32(data, at - 4)[0]
            elements += left
            if elements > max_elements or left > size - at:
                raise _too_many(elements, max_elements, left, size - at)
            items = []
            continue
        elif tag == 118 or tag == 115:  # ATOM_UTF8, SMALL_ATOM
            text, at = _atom_text(data, at)
            value = _atoms.get(text, text)
            if value is text:
                value = _new_atom(text)
        else:
            value, at = _read_rare(data, at, tag)
        # The value goes into its container. If that is complete now, it goes into the one around
        # it.
        items.append(value)
        left -= 1
        while not left:
            if kind == _TUPLE:
                value = tuple(items)
            elif kind == _LIST:
                if data[at] != 106:
                    kind, left = _TAIL, 1
                    elements += 1
                    break
                at += 1
                value = items
            elif kind == _TOP:
                return value, at
            else:
                value = _CLOSE[kind](items, data, begin, at)
            start = begin
            kind, items, left, begin = stack.pop()
            if kind == _MAP and not left & 1:
                value = _key(value, data, start, at)
            items.append(value)
            left -= 1
    if at >= size:
        raise IndexError
    return _Paused((kind, left, begin, items, stack, elements)), at


def _read_rare(data: bytes, at: int, tag: int) -> tuple[Any, int]:
    """Decode an infrequent term that is no container; return it and its end."""
    if tag == 70:  # NEW_FLOAT
        number = _f64(data, at + 1)[0]
        if not isfinite(number):
            raise DecodeError(f"{number!r} is not a number in Erlang")
        return number, at + 9
    if tag == 77:  # BIT_BINARY
        count, bits = _u32_u8(data, at + 1)
        end = at + 6 + count
        if bits > 8 or (bits == 0) != (count == 0):
            raise DecodeError(f"a bit string of {count} bytes has {bits} bits in its last byte")
        if end > len(data):
            raise IndexError
        return (data[at + 6 : end] if bits in (0, 8) else Term(data[at:end])), end
    if tag in (88, 103):  # NEW_PID, PID
        text, place = _atom_text(data, at + 1)
        low, high = _2u32(data, place)
        end = place + (12 if tag == 88 else 9)
        creation = _u32(data, place + 8)[0] if tag == 88 else data[place + 8]
        return Pid(high << 32 | low, _node(text), creation), end
    if tag in (90, 114):  # NEWER_REFERENCE, NEW_REFERENCE
        count = _u16(data, at + 1)[0]
        if not 1 <= count <= 5:
            raise DecodeError(f"a reference must have 1 to 5 words, not {count}")
        text, place = _atom_text(data, at + 3)
        creation = _u32(data, place)[0] if tag == 90 else data[place]
        place += 4 if tag == 90 else 1
        end = place + 4 * count
        if end > len(data):
            raise IndexError
        words = tuple([_u32(data, each)[0] for each in range(place, end, 4)])
        return Reference(_node(text), creation, words), end
    if tag in _PORTS:
        text, place = _atom_text(data, at + 1)
        _node(text)
        end = place + _PORTS[tag]
        if end > len(data):
            raise IndexError
        return Term(data[at:end]), end
    known = _REFUSED.get(tag)
    raise DecodeError(f"unknown term tag {tag}" if known is None else f"{known} ({tag}) is refused")


_PORTS: Final = {102: 5, 89: 8, 120: 12}  # PORT, NEW_PORT, V4_PORT: bytes after the node's name
_REFUSED: Final = {
    80: "a compressed term",
    82: "a reference into an atom cache",
    99: "a float as text",
    101: "a reference of one word",
    117: "a function of an old kind",
    121: "a term that is local to a node",
}


def _atom_text(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the text of the atom at `at`, in UTF-8, and its end."""
    tag = data[at]
    if tag == 119 or tag == 115:
        start = at + 2
        end = start + data[at + 1]
    elif tag == 118 or tag == 100:
        start = at + 3
        end = start + _u16(data, at + 1)[0]
    else:
        raise DecodeError(f"expected an atom instead of a term with the tag {tag}")
    text = data[start:end]
    if end > len(data):
        raise IndexError
    if (tag == 100 or tag == 115) and not text.isascii():
        text = text.decode("latin-1").encode()
    return text, end


def _name(text: bytes) -> str:
    """Return the text of an atom."""
    try:
        name = text.decode()
    except UnicodeDecodeError:
        raise DecodeError(f"an atom is not UTF-8: {text[:100]!r}") from None
    if len(name) > LONGEST_ATOM:
        raise DecodeError(f"an atom has {len(name)} characters, more than {LONGEST_ATOM}")
    return name


def _node(text: bytes) -> str:
    """Return the name of a node."""
    if not text:
        raise DecodeError("the name of a node is empty")
    return _name(text)


def constant(name: str) -> Atom:
    """Make an atom that decoding always returns as this object, so that `is` works on it."""
    text = name.encode()
    found = _NAMED.get(text)
    if found is None:
        found = _NAMED[text] = _atoms[text] = Atom(name)
    if not isinstance(found, Atom):
        raise InvalidOption(f"the atom {name} is reserved for {found}", name=name)
    return found


def _new_atom(text: bytes) -> Atom:
    atom = Atom(_name(text))
    if len(_atoms) >= CACHED:
        _atoms.clear()
        _atoms.update(_NAMED)
    _atoms[text] = atom
    return atom


def _new_pid(encoded: bytes) -> Pid:
    """Return the pid written as NEW_PID, a node with a short name, and three numbers."""
    low, high, creation = _3u32(encoded, len(encoded) - 12)
    pid = Pid(high << 32 | low, _node(encoded[2:-12]), creation)
    if len(_known_pids) >= CACHED:
        _known_pids.clear()
    _known_pids[encoded] = pid
    return pid


def _too_many(elements: int, most: int, count: int, room: int) -> DecodeError:
    if elements > most:
        return DecodeError(f"a term has more than {most:,} parts")
    return DecodeError(f"{count:,} terms can't fit into the remaining {room:,} bytes")


def _leaf_key(value: Any) -> Any:
    """Return a key that was no container on the wire; an empty container or a STRING is encoded."""
    if type(value) is list:
        return Term(b"k" + len(value).to_bytes(2, "big") + bytes(value) if value else b"j")
    return Term(b"t\0\0\0\0") if type(value) is dict else value


def _key(value: Any, data: bytes, start: int, end: int) -> Any:
    """Return a container as the key of a map: unchanged, or encoded if it can't be hashed."""
    try:
        hash(value)
    except TypeError:
        return Term(data[start:end])
    return value


def _close_tail(items: list[Any], data: bytes, start: int, end: int) -> Any:
    """Return the list of all items except the last one, which is its tail."""
    tail = items.pop()
    if type(tail) is list:
        return items + tail
    if not items:
        return tail
    if type(tail) is ImproperList:
        return ImproperList((*items, *tail.items), tail.tail)
    return ImproperList(tuple(items), tail)


def _close_map(items: list[Any], data: bytes, start: int, end: int) -> Any:
    """Return the map of alternating keys and values; encoded if some keys are equal in Python."""
    keys = items[::2]
    try:
        _check_hashes(keys)
    except TypeError:
        keys = [_leaf_key(key) for key in keys]
        _check_hashes(keys)
    value = dict(zip(keys, items[1::2], strict=True))
    if len(value) == len(keys):
        return value
    # 1 and 1.0 are two keys of one map in Erlang, and one in Python.
    if len({_exact(key) for key in keys}) != len(keys):
        raise DecodeError("a map has the same key twice")
    return Term(data[start:end])


def _check_hashes(keys: list[Any]) -> None:
    """Check that a dictionary of these keys takes time in their number, and not in its square.

    Hashes of text are random. Hashes of numbers, and of tuples of numbers, can be predicted, so an
    attacker can make thousands of equal ones. Raises `TypeError` if a key has no hash.
    """
    hashes = list(map(hash, keys))
    many = len(hashes) > MOST_ALIKE and len(hashes) - len(set(hashes)) >= MOST_ALIKE
    if many and max(Counter(hashes).values()) > MOST_ALIKE:
        raise DecodeError(f"more than {MOST_ALIKE} keys of a map have the same hash")


def _exact(key: Any) -> Any:
    """Return a value that is equal only for keys of the same type and value."""
    if isinstance(key, tuple):
        return (type(key), *map(_exact, key))
    return (type(key), key)


def _close_export(items: list[Any], data: bytes, start: int, end: int) -> Any:
    module, function, arity = items
    if not (_is_atom(module) and _is_atom(function) and type(arity) is int and 0 <= arity < 256):
        raise DecodeError(
            f"an export must be a module, a function and an arity, not {items!r:.100}"
        )
    return Term(data[start:end])


def _close_fun(items: list[Any], data: bytes, start: int, end: int) -> Any:
    module, index, unique, pid = items[:4]
    if not (_is_atom(module) and type(index) is type(unique) is int and type(pid) is Pid):
        raise DecodeError(f"a function begins with other terms than {items[:4]!r:.100}")
    if _u32(data, start + 1)[0] != end - start - 1:
        raise DecodeError(f"a function has {end - start - 1} bytes instead of its stated number")
    return Term(data[start:end])


def _is_atom(value: Any) -> bool:
    return value is None or type(value) in (Atom, bool)


_CLOSE: Final = {_TAIL: _close_tail, _MAP: _close_map, _EXPORT: _close_export, _FUN: _close_fun}
