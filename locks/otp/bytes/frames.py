"""Fast packing and parsing of the two most frequent messages.

Nearly all frames of lock servers and agents are sends to a pid, or to a registered name by the same
sender. Their heads hardly change: only twelve bytes differ for a pid, and none for a name. So a
head is made once, and recognised by its bytes. The result is that of `control`; tests compare the
two.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

from locks.otp.bytes.control import Message, RegSend, Send, parse
from locks.otp.bytes.etf import encode
from locks.otp.bytes.etf_decode import DEFAULT, Limits, decode_from
from locks.otp.bytes.terms import Atom, Pid

__all__ = ["Reader", "pack_reg_send", "pack_send"]

CACHED: Final = 4096  # entries of each cache
_send_heads: Final[dict[str, bytes]] = {}  # by the node of the process
_reg_send_heads: Final[dict[tuple[Pid, str], bytes]] = {}
_pack_pid: Final = Struct(">III").pack
_unpack_pid: Final = Struct(">III").unpack_from
PID_NUMBERS: Final = 12  # bytes of a pid behind the name of its node


def pack_send(to: Pid, encoded_message: bytes) -> bytes:
    """Return the frame of a `Send`, without its length.

    Args:
        to: The process.
        encoded_message: The message in the external term format, with its version byte.

    Raises:
        EncodeError: The pid is out of range.
    """
    number, node, creation = to
    try:
        numbers = _pack_pid(number & 0xFFFFFFFF, number >> 32, creation)
    except StructError:
        return Send(to, None).pack() + encoded_message  # raises the error
    return _send_head(node) + numbers + encoded_message


def _send_head(node: str) -> bytes:
    """The beginning of all frames of `Send` to processes of a node, up to the pid's numbers."""
    head = _send_heads.get(node)
    if head is None:
        if len(_send_heads) >= CACHED:
            _send_heads.clear()
        head = _send_heads[node] = _head(Send(Pid(0, node, 0), None))[:-PID_NUMBERS]
    return head


def pack_reg_send(sender: Pid, name: Atom, encoded_message: bytes) -> bytes:
    """Return the frame of a `RegSend`, without its length.

    Args:
        sender: The process that sends.
        name: The name of the receiving process.
        encoded_message: The message in the external term format, with its version byte.

    Raises:
        EncodeError: The pid is out of range.
    """
    key = (sender, name.name)
    head = _reg_send_heads.get(key)
    if head is None:
        head = _head(RegSend(sender, name, None))
        if len(_reg_send_heads) >= CACHED:
            _reg_send_heads.clear()
        _reg_send_heads[key] = head
    return head + encoded_message


def _head(message: Send | RegSend) -> bytes:
    """The frame of a message without its content."""
    return message.pack()[: -len(encode(message.message))]


class Reader:
    """Parses the frames of one connection. A repeated head is parsed once.

    Frequent messages are made by `tuple.__new__`, because the functions of named tuples cost three
    times as much.

    Args:
        node: The receiving node.
    """

    __slots__ = ("_named", "_named_head", "_node", "_send_head")

    def __init__(self, node: str) -> None:
        self._node = node
        self._send_head = _send_head(node)
        self._named: tuple[Pid, Atom] | None = None
        self._named_head = b""

    def parse(self, frame: bytes, limits: Limits = DEFAULT) -> Message:
        """Return the message in a frame; see `parse`."""
        if frame.startswith(self._send_head):
            at = len(self._send_head) + PID_NUMBERS
            if len(frame) > at:
                message, end = decode_from(frame, at, limits)
                if end == len(frame):
                    low, high, creation = _unpack_pid(frame, at - PID_NUMBERS)
                    to = tuple.__new__(Pid, (high << 32 | low, self._node, creation))
                    return tuple.__new__(Send, (to, message))
        elif self._named is not None and frame.startswith(self._named_head):
            message, end = decode_from(frame, len(self._named_head), limits)
            if end == len(frame):
                return tuple.__new__(RegSend, (*self._named, message))
        found = parse(frame, limits)
        if type(found) is RegSend:
            head = pack_reg_send(found.sender, found.name, b"")
            if frame.startswith(head):  # other encodings are possible
                self._named, self._named_head = (found.sender, found.name), head
        return found
