"""Nodes that are not connected, and have links with each other through servers."""

from __future__ import annotations

from typing import Any

import pykka
import pytest

import locks
from locks.core.messages import Knowledge, Released, Remove
from locks.model import AgentId
from locks.net import relay
from locks.net.messages import (
    CHUNK,
    WINDOW,
    Call,
    Greeting,
    Limits,
    NoWay,
    Open,
    Relay,
    Relaying,
    ToAgent,
    Took,
    ToServer,
    encode,
)
from locks.node.options import NET_TICKTIME
from tests.cluster.nodes import A, B, Nodes, Stranger, link, peer, until_members
from tests.helpers import LIMIT, eventually

X, Y, BAD = "x@127.0.0.1", "y@127.0.0.1", "bad@127.0.0.1"


class Echo(pykka.ThreadingActor):
    """Answers what it is asked."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return message


def relays(node: locks.node.Node) -> relay.Relays:
    """The links of a node through servers."""
    assert node.cluster is not None
    return node.cluster.relays


def passing(node: locks.node.Node) -> int:
    """How many links pass through a server."""
    return len(relays(node).switch)


def pair(nodes: Nodes, *servers: locks.node.Node) -> tuple[locks.node.Node, locks.node.Node]:
    """Two client nodes of these servers, with a link between them."""
    x, y = nodes.client(*servers, name=X), nodes.client(*servers, name=Y)
    assert x.connect(Y)
    eventually(lambda: y.nodes(hidden=True) == [X])
    return x, y


# --- What goes over them ------------------------------------------------------------------------


def test_all_that_works_over_a_connection_works_over_a_server(nodes: Nodes) -> None:
    """Calls, much more than a window in one message, monitors of an end, and of the loss."""
    server = nodes.start(A)
    x, y = pair(nodes, server)
    assert relays(x).links[Y].server == relays(y).links[X].server == A
    assert passing(server) == 1
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
    eventually(lambda: passing(server) == len(relays(x).links) == 0)


def test_a_sender_waits_for_a_receiver_that_is_slower(nodes: Nodes) -> None:
    """Much more than may wait anywhere arrives, in order: who sends waits as with a connection."""
    server = nodes.start(A)
    x, y = pair(nodes, server)
    got: list[int] = []

    class Slow(pykka.ThreadingActor):
        use_daemon_thread = True

        def on_receive(self, message: Any) -> Any:
            got.append(message[0])
            return len(got)

    y.register("slow", Slow.start())
    there = x.remote("slow", Y)
    data = bytes(100_000)
    for number in range(400):  # more than a node keeps for one that does not read
        there.tell([number, data])
    assert there.ask([400, b""]) == 401
    assert got == list(range(401))


def test_a_node_is_not_told_of_links_through_servers(nodes: Nodes) -> None:
    """They are no connections: nobody is told that a node came, and no lock server is asked over them."""
    server = nodes.start(A)
    news: list[Any] = []
    x = nodes.client(server, name=X)
    x.monitor_nodes(news.append)
    y = nodes.client(server, name=Y)
    assert x.connect(Y)
    assert x.alive == {X, A}
    assert x.statistics().traffic.connections == y.statistics().traffic.connections == 1
    y.stop()
    eventually(lambda: x.nodes(hidden=True) == [])
    assert news == []


# --- Finding a way --------------------------------------------------------------------------------


def test_when_the_server_is_lost_there_is_a_link_over_another_one(nodes: Nodes) -> None:
    """The link is lost with its server, and made anew."""
    servers = nodes.meet(A, B)
    x, y = pair(nodes, *servers)
    lost: list[Any] = []
    y.register("echo", Echo.start())
    locks.actors.monitor(x.remote("echo", Y), lost.append)
    through = relays(x).links[Y].server
    (gone,) = [server for server in servers if server.name == through]
    (left,) = [server for server in servers if server is not gone]
    gone.stop()
    eventually(lambda: [down.reason for down in lost] == ["noconnection"])
    eventually(lambda: x.nodes(hidden=True) == [Y])
    assert relays(x).links[Y].server == left.name
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
    assert (passing(one), passing(two)) == (1, 1)
    downs: list[Any] = []
    locks.actors.monitor(x.remote("echo", Y), downs.append)
    two.stop()
    eventually(lambda: len(downs) == 1)
    eventually(lambda: passing(one) == len(relays(x).links) == 0)
    echo.stop()


def test_silence_is_judged_by_the_server(nodes: Nodes) -> None:
    """Nothing ticks over a link through a server, and it is not lost for that; it is lost with the connection below it."""
    server = nodes.start(A)
    x, _ = pair(nodes, server)
    assert x.cluster is not None
    network = x.cluster.network
    below, over = link(x, A), relays(x).links[Y]

    def judge(server_is_heard: bool) -> None:
        """In one turn: nothing arrives meanwhile but what the test says."""
        for _ in range(4):
            network._has_silent(NET_TICKTIME / 3)
            network._judge_silence()
            if server_is_heard:
                below.silent = 0.0

    x.turn.run(judge, True)
    assert over.closed is below.closed is None
    x.turn.run(judge, False)
    assert below.closed == f"it was silent for {NET_TICKTIME:g} s"
    eventually(lambda: over.closed is not None)


def test_a_silent_server_is_avoided(nodes: Nodes) -> None:
    """Who notices that it is silent takes another way, and the other end follows, which noticed nothing."""
    servers = nodes.meet(A, B)
    proxies = {server.name: nodes.proxy(server) for server in servers}
    x = nodes.start(
        X, mesh=False, listen=False, peers=[proxies[each.name].peer(each.name) for each in servers]
    )
    until_members(x, A, B)
    y = nodes.client(*servers, name=Y)
    assert x.connect(Y)
    y.register("echo", Echo.start())
    assert x.cluster is not None
    first = relays(x).links[Y]
    proxies[first.server].stall()
    (other,) = {A, B} - {first.server}
    x.turn.run(x.cluster.silence.doubt, first.server)
    eventually(lambda: first.closed)
    eventually(lambda: Y in relays(x).links)
    assert relays(x).links[Y].server == other
    eventually(lambda: relays(y).links[X].server == other)
    assert x.remote("echo", Y).ask("hello") == "hello"
    proxies[first.server].heal()  # what was held back comes now, and replaces nothing
    eventually(lambda: not x.silent)
    assert x.remote("echo", Y).ask("hello") == "hello"
    assert relays(x).links[Y].server == relays(y).links[X].server == other


def test_a_node_that_no_server_leads_to(nodes: Nodes) -> None:
    """It is said why there is no link; and there is one as soon as the node is there."""
    server = nodes.start(A)
    x = nodes.client(server, name=X)
    assert not x.connect(Y, timeout=0.01)
    eventually(lambda: x.refusals.get(Y) == "no server of this node leads to it")
    nodes.client(server, name=Y)
    eventually(lambda: x.nodes(hidden=True) == [Y])
    assert Y not in x.refusals


# --- Wishes -----------------------------------------------------------------------------------------


def test_a_wish_connects_and_its_end_disconnects(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wish for each other: one link is left; it lasts as long as one of them wishes."""
    monkeypatch.setattr(relay, "LINGER", 0.05)
    monkeypatch.setattr(relay, "PERIOD", 0.05)
    server = nodes.start(A)
    x, y = nodes.client(server, name=X), nodes.client(server, name=Y)
    for node in (x, y):
        node.turn.run(relays(node).wish, "one", {X, Y})
        node.turn.run(relays(node).wish, "other", {X, Y})
    eventually(lambda: x.nodes(hidden=True) == [Y] and y.nodes(hidden=True) == [X])
    eventually(lambda: passing(server) == 1)
    for node in (x, y):
        node.turn.run(relays(node).wish, "one", ())
    x.turn.run(relays(x).wish, "other", ())
    y.turn.run(relays(y).wish, "other", ())
    eventually(lambda: x.nodes(hidden=True) == y.nodes(hidden=True) == [])
    eventually(lambda: Y not in relays(x)._attempts)
    eventually(lambda: passing(server) == 0)


def test_a_connection_replaces_it(nodes: Nodes) -> None:
    """When the nodes are connected, messages use the connection, and no other link is opened."""
    server = nodes.start(A)
    x = nodes.client(server, name=X)
    y = nodes.start(Y, mesh=False, peers=[peer(server)])
    y.register("echo", Echo.start())
    assert x.connect(Y)
    assert Y in relays(x).links
    assert x.connect(peer(y))
    eventually(lambda: not relays(x).links and not relays(y).links)
    eventually(lambda: passing(server) == 0)
    y.turn.run(relays(y).want, X)
    assert x.remote("echo", Y).ask("hello") == "hello"
    assert not relays(x).links
    assert link(x, Y).closed is None


# --- Those who do what they must not ----------------------------------------------------------------


class Bad:
    """A node with the cookie that says what it likes about links through a server."""

    def __init__(self, server: locks.node.Node, name: str = BAD) -> None:
        self.name = name
        self.peer = Stranger(server.address)
        self.peer.say_hello(server.name, name, kind="client")
        eventually(lambda: name in server.nodes(hidden=True))
        self._messages = iter(self.peer.messages())

    def say(self, message: Relaying) -> None:
        """Say something about a link."""
        self.peer.frame(encode(message))

    def hear(self) -> Any:
        """The next message about a link."""
        for message in self._messages:
            if isinstance(message, Relaying):
                return message
        raise AssertionError("it was disconnected")

    def open(self, session: int, to: str) -> Open:
        """Open a link; return the answer."""
        self.say(Open(session, self.name, to, 77))
        answer = self.hear()
        assert isinstance(answer, Open)
        assert answer.answers
        return answer

    def open_to(self, other: Bad, session: int) -> None:
        """Open a link to another one of these, which accepts it."""
        self.say(Open(session, self.name, other.name, 77))
        asked = other.hear()
        assert isinstance(asked, Open)
        assert asked.session == session
        other.say(Open(session, other.name, asked.sender, 77, asked.via[:-1], True))


def test_who_sends_more_than_a_window_ahead_is_disconnected(nodes: Nodes) -> None:
    """The server counts; other links go on."""
    server = nodes.start(A)
    x, y = pair(nodes, server)
    y.register("echo", Echo.start())
    bad, deaf = Bad(server), Bad(server, "deaf@127.0.0.1")
    bad.open_to(deaf, 1)
    assert bad.hear().answers
    for _ in range(WINDOW // CHUNK):
        bad.say(Relay(1, bytes(CHUNK)))
    assert passing(server) == 2
    assert x.remote("echo", Y).ask("hello") == "hello"
    bad.say(Relay(1, b"x"))
    assert bad.peer.is_closed()
    while not isinstance(deaf.hear(), NoWay):
        pass
    assert passing(server) == 1
    assert x.remote("echo", Y).ask("hello") == "hello"


def test_a_server_that_has_no_room_ends_the_link(nodes: Nodes) -> None:
    """A node reports data as taken in that it does not read: its connection fills, and its links end, no others."""
    server = nodes.start(A)
    x, y = pair(nodes, server)
    y.register("echo", Echo.start())
    bad, deaf = Bad(server), Bad(server, "deaf@127.0.0.1")
    bad.open_to(deaf, 1)
    assert bad.hear().answers
    deaf.say(Took(1, WINDOW))
    while isinstance(said := bad.hear(), Took):
        for _ in range(WINDOW // CHUNK):
            bad.say(Relay(1, bytes(CHUNK)))
        assert x.remote("echo", Y).ask("hello") == "hello"
        deaf.say(Took(1, WINDOW))
    assert said == NoWay(1, f"{deaf.name} does not read")
    assert passing(server) == 1
    assert link(server, deaf.name).waiting < 6 * 2**20


@pytest.mark.parametrize(
    "message",
    [
        Open(1, Y, X, 77),
        Open(1, Y, X, 77, (), True),
        Open(1, BAD, X, 77, (A,)),
        Took(1, 2**40),
        Relay(1, bytes(CHUNK + 1)),
    ],
)
def test_who_speaks_for_another_one_is_disconnected(nodes: Nodes, message: Relaying) -> None:
    """The server knows who has said something; nobody else hears of it."""
    server = nodes.start(A)
    x = nodes.client(server, name=X)
    bad = Bad(server)
    bad.say(message)
    assert bad.peer.is_closed()
    assert not relays(x).links


def test_a_message_in_the_name_of_another_one_ends_the_link(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """Over a link through a server a node speaks for itself alone, and to actors and agents alone."""
    server = nodes.start(A)
    x, y = pair(nodes, server)
    bad, agent, other = Bad(server), x.spawn_agent(), AgentId(5 << 12, Y, 0)
    wrong = [
        ToServer(Remove(other)),
        ToServer(Remove(AgentId(5 << 12, BAD, 0))),
        Call(1, Greeting(1, (), Limits())),
        ToAgent(agent.id.created, Knowledge(other, ())),
        ToAgent(agent.id.created, Released(BAD, ("x",), ())),
        Open(3, BAD, A, 77),
    ]
    for session, message in enumerate([*map(encode, wrong), b"?"], 2**62):
        assert bad.open(session, X).sender == X
        eventually(lambda: BAD in relays(x).links)
        bad.say(Relay(session, message))
        said = bad.hear()
        while not isinstance(said, NoWay):
            said = bad.hear()
        eventually(lambda: BAD not in relays(x).links)
    assert x.nodes() == [A]
    assert Y in relays(x).links
    y.register("echo", Echo.start())
    assert x.remote("echo", Y).ask("hello") == "hello"
    assert f"{X} closed the connection to {BAD}" in caplog.text


def test_many_links_of_one_node_leave_room_for_others(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server remembers a number of links of each node; the next ones end at once."""
    monkeypatch.setattr(relay, "MOST", 3)
    server = nodes.start(A)
    bad, deaf = Bad(server), Bad(server, "deaf@127.0.0.1")
    for session in range(5):
        bad.open_to(deaf, session)
        if session < 3:
            assert bad.hear().answers
        else:
            assert isinstance(deaf.hear(), NoWay)
    pair(nodes, server)
    assert passing(server) == 4
    bad.peer.close()
    for _ in range(3):
        assert isinstance(deaf.hear(), NoWay)
    eventually(lambda: passing(server) == 1, LIMIT)
