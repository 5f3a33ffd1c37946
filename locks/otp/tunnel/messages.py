"""What nodes say to each other about tunnels: byte streams between two nodes by way of a third one, the *relay*.

The *opener* is the node that wants to be connected, the *target* the one it wants. A tunnel is known by the
opener's name and a number that the opener has given. Both ends say the same messages to the relay as the relay
says to them; that which is not for the relay itself it passes on to the other end.

| Message | Who says it first | Means |
|---|---|---|
| `Open` | the opener | I want a stream to the target |
| `Opened` | the relay, to the opener | the target was told so |
| `Data` | both | bytes; no more than there is credit for |
| `Credit` | both | so many bytes were taken in: as many may follow |
| `Close` | both, and the relay | there is no such tunnel, or no more |

They are sent to processes with these names: `RELAY` at a relay, `TUNNELS` at an end. All of it is checked when it
arrives.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, get_args

from locks.otp.bytes import etf
from locks.otp.bytes.control import StrangeMessage
from locks.otp.bytes.fields import BadMessage, Form, Forms, brief, tag_of
from locks.otp.bytes.terms import Atom
from locks.ranges import LONGEST_TEXT, Name, Number, Range, Size, Text

__all__ = [
    "ABSENT",
    "CHUNK",
    "RELAY",
    "TUNNELS",
    "WINDOW",
    "Close",
    "Credit",
    "Data",
    "Message",
    "Open",
    "Opened",
    "encode",
    "unpack",
]

RELAY = "locks_relay"
TUNNELS = "locks_tunnels"
WINDOW = 64 * 1024  # bytes of one tunnel, each way, that may be on their way
CHUNK = 16 * 1024  # bytes in one message
ABSENT = "it is not connected to the relay"  # why a relay does not lead to a node, as a rule


Bytes = Annotated[bytes, Size(CHUNK)]


class Open(NamedTuple):
    """The opener wants a stream to the target."""

    opener: Name
    number: Number
    target: Name


class Opened(NamedTuple):
    """The target was told that somebody wants a stream to it."""

    opener: Name
    number: Number


class Data(NamedTuple):
    """Bytes from one end for the other."""

    opener: Name
    number: Number
    data: Bytes


class Credit(NamedTuple):
    """One end has taken so many bytes in; so as many may follow."""

    opener: Name
    number: Number
    size: Annotated[int, Range(1, WINDOW)]


class Close(NamedTuple):
    """There is no such tunnel, or no more."""

    opener: Name
    number: Number
    reason: Text


Message = Open | Opened | Data | Credit | Close

# Bytes that are text would become text on their way; with this byte in front they are not.
_NO_TEXT = b"\xff"


def _unpack_bytes(term: Any) -> bytes:
    if type(term) is not bytes or term[:1] != _NO_TEXT or not 1 < len(term) <= CHUNK + 1:
        raise BadMessage(f"{brief(term)} is not 1 to {CHUNK} bytes of a tunnel")
    return term[1:]


_FORMS = Forms({Bytes: Form(lambda data: _NO_TEXT + data, _unpack_bytes)})
_TAGS = {kind: Atom(tag_of(kind)) for kind in get_args(Message)}
_PACK = {kind: _FORMS.message(kind, tag).pack for kind, tag in _TAGS.items()}
_UNPACK = {tag: _FORMS.message(kind, tag).unpack for kind, tag in _TAGS.items()}


def encode(message: Message) -> bytes:
    """The bytes of the term of a message; what is too long of a reason is cut."""
    if isinstance(message, Close):
        message = message._replace(reason=message.reason[:LONGEST_TEXT])
    return etf.encode(_PACK[type(message)](message))


def unpack(term: Any) -> Message:
    """What a term says.

    Raises:
        StrangeMessage: It is none of these messages.
        BadMessage: A field is not what it must be.
    """
    if type(term) is not tuple or not term or type(term[0]) is not Atom or term[0] not in _UNPACK:
        raise StrangeMessage(f"{brief(term)} is not about a tunnel")
    made: Message = _UNPACK[term[0]](term)
    return made
