"""What strangers, bad peers and slow ones can do to a node: nothing but lose their own connection."""

from __future__ import annotations

import logging
import socket
import threading
from itertools import islice
from typing import Any

import pytest

import locks
from locks.net import door, network
from locks.net.hello import ACCEPTS, DIALS, Refused, prove, read_hello, recognise
from locks.net.messages import Ping, Tell, encode
from locks.net.secrets import Cookie
from tests.cluster.harness import World
from tests.cluster.nodes import (
    A,
    B,
    C,
    News,
    Nodes,
    Stranger,
    hello,
    peer,
    until_connected,
    until_members,
)
from tests.helpers import LIMIT, eventually

BAD = "bad@127.0.0.1"

# --- Strangers ----------------------------------------------------------------------------------

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "long frame": (2049).to_bytes(4, "big"),
    "empty frame": bytes(4),
    "Erlang's": b"\x00\x0bN" + bytes(20),
    "no message": b"\0\0\0\x10N" + bytes(15),
    "nothing asked": b"\0\0\0\x29" + prove(DIALS, b"", b"", [Cookie("x" * 16)]),
    "other version": b"\0\0\0\x0b\x93\xa5hello\2\xa1x",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(700),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=list(GARBAGE))
def test_garbage_instead_of_a_handshake(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    """Whoever does not speak the protocol is cut off, logged once, and disturbs nobody."""
    a, b = nodes.meet(A, B)
    news = News(a)
    caplog.clear()
    stranger = Stranger(a.address)
    stranger.send(data)
    assert stranger.is_closed()
    eventually(lambda: caplog.text.count("refused a connection") == 1)
    assert len(caplog.records) == 1
    assert news.told == []
    assert b.nodes() == [A]


@pytest.mark.parametrize(
    "own",
    [A, "bad", "bad@", "@127.0.0.1", "b d@127.0.0.1", "x" * 251 + "@host", "bad@a@b"],
)
def test_names_of_strangers(nodes: Nodes, own: str) -> None:
    """A node whose name is ours, or none at all, is refused."""
    a = nodes.start(A)
    stranger = Stranger(a.address)
    stranger.frame(hello(own, A))
    assert stranger.is_closed()
    assert a.nodes() == []


def test_a_proof_that_is_passed_on(nodes: Nodes) -> None:
    """Who passes a node's own words on to it, on another connection, does not get in by that."""
    a = nodes.start(A)
    with socket.create_server(("127.0.0.1", 0)) as door:
        a.connect(f"{C}:{door.getsockname()[1]}", timeout=0)
        caller = Stranger(None, door.accept()[0])
        its_hello = caller.next_frame()
        assert read_hello(its_hello, C).name == A
        mirror, inside = Stranger(a.address), Stranger(a.address)
        mirror.frame(its_hello)
        assert mirror.is_closed()
        inside.frame(hello(C, A))
        assert read_hello(inside.next_frame(), C, A).name == A
        caller.frame(hello(C, A))
        inside.frame(caller.next_frame())  # a's proof, which is of these names
        with pytest.raises(Refused, match="has another cookie"):
            recognise(inside.next_frame(), ACCEPTS, b"", b"", ())
        assert inside.is_closed()
        for stranger in (caller, mirror, inside):
            stranger.close()
    assert a.nodes() == []


def test_a_stranger_who_says_nothing(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not go through the handshake in time is cut off."""
    monkeypatch.setattr(door, "HELLO_TIME", 0.2)
    a = nodes.start(A)
    stranger = Stranger(a.address)
    stranger.send(b"\x00")
    assert stranger.is_closed()


def test_too_many_strangers(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers take a bounded number of places; who has not answered the longest makes room."""
    monkeypatch.setattr(door, "HELLO_TIME", 600)
    monkeypatch.setattr(door, "ROOM", 5)
    a, b = nodes.start(A), nodes.start(B)
    crowd = [Stranger(a.address) for _ in range(5)]
    room = _door(a)
    eventually(lambda: room.strangers == 5)
    more = Stranger(a.address)
    assert crowd[0].is_closed()
    assert room.strangers == 5
    assert b.connect(peer(a))
    assert crowd[1].is_closed()
    for stranger in (*crowd[2:], more):
        assert not stranger.is_closed(0.05)
        stranger.close()
    eventually(lambda: room.strangers == 0)


def _door(node: locks.node.Node) -> door.Door:
    assert node.cluster is not None
    made = node.cluster.network
    found = eventually(lambda: made._door)  # the system accepts connections before there is one
    assert found is not None
    return found


# --- Peers that are let in, and should not have been --------------------------------------------

FRAMES = {
    "no MessagePack": b"\xc1",
    "no array": encode(5),
    "cut off": encode(Ping())[:-1],
    "more than a frame": encode(Ping()) + encode(Ping()),
    "no UTF-8": encode(Tell("nobody", b"x")).replace(b"nobody", b"nobod\xff"),
    "wrong types": encode(["tell", None, b"x"]),
    "too few fields": encode(["tell", 1]),
    "deep": b"\x91" * 100_000,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=list(FRAMES))
def test_garbage_after_the_handshake(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, frame: bytes
) -> None:
    """A peer that sends what can't be read loses its connection, is logged once, and only that."""
    a, b = nodes.meet(A, B)
    news = News(a)
    stranger = Stranger(a.address)
    stranger.say_hello(A, BAD)
    eventually(lambda: BAD in a.nodes())
    caplog.clear()
    stranger.frame(frame)
    assert stranger.is_closed()
    until_connected(a, B)
    eventually(lambda: news.brief == [("up", BAD), ("down", BAD)])
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert b.nodes() == [A]


def test_a_frame_that_is_too_long(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame beyond the limit is not even begun to be taken in; one at the limit is."""
    monkeypatch.setattr(network, "FRAME_LIMIT", 5000)
    a = nodes.start(A)
    news = News(a)
    stranger = Stranger(a.address)
    stranger.say_hello(A, BAD)
    padding = 5000 - len(encode(Tell("nobody", bytes(4000))))
    at_limit = encode(Tell("nobody", bytes(4000 + padding)))
    assert len(at_limit) == 5000
    stranger.frame(at_limit)
    stranger.frame(encode(Tell("nobody", b"x")))
    assert not stranger.is_closed(0.1)
    stranger.send((5001).to_bytes(4, "big"))
    assert stranger.is_closed()
    eventually(lambda: any("5001 bytes" in reason for reason in news.reasons()))


# --- Slow and silent peers ----------------------------------------------------------------------


def test_a_peer_that_does_not_read(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a slow peer is bounded; beyond that it is cut off, and others are served."""
    monkeypatch.setattr(network, "SEND_LIMIT", 200_000)
    a, b = nodes.meet(A, B)
    news = News(a)
    stranger = Stranger(a.address)
    stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stranger.say_hello(A, BAD)
    eventually(lambda: BAD in a.nodes())
    ref = a.remote("nobody", BAD)
    sent = 0
    while not news.reasons():
        ref.tell("x" * 1000)
        sent += 1
        assert sent < 20_000
        if sent % 500 == 0:
            agent = a.spawn_agent()
            agent.lock_all([((sent,), "write", (B,), "all")], 5)
            agent.end_transaction()
    assert "does not read" in news.reasons()[0]
    assert b.nodes() == [A]


@pytest.mark.parametrize("reads", [True, False])
def test_who_sends_more_than_is_read_waits(nodes: Nodes, reads: bool) -> None:
    """Until the peer has read it, or is lost; the connection does not end by that. Others' messages go out."""
    a, _ = nodes.meet(A, B)
    stranger = Stranger(a.address)
    stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    stranger.say_hello(A, BAD)
    eventually(lambda: BAD in a.nodes())
    ref = a.remote("nobody", BAD)
    sent: list[int] = []

    def send() -> None:
        for number in range(40):
            ref.tell("x" * 1_000_000)
            sent.append(number)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    link = a.cluster.network.links[BAD]  # type: ignore[union-attr]
    eventually(lambda: link.drained)
    assert len(sent) < 20
    agent = a.spawn_agent()
    agent.lock_all([(("x",), "write", (B,), "all")], 5)
    agent.end_transaction()
    if reads:
        messages = stranger.messages()
        large = sum(1 for each in islice(messages, 40) if each is not None)
        while large < 40:
            large += isinstance(next(iter(messages)), Tell)
        assert BAD in a.nodes()
    stranger.close()
    sender.join(LIMIT)
    assert len(sent) == 40
    assert not link.drained


def test_a_silent_peer(nodes: Nodes) -> None:
    """A peer that has said nothing for `net_ticktime` counts as down; one that ticks does not."""
    a = nodes.start(A, net_ticktime=1)
    news = News(a)
    silent, ticking = Stranger(a.address), Stranger(a.address)
    silent.say_hello(A, BAD)
    ticking.say_hello(A, B)
    until_connected(a, B, BAD)
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.05):
            ticking.send(bytes(4))

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        assert silent.is_closed()
        eventually(lambda: ("down", BAD) in news.brief)
        assert "silent for 1 s" in news.reasons()[0]
        assert a.nodes() == [B]
        ticks = sum(1 for _ in zip(range(3), _ticks(ticking), strict=False))
        assert ticks == 3  # it is told that a is there, too
    finally:
        done.set()
        ticker.join()


def _ticks(stranger: Stranger) -> Any:
    return (message for message in stranger.messages() if message is None)


@pytest.mark.slow
@pytest.mark.parametrize("patched", [False, pytest.param(True, marks=pytest.mark.explore)])
def test_a_program_that_computes_is_not_silent(nodes: Nodes, world: World, patched: bool) -> None:
    """Heartbeats go on while a program computes and gives way to nobody."""
    a = nodes.start(A, net_ticktime=1)
    worker = world.worker(B, [peer(a)], patched=patched, net_ticktime=1)
    until_members(a, B)
    news = News(a)
    agent = a.spawn_agent()
    worker.do("spin", seconds=2)
    assert worker.do("alive") == [A, B]
    agent.lock_all([(("x",), "write", (B,), "all")], 5)
    assert news.told == []
    agent.end_transaction()


@pytest.mark.slow
def test_a_node_whose_hub_is_stuck_counts_as_lost(nodes: Nodes, world: World) -> None:
    """Signs of life prove that it serves: when its hub makes no turn for `net_ticktime` there are none. Later it is found again."""
    a = nodes.start(A, net_ticktime=1)
    worker = world.worker(B, [peer(a)], net_ticktime=1)
    until_members(a, B)
    news = News(a)
    worker.do("stick", seconds=4)
    eventually(lambda: ("down", B) in news.brief)
    assert "silent for 1 s" in news.reasons()[0]
    eventually(lambda: ("up", B) in news.brief)
