"""Connections with TLS."""

from __future__ import annotations

import shutil
import socket
import ssl

import pytest

import locks
from locks.net.frames import frame
from tests.cluster.conftest import Certify
from tests.cluster.harness import World, until_alive
from tests.cluster.nodes import A, B, Nodes, hello, peer, until_connected
from tests.helpers import eventually

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="no `openssl` command to make certificates with"
)


@needs_openssl
def test_tls(nodes: Nodes, certify: Certify) -> None:
    """Nodes with certificates of the same CA lock on each other, also with much to be sent."""
    tls = certify("ours", "127.0.0.1")
    a, b = nodes.meet(A, B, tls=tls)
    agent = a.spawn_agent()
    long = "x" * 60_000
    agent.lock_all([((long, number), "write", (B,), "all") for number in range(20)], 10)
    assert b.view((long,)).holders[0].agent == agent.id
    agent.end_transaction()
    eventually(lambda: b.statistics().table.entries == 0)
    b.stop()
    until_connected(a)


@needs_openssl
@pytest.mark.parametrize("refuses", ["a", "b"])
def test_another_ca(
    nodes: Nodes, certify: Certify, caplog: pytest.LogCaptureFixture, refuses: str
) -> None:
    """A certificate of a CA that one of the two does not trust is refused, on either side."""
    good, bad = certify("ours", "127.0.0.1"), certify("theirs", "127.0.0.1", "ours")
    a = nodes.start(A, tls=good if refuses == "a" else bad)
    b = nodes.start(B, tls=bad if refuses == "a" else good)
    assert not a.connect(peer(b), timeout=0.4)
    assert a.nodes() == b.nodes() == []
    eventually(lambda: "certificate" in caplog.text.lower() or "unknown ca" in caplog.text)


@needs_openssl
def test_a_certificate_for_another_host(nodes: Nodes, certify: Certify) -> None:
    """The certificate of whom one connects to must be for that host, unless one says otherwise."""
    good = certify("ours", "127.0.0.1")
    elsewhere = certify("ours", "elsewhere.example")
    with pytest.raises(
        locks.errors.InvalidOption, match=r"is for elsewhere\.example, but this node is b@"
    ):
        nodes.start(B, tls=elsewhere)
    b = nodes.start(B, tls=elsewhere._replace(check_hostname=False))
    a = nodes.start(A, tls=good)
    assert not a.connect(peer(b), timeout=0.3)
    a.stop()
    b.disconnect(A)
    lenient = nodes.start("c@127.0.0.1", tls=good._replace(check_hostname=False))
    assert lenient.connect(peer(b))


@needs_openssl
def test_no_certificate(nodes: Nodes, certify: Certify) -> None:
    """Who has the cookie, but no certificate, is not let in."""
    tls = certify("ours", "127.0.0.1")
    a = nodes.start(A, tls=tls)

    def greet() -> bytes:
        assert a.address is not None
        context = ssl.create_default_context(cafile=str(tls.ca))
        with (
            socket.create_connection(a.address, 5) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(frame(hello(B, A)))
            return secured.recv(100)

    with pytest.raises(ssl.SSLError, match="certificate"):
        greet()
    assert a.nodes() == []


@needs_openssl
def test_the_command_with_tls(world: World, certify: Certify) -> None:
    """The command line takes certificates."""
    files = [str(path) for path in certify("ours", "127.0.0.1")[:3]]
    server = world.server("s@127.0.0.1", arguments=["--tls", *files])
    worker = world.worker("w@127.0.0.1", [server.peer], tls=files)
    until_alive(worker, server.name)
    assert worker.do("begin", objects=[[["x"], "write", [server.name]]]) == "have_all_locks"
