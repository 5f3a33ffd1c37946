"""Who is not let in, and who can't get in: both sides say once why, and what to do about it."""

from __future__ import annotations

import logging
import shutil
import socket
import threading
from typing import Any

import pytest

import locks
from locks.net.messages import Done, Reply, Tell, encode
from locks.ranges import LONGEST_LINE as LONGEST
from tests.cluster.nodes import A, B, C, Nodes, Stranger, link, peer
from tests.helpers import eventually

BAD = "bad@127.0.0.1"


def _warnings(caplog: pytest.LogCaptureFixture, begin: str) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in texts if text.startswith(begin)]


def _left_out(node: locks.node.Node) -> int:
    """How many lines a node has not logged."""
    return sum(kind.left_out for kind in node.notices._kinds.values())


def test_a_wrong_cookie_is_logged_once(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """A program with another cookie tries again and again: one line on each side, with the cure."""
    a, b = nodes.start(A), nodes.start(B, cookie="another-long-secret")
    assert not b.connect(peer(a), timeout=0)
    eventually(lambda: _left_out(a) > 3)
    b.stop()
    (here,) = _warnings(caplog, f"{A} refused a connection from 127.0.0.1:")
    (there,) = _warnings(caplog, f"{B} can't connect to {A}: ")
    assert here.endswith(f"{B} has another cookie; all nodes need the same one")
    assert there.endswith(
        f"refused the connection: {A} has another cookie; all nodes need the same one"
    )


def test_who_cannot_serve_is_told_why(nodes: Nodes) -> None:
    """A lock on a node that runs, and refuses us, does not fail with "is not running"."""
    a, b = nodes.start(A), nodes.start(B, cookie="another-long-secret")
    assert not b.connect(peer(a), timeout=0)
    eventually(lambda: A in b.refusals)
    agent = b.spawn_agent()
    for ask in (
        lambda: agent.ask_for([(("x",), "write", (A,), "all")]),
        lambda: agent.lock_all([(("x",), "write", (A,), "all")], 5),
    ):
        with pytest.raises(locks.CannotServe, match="has another cookie") as raised:
            ask()
        assert raised.value.nodes == (A,)
        assert "is not running" not in str(raised.value)
    with pytest.raises(locks.errors.NodeNotRunning, match="has another cookie"):
        b.view(("x",), A)
    a.stop()
    eventually(lambda: A not in b.refusals)
    with pytest.raises(locks.CannotServe, match=f"{A} is not running"):
        agent.lock_all([(("x",), "write", (A,), "all")], 5)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it uses another protocol, b'HTTP/1.1 400"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it uses another protocol, b'SSH-2.0"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "it uses TLS, but this node does not; set tls="),
    ],
)
def test_something_else_answers(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, answer: bytes, said: str
) -> None:
    """A wrong port: it is said what seems to be there."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            try:
                while True:
                    sock, _ = other.accept()
                    sock.sendall(answer)
                    sock.recv(1000)
                    sock.close()
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        b = nodes.start(B)
        assert not b.connect(f"{C}:{other.getsockname()[1]}", timeout=0)
        eventually(lambda: _warnings(caplog, f"{B} can't connect to {C}: {said}"))
        b.stop()
        other.shutdown(socket.SHUT_RDWR)
    thread.join(5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "it uses another protocol, b'GET / HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(700), "it uses TLS, but this"),
        (b"\xff\xff" + bytes(100), "that is not a node's hello: b'\\xff\\xff"),
    ],
)
def test_somebody_else_asks(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, words: bytes, said: str
) -> None:
    """Who comes to the wrong door is logged for what it seems to be."""
    a = nodes.start(A)
    stranger = Stranger(a.address)
    stranger.send(words)
    assert stranger.is_closed()
    eventually(lambda: any(said in line for line in _warnings(caplog, f"{A} refused")))


needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="no `openssl` command to make certificates with"
)


@needs_openssl
@pytest.mark.parametrize("plain_dials", [True, False])
def test_tls_on_one_side(
    nodes: Nodes, certify: Any, caplog: pytest.LogCaptureFixture, plain_dials: bool
) -> None:
    """When one of two nodes has TLS, both say so, whoever dials."""
    plain, secured = nodes.start(A), nodes.start(B, tls=certify("ours", "127.0.0.1"))
    one, other = (plain, secured) if plain_dials else (secured, plain)
    assert not one.connect(peer(other), timeout=0)
    cure = "set tls= on both, or on neither"
    eventually(lambda: any(cure in line for line in _warnings(caplog, f"{one.name} can't connect")))
    eventually(lambda: any(cure in line for line in _warnings(caplog, f"{other.name} refused")))


# --- Peers that send nonsense -------------------------------------------------------------------


@pytest.mark.parametrize("period", [60, 0])
def test_large_bad_messages_write_short_lines(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, period: int
) -> None:
    """Bad messages of 1 MB, to all who take some in: a line of a few hundred characters each, at most."""
    monkeypatch.setattr("locks.net.notices.PERIOD", period)
    a = nodes.start(A)
    agent = a.spawn_agent()
    large = "x" * 2**20
    terms: tuple[Any, ...] = (
        ["toserver", [large]],
        ["toserver", ["request", large]],
        ["toagent", agent.id.created, ["report", large]],
        ["call", 1, ["greeting", large]],
        ["call", 1, [large]],
        ["tell", large, b""],
        [large],
        large,
    )
    wrong = [encode(term) for term in terms]
    for bad_message in (*wrong, *wrong, b""):
        stranger = Stranger(a.address)
        stranger.say_hello(A, BAD)
        try:
            stranger.frame(encode(Tell("nobody", encode(large))))
            stranger.frame(bad_message)
            stranger.frame(b"\xc1" + large.encode())  # some of the others are ignored
        except OSError:
            pass
        assert stranger.is_closed()
    eventually(lambda: any("invalid message" in record.getMessage() for record in caplog.records))
    warnings = _warnings(caplog, "")
    assert all(len(line) <= LONGEST + 40 for line in warnings)
    assert "Traceback" not in caplog.text
    if period:
        assert len(warnings) <= 3
    agent.end_transaction()


def test_a_message_of_an_unknown_kind_is_ignored(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """That is logged; the connection stays, and is used."""
    a, _ = nodes.meet(A, B)
    assert a.cluster is not None
    a.turn.run(a.cluster.exchange.send_body, B, encode(["unheard", 1]))
    eventually(
        lambda: "ignored a message of a@127.0.0.1: there is no frame 'unheard'" in caplog.text
    )
    assert a.nodes() == [B]


def test_no_answer_for_others(nodes: Nodes) -> None:
    """A node that answers what another one was asked loses its connection, and the answer is not taken."""
    a = nodes.start(A)
    other, forger = nodes.client(a), nodes.client(a)
    assert a.cluster is not None
    assert forger.cluster is not None
    told: list[Any] = []
    exchange, connection = a.cluster.exchange, link(forger, A)
    number = a.turn.run(exchange.new_number)
    a.turn.run(exchange._calls.update, {number: (other.name, lambda *answer: told.append(answer))})
    forger.turn.run(forger.cluster.exchange.send, A, Reply(number, Done()))
    eventually(lambda: connection.closed)
    assert not told
