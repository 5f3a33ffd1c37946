"""Messages about tunnels: byte streams between two nodes through a third one, the *relay*.

The *opener* is the node that requests the tunnel, to the *target*. A tunnel is identified by the
opener's name and a number that the opener has chosen. Ends and relay exchange the same messages in
both directions. The relay passes on to the other end all messages that are not for itself.

| Message | Sent first by | Meaning |
|---|---|---|
| `Open` | the opener | a request for a stream to the target |
| `Opened` | the relay, to the opener | the target was notified |
| `Data` | both ends | bytes, within the credit |
| `Credit` | both ends | this number of bytes was taken in, and as many may follow |
| `Close` | both ends, and the relay | the tunnel does not exist, or no longer |

They are sent to processes with these names: `RELAY` at a relay, `TUNNELS` at an end. A relay that
is not connected with the target opens the tunnel, in the opener's name, at another relay that is.
To that relay, the first one is an end. All messages are checked when they arrive.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, get_args

from msgspec import Meta

from locks.otp.bytes import etf
from locks.otp.bytes.control import StrangeMessage
from locks.otp.bytes.fields import BadMessage, Form, Forms, brief, tag_of
from locks.otp.bytes.terms import Atom
from locks.ranges import LONGEST_TEXT, Name, Number, Text

__all__ = [
    "ABSENT",
    "CHUNK",
    "NARROW",
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
WINDOW = 64 * 1024  # bytes of one tunnel that may be in flight in each direction
NARROW = 16 * 1024  # likewise for a narrow tunnel
CHUNK = 16 * 1024  # bytes in one message
ABSENT = "it is not connected to the relay"  # the usual reason why a relay does not lead to a node


Bytes = Annotated[bytes, Meta(max_length=CHUNK)]


class Open(NamedTuple):
    """The opener requests a stream to the target.

    Attributes:
        narrow: Whether it is for messages of agents only (`locks.otp.tunnel.channels`).
        far: Whether to use a second relay, because the target is connected with none of the
            opener's.
    """

    opener: Name
    number: Number
    target: Name
    narrow: bool = False
    far: bool = False


class Opened(NamedTuple):
    """The target was notified of the opener's request."""

    opener: Name
    number: Number


class Data(NamedTuple):
    """Bytes from one end for the other."""

    opener: Name
    number: Number
    data: Bytes


class Credit(NamedTuple):
    """One end has taken in this number of bytes, so as many may follow."""

    opener: Name
    number: Number
    size: Annotated[int, Meta(ge=1, le=WINDOW)]


class Close(NamedTuple):
    """The tunnel does not exist, or no longer."""

    opener: Name
    number: Number
    reason: Text


Message = Open | Opened | Data | Credit | Close

# Bytes that are valid text would arrive as text; this byte in front prevents it.
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
    """The bytes of a message's term; a long reason is cut."""
    if isinstance(message, Close):
        message = message._replace(reason=message.reason[:LONGEST_TEXT])
    return etf.encode(_PACK[type(message)](message))


def unpack(term: Any) -> Message:
    """The message of a term.

    Raises:
        StrangeMessage: It is none of these messages.
        BadMessage: A field is wrong.
    """
    if type(term) is not tuple or not term or type(term[0]) is not Atom or term[0] not in _UNPACK:
        raise StrangeMessage(f"{brief(term)} is not about a tunnel")
    made: Message = _UNPACK[term[0]](term)
    return made
