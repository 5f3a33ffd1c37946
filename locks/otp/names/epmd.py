"""Requests to epmd, Erlang's port mapper, and its answers.

epmd knows the ports of the nodes on its host. A node registers with `ALIVE2_REQ`, and stays
registered as long as that connection lasts. Another node requests its port with `PORT_PLEASE2_REQ`.
This module only makes and parses bytes. A parser takes all bytes received so far, and returns
`None` while some are missing.

epmd knows nodes by the part of their name before the `@`.

Source: ERTS user's guide, "Distribution Protocol", "EPMD Protocol".
"""

from __future__ import annotations

from struct import pack, unpack_from

from locks.errors import InvalidOption, OperatingError
from locks.otp.bytes.etf_decode import DecodeError

__all__ = [
    "NotRegistered",
    "Refused",
    "alive2_request",
    "parse_alive2_response",
    "parse_port2_response",
    "port_please2_request",
]

VERSION = 6  # of the handshake: OTP 23 and newer
VISIBLE = 77
LONGEST_NAME = 255  # bytes


class Refused(OperatingError):
    """epmd refuses a request, or the requested node can't be connected to."""


class NotRegistered(Refused, ConnectionRefusedError):
    """No node of that name is registered with epmd."""


def alive2_request(name: str, port: int) -> bytes:
    """Return the request to register a node; the connection must be kept.

    Args:
        name: Its name, without the host.
        port: Where it listens.

    Raises:
        InvalidOption: No such name or port can be registered.
    """
    if type(port) is not int or not 0 < port < 65536:
        raise InvalidOption(f"a port must be a number from 1 to 65535, not {port!r}", port=port)
    text = _alive(name)
    head = pack(">BHBBHHH", 120, port, VISIBLE, 0, VERSION, VERSION, len(text))
    return _request(head + text + bytes(2))


def parse_alive2_response(data: bytes) -> int | None:
    """Return the creation that epmd has assigned, from all bytes received so far.

    Returns:
        The creation, which distinguishes the incarnations of a node; `None` while the answer is not
        complete.

    Raises:
        Refused: epmd has not registered the node, because its name is registered already.
        DecodeError: The answer is malformed.
    """
    if not data:
        return None
    if data[0] not in (118, 121):
        raise DecodeError(f"epmd must answer a registration with 118 or 121, not with {data[0]}")
    size = 6 if data[0] == 118 else 4
    if len(data) > size:
        raise DecodeError(f"epmd's answer to a registration has {size} bytes, not {len(data)}")
    if len(data) >= 2 and data[1] != 0:
        raise Refused(
            f"epmd did not register the node (result {data[1]}): a node of that name is already running, or "
            "epmd has not yet noticed its end",
            result=data[1],
        )
    if len(data) < size:
        return None
    return int.from_bytes(data[2:], "big")


def port_please2_request(name: str) -> bytes:
    """Return the request for the port of a node.

    Args:
        name: Its name, without the host.

    Raises:
        InvalidOption: No such name can be registered.
    """
    return _request(b"z" + _alive(name))


def parse_port2_response(data: bytes) -> int | None:
    """Return the port of the requested node, from all bytes received so far.

    Returns:
        The port, or `None` while the answer is not complete.

    Raises:
        NotRegistered: epmd does not know the node.
        Refused: The node has no version of the protocol in common with us, or does not use TCP.
        DecodeError: The answer is malformed.
    """
    if not data:
        return None
    if data[0] != 119:
        raise DecodeError(f"epmd must answer a look-up with 119, not with {data[0]}")
    if len(data) < 2:
        return None
    if data[1] != 0:
        raise NotRegistered(
            f"the node is not registered with epmd (result {data[1]})", result=data[1]
        )
    if len(data) < 12:
        return None
    port, _, protocol, highest, lowest, name_size = unpack_from(">HBBHHH", data, 2)
    if name_size > LONGEST_NAME:
        raise DecodeError(f"epmd's answer has a name of {name_size} bytes")
    place = 12 + name_size
    if len(data) < place + 2:
        return None
    end = place + 2 + unpack_from(">H", data, place)[0]
    if len(data) > end:
        raise DecodeError(f"{len(data) - end} bytes follow epmd's answer to a look-up")
    if not lowest <= VERSION <= highest:
        raise Refused(
            f"the node uses the versions {lowest} to {highest} of the handshake, but we use "
            f"{VERSION}: OTP 23 or newer is needed",
            lowest=lowest,
            highest=highest,
        )
    if protocol != 0:
        raise Refused(f"the node uses the protocol {protocol}, not TCP (0)", protocol=protocol)
    if port == 0:
        raise DecodeError("epmd's answer has the port 0")
    return port if len(data) == end else None


def _alive(name: str) -> bytes:
    """Return the bytes of a name that can be registered."""
    text = name.encode(errors="replace") if isinstance(name, str) else b""
    if not 0 < len(text) <= LONGEST_NAME or "@" in name or not name.isprintable() or " " in name:
        raise InvalidOption(
            f"epmd needs the part of a name before the @: 1 to {LONGEST_NAME} bytes without "
            f"spaces, not {name!r}",
            name=name,
        )
    return text


def _request(body: bytes) -> bytes:
    return len(body).to_bytes(2, "big") + body
