"""Client nodes: programs that are connected with lock servers alone, and of which nobody else is told."""

from __future__ import annotations

import os
import socket

import pytest

import locks
from locks.node.options import client_name
from tests.cluster.harness import COOKIE
from tests.cluster.nodes import A, B, C, News, Nodes, Tx, link, peer, until_connected, until_members
from tests.helpers import eventually

X = ("x",)


def test_nobody_is_told_of_a_client_node(nodes: Nodes) -> None:
    """Its servers know it as hidden; it is in no mesh, and nobody is told its name, nor is it told any."""
    a, b = nodes.meet(A, B)
    news = News(a, b)
    client = nodes.client(a)
    assert client.address is None
    assert a.nodes() == [B]
    assert a.nodes(hidden=True) == [client.name]
    assert client.nodes() == [A]
    assert client.nodes(hidden=True) == []
    assert link(a, client.name).peer.hidden
    c = nodes.start(C, peers=[peer(a)])
    until_members(c, A, B)
    until_members(a, B, C)
    for node in (a, b, c):
        assert node.cluster is not None
        assert client.name not in node.cluster.network.book.known
        assert client.name not in node.alive
    assert client.cluster is not None
    assert set(client.cluster.network.book.known) == {A}
    client.stop()
    eventually(lambda: a.nodes(hidden=True) == [])
    assert set(news.brief) == {("up", C)}


def test_a_client_node_locks_on_its_servers(nodes: Nodes) -> None:
    """It locks as any other node does, and what it has is released when it ends."""
    a, b = nodes.meet(A, B)
    client = nodes.client(a, b)
    tx, other = Tx(client), Tx(a)
    tx.lock(X, [A, B])
    waits = other.ask(X, [A, B])
    client.stop()
    assert waits.result().status == "have_all_locks"
    other.end()


def test_a_client_node_is_asked_for_nothing(nodes: Nodes) -> None:
    """Who names it as a lock server is told why it is none; `all_alive` does not count it."""
    a = nodes.start(A)
    client = nodes.client(a)
    eventually(lambda: a.refusals)
    tx = Tx(a)
    with pytest.raises(locks.CannotServe, match="is a client node"):
        tx.lock(X, [client.name])
    with pytest.raises(locks.errors.NodeNotRunning, match="is a client node"):
        a.view(X, client.name)
    assert not a.await_nodes([client.name], timeout=0)
    tx.end()
    tx = Tx(a)
    assert tx.lock(X, [A, client.name], "all_alive").status == "have_all_locks"
    assert tx.granted(X) == (A,)
    tx.end()
    client.stop()
    eventually(lambda: not a.refusals)


def test_its_own_lock_server_is_for_itself(nodes: Nodes) -> None:
    """A client node grants locks to its own transactions, as a node that is alone."""
    a = nodes.start(A)
    client = nodes.client(a)
    tx = Tx(client)
    assert tx.lock(X).status == "have_all_locks"
    assert tx.lock(("y",), [client.name, A], "all_alive").status == "have_all_locks"
    assert tx.granted(("y",)) == (client.name, A)
    tx.end()


def test_it_connects_again(nodes: Nodes) -> None:
    """A connection of a client node that is lost is made anew, by the client."""
    a = nodes.start(A)
    proxy = nodes.proxy(a)
    client = nodes.start(client_name(), mesh=False, listen=False, peers=[f"{A}:{proxy.address[1]}"])
    until_members(client, A)
    proxy.cut()
    until_members(client)
    proxy.heal()
    until_members(client, A)
    eventually(lambda: a.nodes(hidden=True) == [client.name])


def test_without_mesh_who_listens_is_a_lock_server(nodes: Nodes) -> None:
    """Only who neither meshes nor listens is a client."""
    a, b = nodes.start(A), nodes.start(B, mesh=False, listen=True)
    assert b.connect(peer(a))
    until_members(a, B)
    until_connected(a, B)


def test_names(nodes: Nodes) -> None:
    """A client node that is given no name has one that says which process it is, and that nobody else has."""
    a = nodes.start(A)
    node = locks.start(cookie=COOKIE, peers=[peer(a)], mesh=False)
    try:
        assert node.address is None
        assert node.name.startswith(f"client-{os.getpid()}-")
        assert node.name.endswith(f"@{socket.gethostname()}")
        assert node.await_nodes([A], timeout=10)
        assert locks.start() is node
        with locks.transaction(timeout=5) as tx:
            tx.lock(X, nodes=[A])
        eventually(lambda: a.nodes(hidden=True) == [node.name])
    finally:
        locks.stop()
    assert len({client_name() for _ in range(100)}) == 100
    node = locks.start(mesh=False)  # it is alone: there is nobody to be told from
    assert node.name == "node@localhost"
    locks.stop()


@pytest.mark.parametrize("name", ["", "two words", "@", "x" * 300])
def test_a_host_with_a_strange_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the machine is shown if it can be a part of a name."""
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    host = client_name().split("@")[1]
    assert host == ("twowords" if " " in name else "localhost")
