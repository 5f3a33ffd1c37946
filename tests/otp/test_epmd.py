"""Requests to Erlang's port mapper, and its answers in pieces of any size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.errors import OperatingError
from locks.otp.bytes.etf import DecodeError
from locks.otp.names.epmd import (
    NotRegistered,
    Refused,
    alive2_request,
    parse_alive2_response,
    parse_port2_response,
    port_please2_request,
)

# Port 40000, visible, TCP, versions 6 to 6, the name "a", and three extra bytes.
PORT2 = b"\x77\x00\x9c\x40\x4d\x00\x00\x06\x00\x06\x00\x01a\x00\x03xyz"


def test_requests() -> None:
    """Requests are as documented, with their length in front."""
    alive = b"\x00\x0f\x78\x9c\x40\x4d\x00\x00\x06\x00\x06\x00\x02ab\x00\x00"
    assert alive2_request("ab", 40000) == alive
    assert port_please2_request("ab") == b"\x00\x03zab"


@pytest.mark.parametrize(
    ("parse", "data", "found"),
    [
        (parse_alive2_response, b"\x76\x00\x12\x34\x56\x78", 0x12345678),
        (parse_alive2_response, b"\x79\x00\x00\x03", 3),
        (parse_port2_response, PORT2, 40000),
        (parse_port2_response, PORT2[:6] + b"\x00\x09\x00\x05\x00\x00\x00\x00", 40000),
    ],
)
def test_answers_in_pieces(parse: Callable[[bytes], int | None], data: bytes, found: int) -> None:
    """An answer says nothing until it is complete; one byte too many is no answer."""
    assert [parse(data[:end]) for end in range(len(data))] == [None] * len(data)
    assert parse(data) == found
    with pytest.raises(DecodeError):
        parse(data + b"x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (PORT2[:6] + b"\x00\x05\x00\x05" + PORT2[10:], "the versions 5 to 5"),
        (PORT2[:6] + b"\x00\x08\x00\x07" + PORT2[10:], "the versions 7 to 8"),
        (PORT2[:5] + b"\x02" + PORT2[6:], "the protocol 2, not TCP"),
    ],
)
def test_a_node_that_we_cannot_talk_to(data: bytes, message: str) -> None:
    """A node of another version, or one that does not use TCP, is refused with the reason."""
    with pytest.raises(Refused, match=message) as caught:
        parse_port2_response(data)
    assert not isinstance(caught.value, NotRegistered)


@pytest.mark.parametrize(
    ("parse", "data"),
    [
        (parse_alive2_response, b"\x77"),
        (parse_port2_response, b"\x76"),
        (parse_port2_response, PORT2[:10] + b"\x01\x00"),
        (parse_port2_response, PORT2[:2] + b"\x00\x00" + PORT2[4:]),
    ],
)
def test_answers_that_are_none(parse: Callable[[bytes], int | None], data: bytes) -> None:
    """What no epmd answers is a failure of whoever listens there, as soon as it shows."""
    with pytest.raises(DecodeError):
        parse(data)


@given(st.binary(max_size=40))
def test_garbage_raises_only_errors_of_ours(data: bytes) -> None:
    """Whatever listens on epmd's port, nothing but an `OperatingError` comes of it."""
    for parse in (parse_alive2_response, parse_port2_response):
        for start in (b"", b"\x76", b"\x77\x00", bytes(4)):
            try:
                parse(start + data)
            except OperatingError:
                continue
