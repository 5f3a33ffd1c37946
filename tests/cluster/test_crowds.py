"""Crowds of strangers at a node's door: they take bounded room and work, and honest nodes get in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest

import locks
from locks.net import door
from locks.net.door import Door
from locks.net.notices import Notices
from tests.cluster.conftest import Certify
from tests.cluster.harness import ROOT, Process, World, until_alive
from tests.cluster.nodes import A, Nodes, Stranger, peer
from tests.helpers import eventually

S = "s@127.0.0.1"
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="no `openssl` command to make certificates with"
)


@contextmanager
def crowd(node: locks.node.Node) -> Iterator[None]:
    """A crowd at a door, as a process of its own."""
    assert node.address is not None
    place = f"{node.name}=127.0.0.1:{node.address[1]}"
    process = Process("crowd", ["tests.cluster.misbehaviour", "strangers", place])
    try:
        assert "connected" in process._stdout.readline()
        yield
    finally:
        process.close()


# --- A real crowd -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, pytest.param(True, marks=needs_openssl)])
def test_newcomers_get_in(nodes: Nodes, certify: Certify, tls: bool) -> None:
    """While 500 sockets idle and a flood of handshakes is left half done, honest nodes get in."""
    given = certify("ours", "127.0.0.1") if tls else None
    a = nodes.start(A, tls=given)
    with crowd(a):
        for number in range(5):
            newcomer = nodes.start(f"n{number}@127.0.0.1", tls=given, listen=False)
            assert newcomer.connect(peer(a), timeout=60)
            newcomer.stop()
        agent = a.spawn_agent()
        agent.lock_all([(("x",), "write", (A,), "all")], 60)  # and it works
        agent.end_transaction()


def test_no_files_are_left(nodes: Nodes, world: World) -> None:
    """A server that may open few files only lets fewer strangers in, and serves its nodes."""
    limited = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); "
        "sys.argv = sys.argv[:1] + sys.argv[1:]; runpy.run_module('locks', run_name='__main__')"
    )
    command = [sys.executable, "-c", limited, "node", "--name", S, "--cookie-file"]
    with subprocess.Popen(
        [*command, str(world.cookie_file)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            port = int(process.stdout.readline().split(b'"port": ')[1].rstrip(b"}\n"))
            strangers = [Stranger(("127.0.0.1", port)) for _ in range(100)]
            worker = world.worker("w@127.0.0.1", [f"{S}:{port}"])
            until_alive(worker, S)
            for stranger in strangers:
                stranger.close()
        finally:
            process.kill()
        assert len(process.stderr.read().splitlines()) <= 3


# --- Who has to leave ---------------------------------------------------------------------------


class _Stream:
    """A connection that is closed or not."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class _Doorway:
    """A door that nobody comes through by himself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        monkeypatch.setattr(door, "ROOM", room)
        self.door = Door(A, None, lambda _: None, Notices(lambda *_: None), gevent.spawn)

    def comes(self, host: str = "h") -> door.Stranger:
        """Somebody comes in."""
        stream: Any = _Stream()
        one = door.Stranger(self.door, stream, (host, 1))
        self.door._make_room(self.door._hall)
        self.door._hall.put(one, True)
        return one


def test_who_keeps_us_waiting_the_longest_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each of the rooms, and of those who were answered the one who was answered first."""
    way = _Doorway(monkeypatch, 3)
    them = [way.comes() for _ in range(3)]
    for one in them:
        way.door.answered(one)
    silent = [way.comes() for _ in range(3)]
    for number in (1, 0, 2):
        way.door.wait_for(them[number])
    newest = way.comes()
    assert [one.pushed_out for one in silent] == [True, False, False]
    way.door.answered(newest)
    assert [one.pushed_out for one in them] == [False, True, False]
    assert way.door.strangers == 5


def test_who_waits_for_us_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """When all in the room wait for us, the one who has just spoken is sent away."""
    way = _Doorway(monkeypatch, 2)
    them = [way.comes() for _ in range(2)]
    for one in them:
        way.door.answered(one)
    late = way.comes()
    with pytest.raises(door.Refused, match="too many connections are waiting"):
        way.door.answered(late)
    assert not any(one.pushed_out for one in them)


def test_a_crowd_pushes_out_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers of one host, or of one IPv6 network, do not push out those of another one."""
    way = _Doorway(monkeypatch, 5)
    others = [way.comes("other"), way.comes("2001:db8:1:1::9")]
    mine = [way.comes(f"2001:db8:0:0::{number:x}") for number in range(20)]
    assert not any(one.pushed_out for one in others)
    assert [one.pushed_out for one in mine] == [True] * 17 + [False] * 3


def test_one_step_of_tls_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest rank is first, then who came last; who gives up waiting holds nobody up."""
    room = _Doorway(monkeypatch, 1).door
    order: list[Any] = []

    def go(name: str, rank: int) -> None:
        room._await_turn(rank)
        order.append(name)
        order.append(gevent.spawn(order.append, "others"))  # what the hub does before the next step

    room._gives_turns = True  # not yet
    greenlets = []
    for name, rank in (("old", 0), ("far", 1), ("new", 0), ("slow", -1), ("impatient", 2)):
        greenlets.append(gevent.spawn(go, name, rank))
        gevent.sleep(0)
    greenlets[-1].kill()
    room._give_turns()
    gevent.joinall(greenlets)
    others = "others"
    said = [each for each in order if isinstance(each, str)]
    assert said == ["far", others, "new", others, "old", others, "slow", others]
    go("free", 0)
    assert "free" in order


def test_a_stranger_that_has_gone_costs_no_tls(nodes: Nodes, certify: Certify) -> None:
    """Nothing is computed for who has closed the connection while it waited for its turn."""
    a = nodes.start(A, tls=certify("ours", "127.0.0.1"))
    assert a.cluster is not None
    room = eventually(lambda: a.cluster.network._door)  # type: ignore[union-attr]
    assert room is not None
    computed: list[Any] = []
    begin = Door.wait_for

    def noted(room: Door, one: door.Stranger) -> None:
        computed.append(one)
        begin(room, one)

    room._gives_turns = True  # to nobody
    try:
        Door.wait_for = noted  # type: ignore[method-assign]
        stranger = Stranger(a.address)
        stranger.send(b"\x16\x03\x01")
        eventually(lambda: room._waiting)
        stranger.close()
        a.executor.call(room._give_turns)
        eventually(lambda: room.strangers == 0)
    finally:
        Door.wait_for = begin  # type: ignore[method-assign]
    assert computed == []
