"""The same bytes, and a real Erlang/OTP at the other end."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from locks.otp.control import (
    DemonitorP,
    Exit,
    Exit2,
    Link,
    MonitorP,
    MonitorPExit,
    RegSend,
    Send,
    SendSender,
    SpawnReply,
    SpawnRequest,
    UnlinkId,
    UnlinkIdAck,
    Unsupported,
    parse,
)
from locks.otp.epmd import (
    NotRegistered,
    Refused,
    alive2_request,
    names_request,
    parse_alive2_response,
    parse_names_response,
    parse_port2_response,
    port_please2_request,
)
from locks.otp.etf import decode, encode
from locks.otp.handshake import (
    MANDATORY,
    Established,
    Failed,
    Flag,
    Handshake,
    Named,
    Peer,
    Send as SendBytes,
)
from locks.otp.terms import Atom, ImproperList, Pid, Reference, Term
from tests.helpers import eventually
from tests.otp.erlang import COOKIE, ERLANG, MISSING, Erlang, erlang_node, port_mapper
from tests.otp.strategies import TERMS, exact

pytestmark = pytest.mark.skipif(not ERLANG, reason=MISSING)

MANY = settings(max_examples=max(200, settings().max_examples))


@pytest.fixture(scope="module")
def erlang() -> Iterator[Erlang]:
    """An Erlang that calls functions."""
    with closing(Erlang()) as found:
        yield found


# --- Terms --------------------------------------------------------------------------------------

# What Erlang says that a term is, in its own words.
SAME = [
    (0, "0"),
    (-(2**31), "-2147483648"),
    (2**64, "18446744073709551616"),
    (-(3**5000), "-" + str(3**5000 % 10**4000).zfill(0) if False else "-(" + "*".join(["3"] * 5000) + ")"),
    (1.5, "1.5"),
    (-1e300, "-1.0e300"),
    (True, "true"),
    (None, "undefined"),
    (Atom("write"), "write"),
    (Atom("ö €"), "'ö €'"),
    (Atom(""), "''"),
    ("text", '<<"text">>'),
    ("ö", '<<"ö"/utf8>>'),
    ("", "<<>>"),
    (b"text", '<<"text">>'),
    (b"\xff\x00", "<<255,0>>"),
    (b"", "<<>>"),
    ((), "{}"),
    ((1, (2,)), "{1,{2}}"),
    ((7,) * 300, "list_to_tuple(lists:duplicate(300, 7))"),
    ([], "[]"),
    ([1, 2, 300], "[1,2,300]"),
    ([97, 98], '"ab"'),
    (ImproperList((1, 2), 3), "[1,2|3]"),
    ({}, "#{}"),
    ({"k": 1, (1, 2): [None]}, '#{<<"k">> => 1, {1,2} => [undefined]}'),
    ({Term(b"k\0\2ab"): 1}, '#{"ab" => 1}'),
]


@pytest.mark.parametrize(("term", "expression"), SAME, ids=[text[:30] for _, text in SAME])
def test_erlang_takes_a_term_for_the_same(erlang: Erlang, term: Any, expression: str) -> None:
    """What we encode is exactly what Erlang writes so (`=:=`)."""
    written = f"(binary_to_term(<<{','.join(map(str, encode(term)))}>>)) =:= ({expression})"
    assert erlang.evaluate(written) is True


def as_erlang_has_it(term: Any) -> Any:
    """What becomes of a term on the way through Erlang: bytes that are text become text."""
    if isinstance(term, bytes):
        try:
            return term.decode()
        except UnicodeDecodeError:
            return term
    if isinstance(term, list):
        return [as_erlang_has_it(each) for each in term]
    if isinstance(term, dict):
        return {as_erlang_has_it(key): as_erlang_has_it(each) for key, each in term.items()}
    if isinstance(term, ImproperList):
        return ImproperList(as_erlang_has_it(term.items), as_erlang_has_it(term.tail))
    if type(term) is tuple:
        return tuple([as_erlang_has_it(each) for each in term])
    return 0.0 if term == 0.0 and isinstance(term, float) else term
