"""What actors of different nodes say to each other: plain values and references, as bytes and back.

A message is `None`, a bool, a number, text, bytes, or a tuple, list or dictionary of these; a reference to an actor,
a greenlet or a thread; or a *letter*. All else is refused: it would arrive as something else. What MessagePack has no form for is an
extension of it: a tuple, a dictionary with keys other than text, an integer of more than 64 bits, a reference, and a letter.

A letter is a message of a closed union of Structs, such as those of elections. Its fields may be any of these values, and are checked
against its annotations when it arrives. A letter that has a `sender`, an actor or the name of a node, must come from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args

import greenlet
import msgspec
import pykka
from msgspec import Struct
from msgspec.msgpack import Ext

from locks.errors import MisuseError
from locks.lock_ids import shown
from locks.net.messages import (
    LARGEST_PAYLOAD,
    BadMessage,
    StrangeMessage,
    beginning,
    check_speaker,
    checked,
    encoded,
    integer_bytes,
    tags,
)
from locks.ranges import LONGEST_NAME, Checked, plain

__all__ = ["Reference", "Unsendable", "Values", "letters"]

DEPTH: Final = 100  # of nested values
MOST_ALIKE: Final = 100  # keys of a dictionary
MOST_PARTS: Final = 500_000  # numbers, texts, lists and so on in one value
LEAST, MOST = -(1 << 63), (1 << 64) - 1  # what MessagePack has integers for
PLAIN: Final = frozenset((str, int, float, bool, bytes, NoneType))
TUPLE, MAPPING, REFERENCE, LETTER, LARGE_INT = 1, 2, 3, 4, 5
if TYPE_CHECKING:
    Reference = pykka.ActorRef[Any]
    """An actor, here or on another node, in a field of a message."""
else:

    class Reference(metaclass=Checked):
        """An actor, here or on another node, in a field of a message."""

        kinds = pykka.ActorRef


Where = tuple[str, int | str]
"""The node of a reference, and the number or the name of the actor there."""

_name_of: dict[type[Any], str] = {}
_unions: dict[str, Any] = {}
_tags_of: dict[str, list[list[object]]] = {}
_encode: Final = msgspec.msgpack.Encoder().encode


class _Part:
    """An extension, as found in the bytes: a view of them, because a copy for each level of nested ones would take gigabytes."""

    __slots__ = ("code", "data")
    __hash__ = None  # type: ignore[assignment]  # so it is no key of a dictionary

    def __init__(self, code: int, data: memoryview) -> None:
        self.code = code
        self.data = data


_decode: Final = msgspec.msgpack.Decoder(ext_hook=_Part).decode


class Unsendable(MisuseError):
    """A message has something that can't be sent to another node."""


def letters(name: str, union: Any) -> None:
    """Let messages of a closed union be sent.

    Args:
        name: The name of the union, the same on all nodes.
        union: The union; its classes are tagged by their names.
    """
    kinds = get_args(union)
    _unions[name] = union
    _tags_of[name] = [[kind.__struct_config__.tag] for kind in kinds]
    _name_of.update(dict.fromkeys(kinds, name))


# What follows the first byte of a value: so many bytes that say how many follow these, and so many more.
_EXTENSIONS: Final = (0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8)
_AFTER: Final = {
    **{0xA0 + size: (0, size) for size in range(32)},
    **{start + log: (1 << log, start == 0xC7) for start in (0xC4, 0xC7, 0xD9) for log in range(3)},
    **{0xD4 + log: (0, 1 + (1 << log)) for log in range(5)},
    **{start + log: (0, 1 << log) for start in (0xCC, 0xD0) for log in range(4)},
    **{0xCA: (0, 4), 0xCB: (0, 8), 0xDC: (0, 2), 0xDD: (0, 4), 0xDE: (0, 2), 0xDF: (0, 4)},
}


def parts_left(data: memoryview, most: int) -> int:
    """How many parts less than `most` the bytes of a value have; stops below 0.

    A decoder that made them first would take gigabytes, and seconds of the turn.
    """
    at, end = 0, len(data)
    while at < end and most >= 0:
        most -= 1
        digits, more = _AFTER.get(data[at], (0, 0))
        size = at + 1 + digits
        after = size + more + int.from_bytes(data[at + 1 : size], "big")
        if data[at] in _EXTENSIONS and data[size : size + 1] != _LARGE:
            most = parts_left(data[size + 1 : after], most)
        at = after
    return most


_LARGE: Final = bytes((LARGE_INT,))


class Values:
    """Packs and unpacks values for one node. In its turn.

    Args:
        where: Tells where others find an actor, a greenlet or a thread.
        ref: Makes a reference to what is there.
    """

    def __init__(self, where: Callable[[Any], Where], ref: Callable[[str, int | str], Any]) -> None:
        self._where = where
        self._ref = ref
        self._encode = msgspec.msgpack.Encoder(enc_hook=self._references).encode
        self._speaker = ""  # the node whose value is unpacked

    def pack(self, value: Any) -> bytes:
        """The bytes of a value.

        Raises:
            Unsendable: It can't be sent.
        """
        try:
            packed = _encode(self._plain(value, DEPTH))
        except UnicodeEncodeError as error:
            raise Unsendable(f"{shown(value)} can't be sent to another node: {error}") from None
        if len(packed) > MOST_PARTS and parts_left(memoryview(packed), MOST_PARTS) < 0:
            raise Unsendable(
                f"{shown(value)} has more than {MOST_PARTS:,} parts, the most that can be sent to another node; send it in several messages, or "
                "as bytes"
            )
        if len(packed) > LARGEST_PAYLOAD:
            raise Unsendable(
                f"{shown(value)} takes {len(packed):,} bytes; at most {LARGEST_PAYLOAD:,} can be sent to another node"
            )
        return packed

    def unpack(self, data: bytes, speaker: str) -> Any:
        """The value that the bytes of another node stand for.

        Raises:
            BadMessage: They stand for none, or for a letter of a third node.
            `StrangeMessage`, which is one: a letter of a kind that is not known here.
        """
        self._speaker = speaker
        try:
            if len(data) > MOST_PARTS and parts_left(memoryview(data), MOST_PARTS) < 0:
                raise BadMessage(f"a value has more than {MOST_PARTS:,} parts")
            return self._value(_decode(data))
        except BadMessage:
            raise
        except (ValueError, TypeError, RecursionError) as error:
            raise BadMessage(f"a value can't be read: {plain(str(error))}") from None

    def encode(self, message: Struct) -> bytes:
        """The bytes of a message of a closed union, whose references have the type `Reference`."""
        return self._encode(message)

    def decoder(self, union: Any) -> Callable[[bytes], Any]:
        """Returns the message of a closed union in bytes; raises `StrangeMessage` or `BadMessage` like `decode` of frames."""
        kinds = tags(union)
        decode = msgspec.msgpack.Decoder(union, dec_hook=self._reference).decode

        def decode_message(data: bytes) -> Any:
            try:
                return decode(data)
            except (ValueError, RecursionError) as error:
                found = beginning(data)
                if found is not None and found.kind not in kinds:
                    raise StrangeMessage(f"there is no message {shown(found.kind)}") from None
                raise BadMessage(plain(str(error))) from None

        return decode_message

    def _references(self, value: Any) -> Any:
        return self._where(value) if isinstance(value, pykka.ActorRef) else encoded(value)

    def _reference(self, kind: Any, value: Any) -> Any:
        if kind is not Reference:
            return checked(kind, value)
        node, target = value
        right = type(target) is int and 0 <= target <= MOST
        right = right or (type(target) is str and len(target) <= LONGEST_NAME)
        if not right or type(node) is not str or len(node) > LONGEST_NAME:
            raise ValueError("a reference is wrong")  # a message to it would be refused by its node
        return self._ref(node, target)

    def _plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in PLAIN:
            if kind is int and not LEAST <= value <= MOST:
                return Ext(LARGE_INT, integer_bytes(value))
            return value
        if not depth:
            raise Unsendable(
                f"{shown(value)} is nested too deep, or within itself; send a flatter value"
            )
        depth -= 1
        if kind is list:
            return [self._plain(each, depth) for each in value]
        if kind is tuple:
            return Ext(TUPLE, _encode([self._plain(each, depth) for each in value]))
        if kind is dict:
            if all(type(key) is str for key in value):
                return {key: self._plain(each, depth) for key, each in value.items()}
            pairs = [self._plain(each, depth) for pair in value.items() for each in pair]
            return Ext(MAPPING, _encode(pairs))
        if kind in _name_of:
            fields = [self._plain(each, depth) for each in msgspec.structs.astuple(value)]
            return Ext(LETTER, _encode([_name_of[kind], kind.__struct_config__.tag, *fields]))
        if isinstance(value, (pykka.ActorRef, greenlet.greenlet, threading.Thread)):
            return Ext(REFERENCE, _encode(self._where(value)))
        raise Unsendable(
            f"{shown(value)} can't be sent to another node: send None, bool, int, float, str, bytes, a tuple, list or dict of these, "
            "or a reference to an actor"
        )

    def _value(self, found: Any) -> Any:
        """The value of what was decoded. No extension was a key of a dictionary yet: many keys with one hash would take hours."""
        kind = type(found)
        if kind is list:
            return [each if type(each) in PLAIN else self._value(each) for each in found]
        if kind is dict:
            return {key: self._value(each) for key, each in found.items()}
        return self._extension(found.code, found.data) if kind is _Part else found

    def _extension(self, code: int, data: memoryview) -> Any:
        if code == LARGE_INT:
            return int.from_bytes(data, "big", signed=True)
        parts = self._value(_decode(data))
        if code == REFERENCE:
            return self._reference(Reference, parts)
        if type(parts) is not list:
            raise ValueError(f"extension {code} should be an array")
        if code == TUPLE:
            return tuple(parts)
        if code == MAPPING:
            keys = parts[::2]
            if len(keys) - len(set(map(hash, keys))) > MOST_ALIKE:
                raise ValueError(f"more than {MOST_ALIKE} keys of a map have the same hash")
            return dict(zip(keys, parts[1::2], strict=True))
        if code == LETTER:
            name, *letter = parts
            if name not in _unions or letter[:1] not in _tags_of[name]:
                raise StrangeMessage(f"there is no message {shown(parts[:2])}")
            return self._checked_sender(msgspec.convert(letter, _unions[name]))
        raise ValueError(f"there is no extension {code}")

    def _checked_sender(self, letter: Any) -> Any:
        """The letter, if its sender is of the node that speaks; nobody passes letters on."""
        sender = getattr(letter, "sender", None)
        if sender is not None:
            check_speaker(sender if type(sender) is str else self._where(sender)[0], self._speaker)
        return letter
