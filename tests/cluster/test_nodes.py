"""Nodes that find each other, lose each other, and come back."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import weakref
from typing import Any

import gevent
import pytest

import locks
from locks.net import book as books
from locks.net import messages
from tests.cluster.harness import COOKIE, World, until_alive
from tests.cluster.nodes import (
    A,
    B,
    C,
    News,
    Nodes,
    link,
    peer,
    until_connected,
    until_members,
)
from tests.helpers import LIMIT, eventually
from tests.warm import run_program

# --- Connecting ---------------------------------------------------------------------------------


def test_two_nodes_connect(nodes: Nodes) -> None:
    """Both sides see the other one, as a node and as a lock server, after one of them connects."""
    a, b = nodes.start(A), nodes.start(B)
    assert a.address is not None
    assert a.address[0] == "127.0.0.1"
    assert a.nodes() == b.nodes() == []
    assert a.connect(peer(b))
    until_connected(a, B)
    until_connected(b, A)
    until_members(a, B)
    until_members(b, A)
    assert a.connect(peer(b))  # it is already
    assert link(a, B).peer.incarnation == b.cluster.network.incarnation  # type: ignore[union-attr]


def test_nodes_of_a_program_with_a_hub(nodes: Nodes) -> None:
    """Each node has a thread of its own, also here, where the program has a hub; it ends with the node."""
    gevent.get_hub()
    try:
        before = {thread.name for thread in threading.enumerate()}
        a, b = nodes.meet(A, B)
        assert a.executor.is_own_thread
        assert a.executor.hub is not b.executor.hub
        b.stop()
        until_connected(a)
        a.stop()
        assert {thread.name for thread in threading.enumerate()} <= before
    finally:
        nodes.stop()


def test_a_peer_that_is_not_there_yet(nodes: Nodes) -> None:
    """`connect` gives up waiting, the node does not give up trying."""
    a, b = nodes.start(A), nodes.start(B)
    proxy = nodes.proxy(b)
    proxy.cut()
    assert not a.connect(proxy.peer(B), timeout=0.1)
    proxy.heal()
    until_connected(a, B)


def test_a_node_that_is_alone() -> None:
    """Without a cookie a node has nothing to do with others, and says how to change that."""
    node = locks.node.Node("alone@localhost")
    try:
        assert node.nodes() == []
        assert node.address is None
        for call in (
            lambda: node.connect("b@127.0.0.1:9100"),
            lambda: node.disconnect("b@127.0.0.1"),
            lambda: node.monitor_nodes(print),
            lambda: node.remote("x", "b@127.0.0.1"),
        ):
            with pytest.raises(locks.MisuseError, match="cookie"):
                call()
    finally:
        node.stop()


# --- Both at the same time ----------------------------------------------------------------------


def test_simultaneous_connects(nodes: Nodes) -> None:
    """When both dial at the same moment, there is one connection, the same one for both."""
    a, b = nodes.start(A), nodes.start(B)
    for _ in range(60):
        calls = [
            threading.Thread(target=one.connect, args=(peer(other),))
            for one, other in ((a, b), (b, a))
        ]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        eventually(lambda: _same_connection(a, b))
        until_members(a, B)
        until_members(b, A)
        a.disconnect(B)
        b.disconnect(A)
        until_connected(a)
        until_connected(b)


def _same_connection(a: locks.node.Node, b: locks.node.Node) -> bool:
    """Whether both have a link, and these are the two ends of one connection."""
    assert a.cluster is not None
    assert b.cluster is not None
    here = a.cluster.network.links.get(b.name)
    there = b.cluster.network.links.get(a.name)
    if here is None or there is None:
        return False
    try:
        return here._socket.getsockname() == there._socket.getpeername()
    except OSError:  # just closed
        return False


# --- Disconnecting ------------------------------------------------------------------------------


def test_disconnect(nodes: Nodes) -> None:
    """Nodes that were disconnected on purpose stay apart until somebody connects them again."""
    a, b = nodes.meet(A, B)
    news = News(a, b)
    assert a.disconnect(B)
    until_connected(a)
    until_connected(b)
    assert not a.disconnect(B)
    until_members(a)
    until_members(b)
    assert not b.connect(peer(a), timeout=0.3)  # a does not want it
    assert a.connect(peer(b))
    until_connected(b, A)
    expected = [("down", A), ("down", B), ("up", A), ("up", B)]
    eventually(lambda: sorted(news.brief) == expected)
    assert any("on purpose" in reason for reason in news.reasons())


# --- News ---------------------------------------------------------------------------------------


class Listener(locks.actors.GeventActor):
    """An actor that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def on_receive(self, message: Any) -> list[Any]:
        if message != "told?":
            self.told.append(message)
        return self.told


def test_monitor_nodes(nodes: Nodes) -> None:
    """Callables and actors are told of nodes that come and go, until they say that it is enough."""
    a = nodes.start(A)
    actor = Listener.start()
    news, ended = News(a), News(a)
    a.monitor_nodes(actor)
    a.monitor_nodes(ended.told.append, False)
    b = nodes.start(B)
    a.connect(peer(b))
    until_connected(b, A)
    b.stop()
    eventually(lambda: news.brief == [("up", B), ("down", B)])
    assert actor.ask("told?", timeout=5) == news.told
    assert all(news.reasons())
    assert ended.told == []
    actor.stop()
    with pytest.raises(
        locks.errors.InvalidOption, match="must be an actor's reference or a callable"
    ):
        a.monitor_nodes("me")  # type: ignore[arg-type]


# --- Coming back --------------------------------------------------------------------------------


def test_a_node_that_restarts(nodes: Nodes) -> None:
    """A node that comes back at its old address is connected again, as a new incarnation."""
    b = nodes.start(B)
    a = nodes.start(A, peers=[peer(b)])
    until_members(a, B)
    before = link(a, B).peer.incarnation
    for _ in range(3):
        news = News(a)
        b.stop()
        eventually(lambda news=news: news.brief == [("down", B)])  # type: ignore[misc]
        b = nodes.start(B, listen=b.address)
        until_members(a, B)
        eventually(lambda news=news: news.brief == [("down", B), ("up", B)])  # type: ignore[misc]
    assert link(a, B).peer.incarnation != before


def test_a_link_that_is_cut(nodes: Nodes) -> None:
    """A connection that breaks is made anew."""
    a, b = nodes.start(A, mesh=False), nodes.start(B, mesh=False)
    proxy = nodes.proxy(b)
    assert a.connect(proxy.peer(B))
    news = News(a, b)
    for _ in range(3):
        proxy.cut()
        until_connected(a)
        until_connected(b)
        until_members(a)
        proxy.heal()
        until_members(a, B)
        until_members(b, A)
    eventually(lambda: len(news.told) == 12)


@pytest.mark.slow
def test_a_node_that_is_replaced(nodes: Nodes) -> None:
    """A new incarnation takes the place of one that seems to be connected still."""
    a, b = nodes.start(A), nodes.start(B, mesh=False)
    proxy = nodes.proxy(a)
    assert b.connect(proxy.peer(A))
    until_connected(a, B)
    news = News(a)
    proxy.stall()  # the end of b won't be noticed
    b.stop()
    again = nodes.start(B)
    assert again.connect(peer(a))
    until_members(a, B)
    until_members(again, A)
    eventually(lambda: news.brief == [("down", B), ("up", B)])
    assert "connected again" in news.reasons()[0]
    assert link(a, B).peer.incarnation == again.cluster.network.incarnation  # type: ignore[union-attr]


# --- The mesh -----------------------------------------------------------------------------------


def test_a_stopped_node_is_forgotten(nodes: Nodes) -> None:
    """Nothing that its greenlets waited for keeps it in memory: programs may start and stop nodes for years."""

    a = nodes.start(A)

    def past() -> weakref.ref[locks.node.Node]:
        node = locks.start(B, cookie=COOKIE, peers=[peer(a)])
        assert node.await_nodes([A], timeout=LIMIT)
        locks.stop()
        return weakref.ref(node)

    refs = [past() for _ in range(3)]

    def are_gone() -> bool:
        gc.collect()
        return not any(ref() for ref in refs)

    eventually(are_gone)


def test_nodes_that_come_at_the_same_time(nodes: Nodes) -> None:
    """Nodes that connect to a node of a mesh at the same moment get to know each other, too."""
    for number in range(10):
        middle = nodes.start(f"middle{number}@127.0.0.1")
        made = [nodes.start(f"n{n}-{number}@127.0.0.1") for n in range(4)]
        for node in made:  # all before any of them is connected
            assert middle.cluster is not None
            node.turn.run(node.cluster.network.connect, middle.name, middle.address)  # type: ignore[union-attr]
        names = [node.name for node in (middle, *made)]
        for node in (middle, *made):
            until_members(node, *names)
        for node in (middle, *made):
            node.stop()


def test_an_address_that_others_tell_is_checked(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """A node does not follow another one to an address that it may not be given itself."""
    a, b = nodes.start(A), nodes.start(B)
    assert b.cluster is not None
    book = b.cluster.network.book
    book.hear(
        C, [messages.News(C, "192.0.2.1", 9100, 0.0)], time.monotonic()
    )  # as if it had been there
    assert a.connect(peer(b))
    eventually(lambda: "open to the network" in caplog.text)
    until_members(a, B)


def test_no_mesh(nodes: Nodes) -> None:
    """Without `mesh` a node has the connections that it was asked for, and those only."""
    a, b, c = (nodes.start(name, mesh=False) for name in (A, B, C))
    assert b.connect(peer(a))
    assert c.connect(peer(b))
    until_members(b, A, C)
    until_members(c, B)
    assert a.nodes() == [B]
    assert c.nodes() == [B]
    assert set(a.cluster.network.book.known) == set()  # type: ignore[union-attr]


# --- Processes ----------------------------------------------------------------------------------


def test_the_command(world: World) -> None:
    """`python -m locks node` says where it is, can be locked on, and ends cleanly on SIGTERM."""
    server = world.server("s@127.0.0.1")
    worker = world.worker("w@127.0.0.1", [server.peer], patched=True)
    until_alive(worker, server.name)
    assert worker.do("begin", objects=[[["x"], "write", [server.name]]]) == "have_all_locks"
    server.signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    eventually(lambda: worker.do("lost"))


FORK = """
import os, sys, socket, time, locks
other = sys.argv[1]
node = locks.start("forks@127.0.0.1", cookie="cookie-of-the-tests", peers=[other], mesh=False, listen=True)
while len(node.alive) < 2:
    time.sleep(0.001)
# Somebody in the middle of a handshake, too.
stranger = socket.create_connection(node.address)
stranger.send(b"x")
while not node.cluster.network._admission.streams:
    time.sleep(0.001)
read, write = os.pipe()
child = os.fork()
if child == 0:
    mine = os.stat(stranger.fileno()).st_ino
    open_sockets = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith("socket:") and f"[{mine}]" not in target:
            open_sockets.append(target)
    os.write(write, repr(open_sockets).encode())
    os._exit(0)
print(os.read(read, 10000).decode())  # no waitpid: gevent may miss the end of a first child
assert len(node.nodes()) == 1, "the parent's connection was closed"
with locks.transaction(timeout=5) as tx:
    tx.lock(("x",), nodes=[sorted(node.alive - {node.name})[0]])
locks.stop()
"""


@pytest.mark.parametrize("patched", [False, True])
def test_a_forked_child_holds_no_connection(nodes: Nodes, patched: bool) -> None:
    """A forked child lets go of the door and of all connections; those of the parent go on."""
    b = nodes.start(B, mesh=False)
    script = ("from gevent import monkey; monkey.patch_all()\n" if patched else "") + FORK
    done = run_program([sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, peer(b)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_hearsay_is_forgotten(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that only others know of is dialled no more when it is gone for long; a peer always is."""
    monkeypatch.setattr(books, "FORGET", 0.5)
    a, b = nodes.meet(A, B)
    assert a.cluster is not None
    rumour = [messages.News("rumour@127.0.0.1", "127.0.0.1", 1, 0.0)]  # nobody listens there
    assert not a.connect("peer@127.0.0.1:1", timeout=0.01)
    a.turn.run(a.cluster.network.hear, B, rumour)
    assert "rumour@127.0.0.1" in a.cluster.network.book.known
    eventually(lambda: "rumour@127.0.0.1" not in a.cluster.network.book.known)
    assert {"peer@127.0.0.1", B} <= a.cluster.network.book.known.keys()
    assert a.nodes() == [B]
    assert b.nodes() == [A]
