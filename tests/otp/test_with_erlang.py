"""The same bytes, and a real Erlang/OTP at the other end."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from hypothesis import assume, given, settings

from locks.otp.admission.handshake import (
    FLAGS,
    MANDATORY,
    Established,
    Failed,
    Flag,
    Handshake,
    Named,
    Peer,
    Status,
)
from locks.otp.admission.handshake import Send as Bytes
from locks.otp.bytes.control import (
    RegSend,
    Send,
    SendSender,
    parse,
)
from locks.otp.bytes.etf import encode
from locks.otp.bytes.terms import Atom, ImproperList, Pid, Reference, Term
from locks.otp.names.epmd import (
    NotRegistered,
    alive2_request,
    parse_alive2_response,
    parse_port2_response,
    port_please2_request,
)
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
    (1 - 2**8000, "1 - (1 bsl 8000)"),
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


@pytest.mark.parametrize(
    "expression",
    [
        *("make_ref()", "self()", "fun lists:map/2", "fun(X) -> X + 1 end", "hd(erlang:ports())"),
        *("<<5:3>>", "<<255, 1:1>>", "#{1 => a, 1.0 => b}", "#{[1] => x, #{} => y}", "0.1"),
        *(
            "lists:seq(1, 300)",
            "'\\x{e5}'",
            "[a | b]",
            'erlang:list_to_pid("<0.1.0>")',
            "1 bsl 8000",
        ),
    ],
)
def test_what_erlang_makes_comes_back_to_it(erlang: Erlang, expression: str) -> None:
    """What Python has a value for, and what it only keeps, is the same when it is sent back."""
    term = erlang.evaluate(f"put(made, {expression}), get(made)")
    erlang.call("erlang", "put", Atom("back"), term)
    assert erlang.evaluate("get(made) =:= get(back)") is True


def as_erlang_has_it(term: Any) -> Any:
    """What becomes of a term on the way through Erlang: bytes that are text become text.

    A `Term` may come back in another form that means the same; here it is its tag alone.
    """
    if isinstance(term, bytes):
        try:
            return term.decode()
        except UnicodeDecodeError:
            return term
    if isinstance(term, Term):
        return Term(term.encoded[:1])
    if isinstance(term, list):
        return [as_erlang_has_it(each) for each in term]
    if isinstance(term, dict):
        found = {as_erlang_has_it(key): as_erlang_has_it(each) for key, each in term.items()}
        assume(len(found) == len(term))  # text and bytes that are the same key for Erlang
        return found
    if isinstance(term, ImproperList):
        return ImproperList(as_erlang_has_it(term.items), as_erlang_has_it(term.tail))
    if type(term) is tuple:
        return tuple([as_erlang_has_it(each) for each in term])
    return term


@pytest.mark.slow
@MANY
@given(TERMS)
def test_every_term_survives_erlang(erlang: Erlang, term: Any) -> None:
    """Erlang can read whatever we encode, and we what it makes of that."""
    expected = as_erlang_has_it(term)
    assert exact(as_erlang_has_it(erlang.call("erlang", "hd", [term]))) == exact(expected)


# --- Nodes --------------------------------------------------------------------------------------

OTP = "otp@127.0.0.1"


class Connection:
    """A connection to a node of OTP, as simple as can be: it blocks, and has one process.

    Args:
        sock: The connection.
        name: Our name.
        peer: Whom it is to, or `None` when it was accepted.
        cookie: The cookie.
        flags: What we offer. Without `PUBLISHED` the other node's own processes leave us alone.
        replace: Whether to replace a connection that is there.
    """

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        peer: str | None = OTP,
        cookie: str = COOKIE,
        flags: int = FLAGS & ~Flag.PUBLISHED,
        replace: bool = True,
    ) -> None:
        self._replace = replace
        self.me = Pid(7 << 32 | 7, name, 77)
        self._sock = sock
        self._received = b""
        self.events: list[Any] = []
        self._side = Handshake(
            name=name, creation=77, cookie=cookie, challenge=12345, peer=peer, flags=flags
        )
        self._follow(self._side.start() if peer else [])
        while not self._over:
            self._follow(self._side.receive(data) if (data := sock.recv(1)) else ["closed"])

    @property
    def _over(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], Established | Failed | str)

    def _follow(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, Bytes):
                self._sock.sendall(event.data)
            else:
                self.events.append(event)
            if isinstance(event, Named):
                self._follow(self._side.decide("ok"))
            elif event == Status("alive"):
                self._follow(self._side.answer_alive(self._replace))

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        established = self.events[-1]
        assert isinstance(established, Established), self.events
        return established.peer

    def send(self, message: Any) -> None:
        """Send a control message."""
        frame = message.pack()
        self._sock.sendall(struct.pack(">I", len(frame)) + frame)

    def receive(self) -> Any:
        """The next message that is no tick."""
        while True:
            size = int.from_bytes(self._exactly(4), "big")
            if size:
                return parse(self._exactly(size))
            self._sock.sendall(bytes(4))

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self._sock.recv(65536)
            assert data, "the node of OTP has closed the connection"
            self._received += data
        found, self._received = self._received[:size], self._received[size:]
        return found

    def call(self, module: str, function: str, *arguments: Any) -> Any:
        """Have the process `tests` of the node call a function."""
        order = (Atom("call"), Atom(module), Atom(function), list(arguments))
        self.send(RegSend(self.me, Atom("tests"), (self.me, order)))

    def answer(self, function: str) -> Any:
        """What such a function has returned."""
        message = self.receive()
        assert isinstance(message, SendSender | Send), message
        assert message.to == self.me
        assert message.message[0] == Atom(function)
        return message.message[1]


@pytest.fixture(scope="module")
def mapper() -> Iterator[int]:
    """The port of an epmd."""
    with port_mapper() as port:
        yield port


@pytest.fixture(scope="module")
def node(mapper: int) -> Iterator[int]:
    """The port of a node of OTP, asked from epmd."""
    with erlang_node(OTP, mapper):
        port = look_up("otp", mapper)
        assert port is not None
        yield port


def ask_mapper(mapper: int, request: bytes) -> bytes:
    """What epmd answers, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", mapper), timeout=10) as sock:
        sock.sendall(request)
        parts = iter(lambda: sock.recv(3), b"")
        return b"".join(parts)


def look_up(name: str, mapper: int) -> int | None:
    """The port of a node."""
    try:
        return parse_port2_response(ask_mapper(mapper, port_please2_request(name)))
    except NotRegistered:
        return None


def register(name: str, port: int, mapper: int) -> tuple[socket.socket, int]:
    """Register with epmd; returns the connection, and the creation."""
    sock = socket.create_connection(("127.0.0.1", mapper), timeout=10)
    sock.sendall(alive2_request(name, port))
    data, creation = b"", None
    while creation is None:
        data += sock.recv(1)
        creation = parse_alive2_response(data)
    return sock, creation


@contextmanager
def connected(port: int, name: str, **options: Any) -> Iterator[Connection]:
    """A connection to the node of OTP."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        yield Connection(sock, name, **options)


def test_we_connect_to_otp(node: int) -> None:
    """A node of OTP lets us in, knows us as a node, and its processes talk with ours."""
    with connected(node, "one@127.0.0.1") as connection:
        assert [type(event) for event in connection.events] == [Status, Established]
        assert connection.peer.name == OTP
        assert connection.peer.flags & MANDATORY == MANDATORY
        connection.call("erlang", "nodes", Atom("hidden"))
        assert connection.answer("nodes") == [Atom("one@127.0.0.1")]
        for term in ("text", 2**70, [{"a": b"\xff"}], Reference("one@127.0.0.1", 77, (1, 2, 3))):
            order = (connection.me, Atom("echo"), term)
            connection.send(RegSend(connection.me, Atom("tests"), order))
            message = connection.receive()
            assert isinstance(message, SendSender)
            assert message.message == (Atom("echo"), term, message.sender)
            assert message.sender.node == OTP
            assert message.sender.creation == connection.peer.creation


def test_otp_connects_to_us(node: int, mapper: int) -> None:
    """A node of OTP finds us through epmd, and connects: the accepting side of the handshake."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        register("two", listener.getsockname()[1], mapper)[0],
        connected(node, "first@127.0.0.1") as first,
    ):
        listener.settimeout(10)
        first.call("net_kernel", "connect_node", Atom("two@127.0.0.1"))
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(10)
            second = Connection(accepted, "two@127.0.0.1", peer=None)
            assert second.events[0] == Named(OTP)
            assert second.peer.creation == first.peer.creation
            assert first.answer("connect_node") is True
