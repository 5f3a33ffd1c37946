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

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from locks.otp import etf
from locks.otp.control import BadMessage, StrangeMessage, brief
from locks.otp.terms import Atom
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
ABSENT = "it is not connected there"  # why a relay does not lead to a node, as a rule


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
    data: Annotated[bytes, Size(CHUNK)]


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


def _check_text(size: Size) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not str or len(value) > size.most:
            raise BadMessage(f"{brief(value)} is not text of at most {size.most} characters")
        return value

    return check


def _check_number(bound: Range) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not int or not bound.least <= value <= bound.most:
            raise BadMessage(f"{brief(value)} is not a whole number {bound}")
        return value

    return check


def _check_bytes(size: Size) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not bytes or value[:1] != _NO_TEXT or not 1 < len(value) <= size.most + 1:
            raise BadMessage(f"{brief(value)} is not 1 to {size.most} bytes of a tunnel")
        return value[1:]

    return check


def _check(kind: Any) -> Callable[[Any], Any]:
    """The check of a field, by its annotation."""
    assert get_origin(kind) is Annotated, "a field needs a bound"
    base, bound = get_args(kind)[:2]
    if base is int:
        return _check_number(bound)
    return _check_text(bound) if base is str else _check_bytes(bound)


_KINDS: dict[Any, tuple[Any, list[Callable[[Any], Any]]]] = {
    Atom(kind.__name__.lower()): (
        kind,
        [_check(each) for each in get_type_hints(kind, include_extras=True).values()],
    )
    for kind in get_args(Message)
}
_TAGS = {kind: tag for tag, (kind, _) in _KINDS.items()}


def encode(message: Message) -> bytes:
    """The bytes of the term of a message; what is too long of a reason is cut."""
    fields: list[Any] = list(message)
    if isinstance(message, Data):
        fields[2] = _NO_TEXT + message.data
    elif isinstance(message, Close):
        fields[2] = message.reason[:LONGEST_TEXT]
    return etf.encode((_TAGS[type(message)], *fields))


def unpack(term: Any) -> Message:
    """What a term says.

    Raises:
        StrangeMessage: It is none of these messages.
        BadMessage: A field is not what it must be.
    """
    if type(term) is not tuple or not term or type(term[0]) is not Atom or term[0] not in _KINDS:
        raise StrangeMessage(f"{brief(term)} is not about a tunnel")
    kind, checks = _KINDS[term[0]]
    if len(term) != len(checks) + 1:
        raise BadMessage(f"{brief(term)} should have {len(checks) + 1} parts")
    made: Message = kind(*[check(value) for check, value in zip(checks, term[1:], strict=True)])
    return made
