"""Control messages: the messages between connected nodes.

A frame consists of its length in four bytes, the byte 112 (pass through), a control term with the
operation, and for some operations a message term. There is no distribution header, because we offer
neither the atom cache nor fragments (`handshake.FLAGS`). An empty frame is a tick, and is not
parsed here.

`parse` checks the type of each field, so the code that gets a message can rely on it. An operation
that we don't offer becomes `Unsupported`. Only a frame that is no control message raises
`DecodeError`. A node sends variants with a trace token (`SEND_TT` and so on) while one of its
processes is traced. They are parsed, and the token is dropped.

| Operation | Class | | Operation | Class |
|---|---|---|---|---|
| 1 | `Link` | | 21 | `MonitorPExit` |
| 2, 12 | `Send` | | 22, 23 | `SendSender` |
| 3, 13 | `Exit` | | 35 | `UnlinkId` |
| 6, 16 | `RegSend` | | 36 | `UnlinkIdAck` |
| 8, 18 | `Exit2` | | | |
| 19 | `MonitorP` | | | |
| 20 | `DemonitorP` | | | |

Exits with a payload (24 to 28) and sends to an alias (33, 34) are sent only to nodes that offer
`DFLAG_EXIT_PAYLOAD` and `DFLAG_ALIAS`; the old unlink (4) only to nodes that don't offer
`DFLAG_UNLINK_ID`, and we do.

Source: ERTS user's guide, "Distribution Protocol", "Protocol between Connected Nodes".
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from locks.errors import OperatingError
from locks.lock_ids import shown
from locks.otp.bytes.etf import encode
from locks.otp.bytes.etf_decode import DEFAULT, DecodeError, Limits, decode_from, decode_slowly
from locks.otp.bytes.terms import Atom, Pid, Reference

__all__ = [
    "BadMessage",
    "DemonitorP",
    "Exit",
    "Exit2",
    "Link",
    "Message",
    "MonitorP",
    "MonitorPExit",
    "RegSend",
    "Send",
    "SendSender",
    "StrangeMessage",
    "UnlinkId",
    "UnlinkIdAck",
    "Unsupported",
    "brief",
    "check_ends",
    "check_speaker",
    "parse",
    "parse_slowly",
]

BRIEF: Final = 200  # characters of another node's data that an error shows


class BadMessage(OperatingError):
    """Another node has sent a message with a wrong field, or in the name of another node."""


class StrangeMessage(BadMessage):
    """Another node has sent a message of an unknown kind. This is no fault."""


def brief(term: Any) -> str:
    """A term, cut, as an error shows it."""
    # A named tuple becomes a tuple: it would be shown whole.
    return shown(tuple(term) if isinstance(term, tuple) else term)[:BRIEF]


PASS_THROUGH: Final = b"p"
UNUSED: Final = Atom("")


class Link(NamedTuple):
    """`sender` links itself to `to`."""

    sender: Pid
    to: Pid

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((1, *self))


class Send(NamedTuple):
    """A message to a process."""

    to: Pid
    message: Any

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((2, UNUSED, self.to)) + encode(self.message)


class SendSender(NamedTuple):
    """A message to a process, with its sender."""

    sender: Pid
    to: Pid
    message: Any

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((22, self.sender, self.to)) + encode(self.message)


class RegSend(NamedTuple):
    """A message to a process that is registered by a name."""

    sender: Pid
    name: Atom
    message: Any

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((6, self.sender, UNUSED, self.name)) + encode(self.message)


class Exit(NamedTuple):
    """A link has ended, because `sender` has ended."""

    sender: Pid
    to: Pid
    reason: Any

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((3, *self))


class Exit2(NamedTuple):
    """`sender` makes `to` exit, as by `exit/2`."""

    sender: Pid
    to: Pid
    reason: Any

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((8, *self))


class UnlinkId(NamedTuple):
    """`sender` ends a link.

    Attributes:
        id: 1 to 2**64 - 1; repeated in the `UnlinkIdAck`.
        sender: The process that ends the link.
        to: The other process. What it sent before its acknowledgement may still arrive.
    """

    id: int
    sender: Pid
    to: Pid

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((35, *self))


class UnlinkIdAck(NamedTuple):
    """The answer to `UnlinkId` by its receiver, sent before its other messages."""

    id: int
    sender: Pid
    to: Pid

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((36, *self))


class MonitorP(NamedTuple):
    """`sender` monitors `target`: a process, by its pid or its name."""

    sender: Pid
    target: Pid | Atom
    ref: Reference

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((19, *self))


class DemonitorP(NamedTuple):
    """`sender` ends a monitor."""

    sender: Pid
    target: Pid | Atom
    ref: Reference

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((20, *self))


class MonitorPExit(NamedTuple):
    """A monitored process has ended, or did not exist (reason `noproc`).

    Attributes:
        sender: The process or its name, as in `MonitorP`.
        to: The process that monitored it.
        ref: The reference of `MonitorP`.
        reason: Why it has ended.
    """

    sender: Pid | Atom
    to: Pid
    ref: Reference
    reason: Any

    def pack(self) -> bytes:
        """The frame, without its length."""
        return _pack((21, *self))


class Unsupported(NamedTuple):
    """An operation that we don't offer.

    Attributes:
        operation: Its number.
        control: The whole control term.
    """

    operation: int
    control: tuple[Any, ...]


Message = (
    Link
    | Send
    | SendSender
    | RegSend
    | Exit
    | Exit2
    | UnlinkId
    | UnlinkIdAck
    | MonitorP
    | DemonitorP
    | MonitorPExit
    | Unsupported
)

# --- Packing ------------------------------------------------------------------------------------


def _pack(control: tuple[Any, ...]) -> bytes:
    return PASS_THROUGH + encode(control)


# --- Parsing ------------------------------------------------------------------------------------


def parse(
    frame: bytes,
    limits: Limits = DEFAULT,
    decode_from: Callable[[bytes, int, Limits], tuple[Any, int]] = decode_from,
) -> Message:
    """Return the message in a frame.

    Args:
        frame: The frame, without its length; not a tick.
        limits: The limits of the control term and of the message.
        decode_from: Decodes the terms in it.

    Raises:
        DecodeError: It is not a control message: it is cut off, too long, or a part has a wrong
            type.
    """
    if frame[:1] != PASS_THROUGH:
        raise DecodeError(f"a frame begins with {frame[:1]!r} instead of b'p' (pass through)")
    control, end = decode_from(frame, 1, limits)
    if type(control) is not tuple or not control or type(control[0]) is not int:
        raise DecodeError(f"a control message must be a tuple with an operation: {brief(control)}")
    form = _FORMS.get(control[0])
    message: Message
    if form is None:
        if end < len(frame):
            _, end = decode_from(frame, end, limits)
        message = Unsupported(control[0], control)
    else:
        parts, has_message, build = form
        if len(control) != len(parts) + 1:
            raise DecodeError(f"a control message has too few or too many parts: {brief(control)}")
        fields = []
        for check, value in zip(parts, control[1:], strict=True):
            if check is not _dropped:
                fields.append(check(value))
                if fields[-1] is _WRONG:
                    raise DecodeError(f"a control message has a wrong part: {brief(control)}")
        if has_message:
            payload, end = decode_from(frame, end, limits)
            fields.append(payload)
        message = build(*fields)
    if end != len(frame):
        raise DecodeError(f"{len(frame) - end} bytes follow a control message: {brief(control)}")
    return message


def parse_slowly(frame: bytes, limits: Limits = DEFAULT) -> Generator[None, None, Message]:
    """Return the message in a large frame, as `parse` does; each `next` does a part of the work."""
    terms: dict[int, tuple[Any, int]] = {}
    at = 1
    while at < len(frame) and len(terms) < 2:  # the control term, and a message
        terms[at] = yield from decode_slowly(frame, at, limits)
        at = terms[at][1]
    return parse(frame, limits, lambda _frame, at, _limits: terms[at])


def check_ends(message: Message, peer: str, own: str) -> None:
    """Check that a message is from a process of its sender's node, and for one of this node.

    Args:
        message: The message.
        peer: The node that has sent it.
        own: This node.

    Raises:
        BadMessage: It is from a process of another node, or for one.
    """
    sender: Any = getattr(message, "sender", None)
    if type(sender) is Pid and sender.node != peer:
        raise BadMessage(f"{peer} sent a message of a process of {sender.node}: {brief(message)}")
    to: Any = message.target if isinstance(message, _OF_MONITORS) else getattr(message, "to", None)
    if type(to) is Pid and to.node != own:
        raise BadMessage(f"a message for {to.node} was sent to {own}: {brief(message)}")


def check_speaker(pid: Pid, peer: str) -> None:
    """Raise `BadMessage` unless a message's sender is a process of the node that sent the message."""
    if pid.node != peer:
        raise BadMessage(f"{peer} sent a message in the name of a process of {pid.node}")


_OF_MONITORS: Final = (MonitorP, DemonitorP)
_WRONG: Final = object()


def _pid(value: Any) -> Any:
    return value if type(value) is Pid else _WRONG


def _ref(value: Any) -> Any:
    return value if type(value) is Reference else _WRONG


def _atom(value: Any) -> Any:
    if type(value) is Atom:
        return value
    # The name may be one of the atoms that are decoded as Python values.
    if value is None or type(value) is bool:
        return Atom("undefined" if value is None else str(value).lower())
    return _WRONG


def _process(value: Any) -> Any:
    return value if type(value) is Pid else _atom(value)


def _number(value: Any) -> Any:
    return value if type(value) is int and 0 <= value < 1 << 64 else _WRONG


def _unlink_id(value: Any) -> Any:
    return _WRONG if value == 0 else _number(value)


def _any(value: Any) -> Any:
    return value


def _dropped(value: Any) -> Any:
    """A field without meaning, or a trace token."""


# For each operation: the checks of its parts, whether a message follows, and the class.
_FORMS: dict[int, tuple[tuple[Callable[[Any], Any], ...], bool, Callable[..., Message]]] = {
    1: ((_pid, _pid), False, Link),
    2: ((_dropped, _pid), True, Send),
    3: ((_pid, _pid, _any), False, Exit),
    6: ((_pid, _dropped, _atom), True, RegSend),
    8: ((_pid, _pid, _any), False, Exit2),
    12: ((_dropped, _pid, _dropped), True, Send),
    13: ((_pid, _pid, _dropped, _any), False, Exit),
    16: ((_pid, _dropped, _atom, _dropped), True, RegSend),
    18: ((_pid, _pid, _dropped, _any), False, Exit2),
    19: ((_pid, _process, _ref), False, MonitorP),
    20: ((_pid, _process, _ref), False, DemonitorP),
    21: ((_process, _pid, _ref, _any), False, MonitorPExit),
    22: ((_pid, _pid), True, SendSender),
    23: ((_pid, _pid, _dropped), True, SendSender),
    35: ((_unlink_id, _pid, _pid), False, UnlinkId),
    36: ((_unlink_id, _pid, _pid), False, UnlinkIdAck),
}
