"""Names: nobody has one that is not proven, and one program at a time has it."""

from __future__ import annotations

import itertools
import signal
import threading
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

import locks
from locks.net import admission, network
from locks.net.hello import read_hello
from locks.net.link import Link
from locks.node.options import NET_TICKTIME
from locks.runtime.clock import monotonic
from tests.cluster.harness import World, until_alive
from tests.cluster.nodes import (
    A,
    B,
    C,
    News,
    Nodes,
    Stranger,
    Tx,
    hello,
    link,
    peer,
    until_connected,
    until_members,
)
from tests.helpers import eventually

X = "x@127.0.0.1"
S = "s@127.0.0.1"

# --- Names that nobody has proven ---------------------------------------------------------------


def _claim(node: locks.node.Node, name: str) -> Stranger:
    """Say at a node's door that one is somebody else, and nothing more."""
    stranger = Stranger(node.address)
    stranger.frame(hello(name, node.name))
    assert read_hello(stranger.next_frame(), name).name == node.name  # it is answered
    return stranger


@pytest.mark.parametrize("dials", [A, B])
def test_an_unproven_name_stops_nobody(nodes: Nodes, dials: str) -> None:
    """While strangers claim the names of two nodes at each other's doors, the two get together."""
    a, b = nodes.start(A), nodes.start(B)
    strangers = [_claim(a, B), _claim(b, A)]
    one, other = (a, b) if dials == A else (b, a)
    assert one.connect(peer(other), timeout=30)
    until_members(a, B)
    until_members(b, A)
    for stranger in strangers:
        assert not stranger.is_closed(0.01)  # it was all the time there
        stranger.close()


@pytest.mark.parametrize("own", [A, C])
def test_a_proven_name_is_not_kept_out_by_an_attempt(nodes: Nodes, own: str) -> None:
    """A node gets in though it is dialled in vain, at an address where somebody else says nothing."""
    a, b = nodes.start(own), nodes.start(B)
    proxy = nodes.proxy(b)
    proxy.stall()
    assert a.cluster is not None
    assert not a.connect(proxy.peer(B), timeout=0)
    eventually(lambda: B in a.cluster.network._admission._attempts)  # type: ignore[union-attr]
    b.turn.run(b.cluster.network.connect, own, a.address)  # type: ignore[union-attr]
    until_members(a, B)
    until_members(b, own)


# --- Two programs with one name -----------------------------------------------------------------


def test_a_second_program_is_refused(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one keeps its name and its locks; the second is told who has the name, each time."""
    monkeypatch.setattr("locks.net.notices.PERIOD", 0)
    server, first = nodes.start(S), nodes.start(X)
    assert first.connect(peer(server))
    until_members(server, X)
    news = News(server, first)
    tx = Tx(first)
    tx.lock(("account",), [S])
    second = nodes.start(X)
    assert not second.connect(peer(server), timeout=0.2)
    said = f"another program has been connected as {X} since "
    eventually(lambda: caplog.text.count(f"{S} refused a connection") > 4)
    assert f", from 127.0.0.1:{link(server, X).address[1]};" in caplog.text
    assert caplog.text.count(f"{X} can't connect to {S}: it refused the connection: {said}") == 1
    with pytest.raises(locks.CannotServe, match=said):
        second.spawn_agent().lock_all([(("account",), "write", (S,), "all")], 5)
    assert not second.await_nodes([S], timeout=0)
    tx.ensure_held()
    assert news.told == []
    first.stop()
    until_members(second, S)
    tx.die()


def test_an_answer_counts_whenever_silence_is_judged(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has arrived is a sign of life, though silence is judged between its arrival and the look."""
    server, first = nodes.start(S), nodes.start(X)
    assert first.connect(peer(server))
    until_members(server, X)
    news = News(server, first)
    looks: list[float] = []

    def look_later(seconds: float) -> None:
        """The next look comes when silence has been judged once more."""
        assert server.cluster is not None
        gevent.sleep(seconds)
        server.turn.run(server.cluster.network._has_silent, 0.001)
        server.turn.run(server.cluster.network._judge_silence)
        looks.append(seconds)

    monkeypatch.setattr(
        admission, "gevent", SimpleNamespace(sleep=look_later, Timeout=gevent.Timeout)
    )
    second = nodes.start(X)
    assert not second.connect(peer(server), timeout=0)
    eventually(lambda: "another program" in second.refusals.get(S, "") or news.told)
    assert looks
    assert news.told == []


def test_heartbeats_leave_no_long_gap(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link gets one in time, however often it is looked, and whatever else was sent."""
    server, first = nodes.start(S), nodes.start(X)
    assert first.connect(peer(server))
    until_members(server, X)
    assert server.cluster is not None
    links = server.cluster.network
    (link,) = links.links.values()
    now = monotonic()
    beats: list[float] = []
    monkeypatch.setattr(Link, "beat", lambda one: beats.append(now) if one is link else None)
    monkeypatch.setattr(network, "monotonic", lambda: now)
    link.wanted, link.beat_due = 15.0, 0.0
    look = 15.0 * network.LOOK

    def looks() -> None:
        nonlocal now
        for number in range(160):
            now += look / 4
            links._hub_ran_at = now
            links._beat()
            if number % 3:
                link.send(b"x")

    server.turn.run(looks)
    gaps = [after - before for before, after in itertools.pairwise(beats)]
    assert len(gaps) >= 5
    assert max(gaps) <= 15 * network.BEAT
    assert min(gaps) > 0.5 * 15 * network.BEAT
    # What a program that computes still sends is enough for who asks whether it lives.
    waits = min(max(NET_TICKTIME / admission.PART, admission.SIGNS[0]), admission.SIGNS[1])
    assert waits * 0.7 > NET_TICKTIME * network.BEAT
    assert admission.SIGNS[1] < admission.HELLO_TIME - 2  # the newcomer is still there


# --- A program that comes back ------------------------------------------------------------------


def test_killed_and_started_again(world: World) -> None:
    """A program that was killed has its name back at once; its locks are free."""
    server = world.server(S, net_ticktime=60)
    worker = world.worker(X, [server.peer], net_ticktime=60)
    for _ in range(2):
        until_alive(worker, S)
        assert worker.do("begin", objects=[[["k"], "write", [S]]]) == "have_all_locks"
        worker.kill()
        worker = world.worker(X, [server.peer], net_ticktime=60)
    until_alive(worker, S)
    assert "another program" not in server.errors()


@pytest.mark.slow
def test_stopped_and_started_again(world: World) -> None:
    """A program that is stopped gives no sign of life: its name goes to the one that comes.

    This is how a lost machine looks: nobody closes its connections. The time without heartbeats after which
    a node is down, `net_ticktime`, does not matter.
    """
    server = world.server(S, net_ticktime=600)
    old = world.worker(X, [server.peer], net_ticktime=600)
    until_alive(old, S)
    assert old.do("begin", objects=[[["k"], "write", [S]]]) == "have_all_locks"
    old.stop()
    new = world.worker(X, [server.peer], net_ticktime=600)
    until_alive(new, S)
    assert new.do("begin", objects=[[["k"], "write", [S]]]) == "have_all_locks"
    old.go_on()
    with pytest.raises(locks.LockLost):
        eventually(lambda: old.do("ensure_held", lock_id=["k"]))
    eventually(lambda: "another program has been connected as" in old.errors())
    new.do("ensure_held", lock_id=["k"])


@pytest.mark.slow
def test_cut_off_and_started_again(nodes: Nodes) -> None:
    """A new program gets the name of one whose network is gone, without a word."""
    server, old = nodes.start(S), nodes.start(X, mesh=False)
    proxy = nodes.proxy(server)
    assert old.connect(proxy.peer(S))
    until_connected(server, X)
    news = News(server)
    proxy.stall()
    new = nodes.start(X)
    assert new.connect(peer(server), timeout=30)
    until_members(new, S)
    eventually(lambda: news.brief == [("down", X), ("up", X)])


def test_the_same_program_connects_anew(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that knows that its link is lost takes the place of it at once, nobody is asked."""
    asked: list[Any] = []
    server, x = nodes.start(S), nodes.start(X, mesh=False)
    monkeypatch.setattr(admission.Admission, "_doubt", lambda *_: asked.append(1))
    proxy = nodes.proxy(server)
    assert x.connect(proxy.peer(S))
    until_connected(server, X)
    news = News(server)
    proxy.stall()  # the server does not learn that the link is lost
    x.turn.run(link(x, S).lose, "for the test")
    x.turn.run(x.cluster.network.connect, S, server.address)  # type: ignore[union-attr]
    eventually(lambda: news.brief == [("down", X), ("up", X)])
    until_members(x, S)
    assert not asked


# --- Who asks is held up himself ----------------------------------------------------------------


def test_a_server_that_was_stopped_asks_before_it_judges(world: World) -> None:
    """A server that was held up itself does not take a living program for dead."""
    server = world.server(S)
    first = world.worker(X, [server.peer], net_ticktime=600)
    until_alive(first, S)
    assert first.do("begin", objects=[[["k"], "write", [S]]]) == "have_all_locks"
    server.stop()
    second = world.worker(X, [server.peer])
    done = threading.Event()
    for _ in range(5):
        done.wait(0.1)
        server.signal(signal.SIGCONT)
        done.wait(0.02)
        server.stop()
    server.go_on()
    eventually(lambda: "another program" in second.errors())
    first.do("ensure_held", lock_id=["k"])
