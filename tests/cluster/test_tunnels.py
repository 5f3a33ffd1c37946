"""Tunnels: two client nodes that are connected by way of a server."""

from __future__ import annotations

from typing import Any

import pykka
import pytest

import locks
from locks.otp.bytes import control
from locks.otp.bytes.terms import Atom, Pid
from locks.otp.options import NET_TICKTIME
from locks.otp.tunnel import wishes
from locks.otp.tunnel.messages import (
    CHUNK,
    RELAY,
    TUNNELS,
    WINDOW,
    Close,
    Data,
    Open,
    encode,
    unpack,
)
from tests.cluster.nodes import A, B, Nodes, Stranger, hello, link
from tests.helpers import eventually

X, Y, BAD = "x@127.0.0.1", "y@127.0.0.1", "bad@127.0.0.1"


class Echo(pykka.ThreadingActor):
    """Answers what it is asked."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return message


def pair(nodes: Nodes, *servers: locks.node.Node) -> tuple[locks.node.Node, locks.node.Node]:
    """Two client nodes of these servers, with a tunnel between them."""
    x, y = nodes.client(*servers, name=X), nodes.client(*servers, name=Y)
    assert x.connect(Y)
    eventually(lambda: y.nodes(hidden=True) == [X])
    return x, y


def tunnels(node: locks.node.Node) -> int:
    """How many a node relays."""
    assert node.cluster is not None
    return len(node.cluster.tunnels.relay)


def ends(node: locks.node.Node) -> int:
    """How many end at a node."""
    assert node.cluster is not None
    return len(node.cluster.tunnels)


# --- What goes over them ------------------------------------------------------------------------


def test_all_that_works_over_a_connection_works_over_a_tunnel(nodes: Nodes) -> None:
    """Calls, much more than a window in one message, monitors of an end, and of the loss."""
    server = nodes.start(A)
    x, y = pair(nodes, server)
    assert link(x, Y).relay == link(y, X).relay == A
    assert tunnels(server) == 1
    echo, other = Echo.start(), Echo.start()
    y.register("echo", echo)
    y.register("other", other)
    there = x.remote("echo", Y)
    assert there.ask("hello") == "hello"
    large = bytes(range(256)) * 10_000 + b"\xff"
    assert there.ask([large, large]) == [large, large]
    downs: list[Any] = []
    locks.actors.monitor(there, downs.append)
    locks.actors.monitor(x.remote("other", Y), downs.append)
    assert x.remote("other", Y).ask(1) == 1
    echo.stop()
    eventually(lambda: len(downs) == 1)
    y.stop()
    eventually(lambda: len(downs) == 2)
    assert downs[1].reason == "noconnection"
    assert x.nodes(hidden=True) == []
    eventually(lambda: tunnels(server) == ends(x) == 0)


# --- Finding a way --------------------------------------------------------------------------------


def test_when_the_server_is_lost_there_is_a_tunnel_over_another_one(nodes: Nodes) -> None:
    """The connection is lost with its server, and made anew."""
    servers = nodes.meet(A, B)
    x, y = pair(nodes, *servers)
    lost: list[Any] = []
    y.register("echo", Echo.start())
    locks.actors.monitor(x.remote("echo", Y), lost.append)
    relay = link(x, Y).relay
    (gone,) = [server for server in servers if server.name == relay]
    (left,) = [server for server in servers if server is not gone]
    gone.stop()
    eventually(lambda: [down.reason for down in lost] == ["noconnection"])
    eventually(lambda: x.nodes(hidden=True) == [Y])
    assert link(x, Y).relay == left.name
    assert x.remote("echo", Y).ask("hello") == "hello"


def test_over_two_servers(nodes: Nodes) -> None:
    """If the two have none in common, their servers lead to each other; the loss of either ends it."""
    one, two = nodes.meet(A, B)
    x, y = nodes.client(one, name=X), nodes.client(two, name=Y)
    assert x.connect(Y)
    echo = Echo.start()
    y.register("echo", echo)
    large = b"\xff" * 300_000
    assert x.remote("echo", Y).ask([large]) == [large]
    assert (tunnels(one), tunnels(two)) == (1, 1)
    downs: list[Any] = []
    locks.actors.monitor(x.remote("echo", Y), downs.append)
    two.stop()
    eventually(lambda: len(downs) == 1)
    eventually(lambda: tunnels(one) == ends(x) == 0)
    echo.stop()


def test_silence_is_judged_by_the_server(nodes: Nodes) -> None:
    """Nothing ticks over a tunnel, and it is not lost for that; it is lost with a connection below it."""
    server = nodes.start(A)
    x, _ = pair(nodes, server)
    assert x.cluster is not None
    distribution = x.cluster.distribution
    below, tunnel = link(x, A), link(x, Y)

    def judge(server_is_heard: bool) -> None:
        """In one turn: nothing arrives meanwhile but what the test says."""
        for _ in range(4):
            distribution._judge_silence(NET_TICKTIME / 3)
            if server_is_heard:
                below.silent = 0.0

    x.turn.run(judge, True)
    assert tunnel.silent > NET_TICKTIME
    assert tunnel.closed is below.closed is None
    x.turn.run(judge, False)
    assert below.closed == f"it was silent for {NET_TICKTIME:g} s"
    eventually(lambda: tunnel.closed is not None)


# --- Wishes -----------------------------------------------------------------------------------------


def test_a_wish_connects_and_its_end_disconnects(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wish for each other: one connection is left; it lasts as long as one of them wishes."""
    monkeypatch.setattr(wishes, "LINGER", 0.05)
    server = nodes.start(A)
    x, y = nodes.client(server, name=X), nodes.client(server, name=Y)
    assert x.cluster is not None
    assert y.cluster is not None
    for node in (x, y):
        assert node.cluster is not None
        node.turn.run(node.cluster.wishes.set, "one", {X, Y})
        node.turn.run(node.cluster.wishes.set, "other", {X, Y})
    eventually(lambda: x.nodes(hidden=True) == [Y] and y.nodes(hidden=True) == [X])
    eventually(lambda: tunnels(server) == 1)
    for node in (x, y):
        assert node.cluster is not None
        node.turn.run(node.cluster.wishes.set, "one", ())
    x.turn.run(x.cluster.wishes.set, "other", ())
    y.turn.run(y.cluster.wishes.set, "other", ())
    eventually(lambda: x.nodes(hidden=True) == y.nodes(hidden=True) == [])
    assert Y not in x.cluster.distribution.book.known
    eventually(lambda: tunnels(server) == 0)


# --- Those who do what they must not ----------------------------------------------------------------


class Bad:
    """A node with the cookie that says what it likes about tunnels."""

    def __init__(self, server: locks.node.Node, name: str = BAD) -> None:
        self.peer = Stranger(server.address)
        self.peer.say_hello(server.name, name)
        eventually(lambda: name in server.nodes())
        self._messages = iter(self.peer.messages())

    def say(self, message: Any, process: str = RELAY) -> None:
        """Send a message about a tunnel."""
        to = control.RegSend(Pid(1, BAD, 77), Atom(process), None).pack()
        head = to[: to.index(b"\x83", 2)]
        self.peer.frame(head + encode(message))

    def hear(self) -> Any:
        """The next message about a tunnel."""
        for message in self._messages:
            if isinstance(message, control.RegSend) and message.name == Atom(TUNNELS):
                return unpack(message.message)
        raise AssertionError("it was disconnected")


def test_who_sends_more_than_there_is_credit_for_is_disconnected(nodes: Nodes) -> None:
    """The relay counts; other tunnels go on."""
    server = nodes.start(A)
    x, y = pair(nodes, server)
    y.register("echo", Echo.start())
    bad, deaf = Bad(server), Bad(server, "deaf@127.0.0.1")
    bad.say(Open(BAD, 1, "deaf@127.0.0.1"))
    for _ in range(WINDOW // CHUNK):
        bad.say(Data(BAD, 1, bytes(CHUNK)))
    assert bad.hear() is not None
    assert tunnels(server) == 2
    bad.say(Data(BAD, 1, b"x"))
    assert bad.peer.is_closed()
    while not isinstance(deaf.hear(), Close):
        pass
    assert tunnels(server) == 1
    assert x.remote("echo", Y).ask("hello") == "hello"


def test_who_comes_under_another_name_is_refused(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """The server says who has opened a tunnel: only under that name one gets in."""
    server = nodes.start(A)
    x = nodes.client(server, name=X)
    bad = Bad(server)
    bad.say(Open(BAD, 1, X))
    bad.hear()
    body = hello(Y, X)
    bad.say(Data(BAD, 1, len(body).to_bytes(4, "big") + body))
    eventually(lambda: f"it is {BAD}, not {Y}" in caplog.text)
    said = [bad.hear(), bad.hear()]
    while not isinstance(said[-1], Close):
        said.append(bad.hear())
    assert x.nodes(hidden=True) == []
    eventually(lambda: tunnels(server) == ends(x) == 0)
