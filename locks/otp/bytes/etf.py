"""Erlang's external term format, both ways, bounded.

| Python | on the wire | back in Python |
|---|---|---|
| `int`, at most 1,024 bytes | `SMALL_INTEGER`, `INTEGER`, `SMALL_BIG`, `LARGE_BIG` | the same |
| `float`, finite | `NEW_FLOAT` | the same |
| `True`, `False`, `None` | the atoms `true`, `false`, `undefined` | the same |
| `Atom` | `SMALL_ATOM_UTF8`, `ATOM_UTF8` (Latin-1 ones are understood) | the same |
| `str` | `BINARY` that is UTF-8 | the same |
| `bytes` | `BIT_BINARY` whose last byte has 8 bits | the same |
| | `BINARY` that is not UTF-8 | `bytes` |
| `tuple` | `SMALL_TUPLE`, `LARGE_TUPLE` | the same |
| `list` | `LIST`, `NIL` (`STRING` is understood: a list of integers) | the same |
| `dict` | `MAP` | the same; a key that can't be hashed is a `Term` |
| `Pid`, `Reference` | `NEW_PID`, `NEWER_REFERENCE` (the older ones are understood) | the same |
| `ImproperList` | `LIST` with a tail | the same |
| `Term` | the bytes that it holds | what they stand for |
| | functions, exports, ports, other `BIT_BINARY`s, maps with keys that are equal in Python | `Term`
|

For Erlang, both `str` and `bytes` are plain binaries: it decodes a bit string of whole bytes as a
binary, and sends it as one. So both types survive between Python nodes, and a binary from Erlang
becomes `str` if possible. (`"a"` and `b"a"` in one dict are the same key twice for Erlang, which
refuses that.) Only exactly these types are encoded. A subclass is refused, because it would come
back as another type. `COMPRESSED`, atom caches, the old `FLOAT` and `REFERENCE`, and node-local
terms are refused: no peer sends them to a node with our flags.

Encoded terms keep the default limits and fit into a frame, because a peer would refuse larger ones.
Short texts and pids are cached with their bytes; a full cache is emptied. `etf_decode.py` describes
how terms are decoded.

Source: ERTS user's guide, "External Term Format"; the order of checks is our own.
"""

from __future__ import annotations

from math import isfinite
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from locks.errors import MisuseError
from locks.lock_ids import DEEPEST, MOST_ELEMENTS, keep_values, shown
from locks.lock_ids import LARGEST as LARGEST_ID
from locks.otp.bytes.etf_decode import DecodeError, Limits, decode, decode_from
from locks.otp.bytes.terms import LONGEST_ATOM, Atom, ImproperList, Pid, Reference, Term

__all__ = [
    "DecodeError",
    "EncodeError",
    "Limits",
    "decode",
    "decode_from",
    "encode",
]


class EncodeError(MisuseError, ValueError):
    """A value has no form as a term, or is too deep or too large to be sent."""


CACHED: Final = 4096  # entries of each cache
CACHED_LENGTH: Final = 64  # characters of a text that is cached
LARGEST: Final = 2**24 - 2**16  # bytes; a peer takes frames of 2**24, which have a head, too
DEFAULT: Final = Limits()
MOST_PARTS: Final[int] = DEFAULT.elements

_pack_head: Final = Struct(">BI").pack
_pack_int: Final = Struct(">Bi").pack
_pack_float: Final = Struct(">Bd").pack
_pack_pid: Final = Struct(">III").pack
_pack_big: Final = Struct("<BBBQ").pack
_pack_reference: Final = Struct(">BH").pack
_pack_words: Final = tuple([Struct(f">{words + 1}I").pack for words in range(6)])

_SMALL: Final = tuple(bytes((97, number)) for number in range(256))
_TUPLES: Final = tuple(bytes((104, size)) for size in range(256))
_LISTS: Final = tuple(bytes((108, 0, 0, 0, size)) for size in range(256))
_TRUE: Final = Atom("true").encoded
_FALSE: Final = Atom("false").encoded
_UNDEFINED: Final = Atom("undefined").encoded

_texts: Final[dict[str, bytes]] = {}
_pids: Final[dict[Pid, bytes]] = {}


def encode(term: Any) -> bytes:
    """Return a term in the external term format, with the version byte 131.

    Args:
        term: The term; the table at the top of this file says what may be in it.

    Raises:
        EncodeError: It contains other types, is nested too deep (or within itself), or is too
            large.
    """
    parts = [b"\x83"]
    try:
        elements = _write((term,), parts, DEFAULT.depth)
    except StructError:
        raise EncodeError("can't send text or bytes of more than 4 GiB") from None
    if elements > MOST_PARTS:
        raise _too_many()
    encoded = b"".join(parts)
    if len(encoded) > LARGEST:
        raise EncodeError(
            f"can't send a term of {len(encoded):,} bytes, more than {LARGEST:,}; send it in pieces"
        )
    return encoded


def _write(items: Any, parts: list[bytes], depth: int) -> int:
    """Append each item, nested at most `depth` deep; return how many terms these are."""
    if depth < 0:
        raise EncodeError(
            f"can't send a term that is nested more than {DEFAULT.depth} deep, or within itself; use a flatter one"
        )
    count = len(items)
    if count > MOST_PARTS or len(parts) > 2 * MOST_PARTS:
        raise _too_many()
    for item in items:
        kind = type(item)
        if kind is str:
            known = _texts.get(item)
            parts.append(_text(item) if known is None else known)
        elif kind is int:
            number: int = item
            parts.append(_SMALL[number] if 0 <= number < 256 else _integer(number))
        elif kind is Atom:
            parts.append(item.encoded)
        elif kind is tuple:
            size = len(item)
            parts.append(_TUPLES[size] if size < 256 else _pack_head(105, size))
            if size:
                count += _write(item, parts, depth - 1)
        elif kind is list:
            if item:
                size = len(item)
                parts.append(_LISTS[size] if size < 256 else _pack_head(108, size))
                count += _write(item, parts, depth - 1)
            parts.append(b"j")
        elif kind is bool:
            parts.append(_TRUE if item else _FALSE)
        elif kind is Pid:
            try:
                known = _pids.get(item)
            except TypeError:
                known = None
            parts.append(_pid(item) if known is None else known)
        elif item is None:
            parts.append(_UNDEFINED)
        else:
            count += _write_other(item, parts, depth)
    return count


def _write_other(item: Any, parts: list[bytes], depth: int) -> int:
    """Append an item of a less frequent type; return how many terms are in it."""
    kind = type(item)
    if kind is bytes:
        parts.append(_pack_head(77, len(item)) + (b"\x08" if item else b"\x00") + item)
    elif kind is float:
        if not isfinite(item):
            raise EncodeError(f"can't send {item!r}, which Erlang lacks; send an atom instead")
        parts.append(_pack_float(70, item))
    elif kind is dict:
        parts.append(_pack_head(116, len(item)))
        if item:
            return _write([part for pair in item.items() for part in pair], parts, depth - 1)
    elif kind is Reference:
        parts.append(_reference(item))
    elif kind is Term:
        parts.append(item.encoded)
    elif kind is ImproperList:
        items, tail = item
        if type(items) is not tuple or not items or type(tail) in (list, ImproperList):
            raise EncodeError(
                f"an improper list needs a tuple of items and a tail that is not a list, not {item!r}"
            )
        parts.append(_pack_head(108, len(items)))
        return _write((*items, tail), parts, depth - 1)
    else:
        raise EncodeError(
            f"can't send a {kind.__qualname__}: {shown(item)}; use a number, text, bytes, an "
            "Atom, a tuple, list or dict, a Pid or a Reference"
        )
    return 0


def _too_many() -> EncodeError:
    return EncodeError(f"can't send a term of more than {MOST_PARTS:,} parts; send it in pieces")


def _text(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"can't send text with surrogates: {text!r:.100}") from None
    encoded = _pack_head(109, len(data)) + data
    if len(text) <= CACHED_LENGTH:
        if len(_texts) >= CACHED:
            _texts.clear()
        _texts[text] = encoded
    return encoded


def _integer(number: int) -> bytes:
    if -0x80000000 <= number < 0x80000000:
        return _pack_int(98, number)
    size = (number.bit_length() + 7) >> 3
    if size <= 8 and number > 0:
        return _pack_big(110, size, 0, number)[: 3 + size]
    if size > DEFAULT.integer_bytes:
        raise EncodeError(
            f"can't send an integer of {size} bytes, more than {DEFAULT.integer_bytes}; send it as bytes"
        )
    head = bytes((110, size, number < 0)) if size < 256 else _large(size, number < 0)
    return head + abs(number).to_bytes(size, "little")


def _large(size: int, negative: bool) -> bytes:
    return _pack_head(111, size) + (b"\x01" if negative else b"\x00")


def _pid(pid: Any) -> bytes:  # a `Pid`, but its fields may be anything
    number, node, creation = pid
    if not (_bits(number, 64) and _bits(creation, 32)):
        raise EncodeError(
            f"a pid must have a number of 64 bits and a creation of 32, not {tuple(pid)!r}"
        )
    encoded = b"X" + _node(node) + _pack_pid(number & 0xFFFFFFFF, number >> 32, creation)
    if len(_pids) >= CACHED:
        _pids.clear()
    _pids[pid] = encoded
    return encoded


def _reference(reference: Any) -> bytes:  # likewise
    node, creation, words = reference
    numbers = (creation, *words) if type(words) is tuple else ()
    is_whole = {*map(type, numbers)} == {int} and min(numbers) >= 0 and max(numbers) < 1 << 32
    if not (is_whole and 2 <= len(numbers) <= 6):
        raise EncodeError(
            f"a reference must have a creation and 1 to 5 words of 32 bits, not {tuple(reference)!r}"
        )
    return _pack_reference(90, len(words)) + _node(node) + _pack_words[len(words)](*numbers)


def _bits(number: Any, bits: int) -> bool:
    return type(number) is int and 0 <= number < 1 << bits


def _node(name: Any) -> bytes:
    if type(name) is not str or not 0 < len(name) <= LONGEST_ATOM:
        raise EncodeError(
            f"a node's name must be text of 1 to {LONGEST_ATOM} characters, not {name!r}"
        )
    try:
        return Atom(name).encoded
    except MisuseError as error:
        raise EncodeError(f"can't send the name of a node: {error}") from error


def _size_in_id(term: Term) -> int:
    """The size of a term in a lock id; too large if its depth or its number of elements is.

    An id is sent on in messages that have their own limits.
    """
    try:
        decode_from(b"\x83" + term.encoded, 0, Limits(DEEPEST, MOST_ELEMENTS))
    except DecodeError:
        return LARGEST_ID + 1
    return len(term.encoded)


keep_values(Term, _size_in_id)  # lock ids of Erlang nodes have them as elements
