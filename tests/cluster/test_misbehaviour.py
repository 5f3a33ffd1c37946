"""One node that has the cookie does its worst, with real processes: the others go on, and what it may have is limited.

What it does is in `misbehaviour.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pykka
import pytest

import locks
from locks.actors import GeventActor
from locks.core.facts import Break
from locks.core.messages import RaiseVersion
from locks.model import AgentId
from locks.net import actors
from locks.net.messages import Monitor
from locks.node.observing import inquiries
from locks.node.peers import guests
from tests.cluster.harness import Process, Server, World
from tests.cluster.misbehaviour import BEHAVIOURS, HOT, LARGE
from tests.cluster.nodes import ODD, A, B, News, Nodes, Peer, Tx, until_members
from tests.helpers import LIMIT, eventually

ME = "me@127.0.0.1"
SECONDS = 0.3  # of behaviours that go on for ever
ROUNDS = 3  # of transactions beside it, at least

# What the server says of it, and with that the connection is closed.
REFUSED = {
    "watches": "it has more than 1,000 watches here",
    "agents": "this program has 20,000 transactions with locks or requests",
    "too_deep": "it sent an invalid message",
    "large_version": "days; correct them",
    "raised_version": "is too far ahead of this node's clock",
}


class Place:
    """A lock server, and an honest program that has a lock there."""

    def __init__(self, world: World, nodes: Nodes) -> None:
        self.server: Server = world.server(A, net_ticktime=15)
        self.node = nodes.start(ME, peers=[self.server.peer])
        until_members(self.node, A)
        self.holder = Tx(self.node)
        self.holder.lock(("held",), [A])

    def transaction(self) -> float:
        """One transaction, on what the other one is after; returns how long it took."""
        begin = time.perf_counter()
        agent = self.node.spawn_agent()
        agent.lock_all([(HOT, "write", (A,), "all")], LIMIT)
        agent.end_transaction()
        return time.perf_counter() - begin

    def queue(self, *lock_id: object) -> tuple[locks.values.Contender, ...]:
        """Who is at a lock id there."""
        return self.node.view(lock_id, A, LIMIT).requests

    def bad(self, what: str, seconds: float) -> Process:
        """Let it begin."""
        given = [f"{A}=127.0.0.1:{self.server.address[1]}", f"--seconds={seconds}"]
        made = Process(what, ["tests.cluster.misbehaviour", what, *given])
        assert "connected" in made._stdout.readline(), made.errors()
        return made


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """One server for all of them: it has to recover from each."""
    nodes = Nodes()
    with World() as world:
        made = Place(world, nodes)
        yield made
        made.holder.ensure_held()
        made.holder.end()
        nodes.stop()


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=pytest.mark.explore if what in LARGE else ()) for what in BEHAVIOURS],
)
def test_others_go_on(place: Place, what: str) -> None:
    """The server lives, others lock meanwhile and keep what they have; what is too much is named."""
    said = REFUSED.get(what)
    before = place.server.errors().count(said) if said else 0
    bad = place.bad(what, LIMIT if said else SECONDS)
    try:
        done = 0
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            place.transaction()
            done += 1
            over = place.server.errors().count(said) > before if said else bad.process.poll() == 0
            if over and done >= ROUNDS:
                break
            time.sleep(0.002)  # the processor is for others, too
        else:
            raise AssertionError(f"never refused: {place.server.errors()[-1000:]}")
    finally:
        bad.kill()
        bad.close()
    place.holder.ensure_held(("held",))
    assert place.server.process.poll() is None
    eventually(lambda: not place.queue("agent", 1))  # nothing of it is left
    place.transaction()


def test_monitors_of_an_actor_are_limited(nodes: Nodes) -> None:
    """Who has more of them than is allowed loses its connection, and all of them."""
    a = nodes.start(A)
    a.register("watched", GeventActor.start())
    peer = Peer(a.address, A)
    for number in range(20_001):
        peer.say(Monitor(number, "watched"))
    news = News(a)
    assert peer.is_closed()
    eventually(lambda: "it has more than 20,000 monitors here" in news.reasons())
    assert a.cluster is not None
    assert not a.cluster.actors._monitored


def test_what_waits_for_the_clock_goes_with_its_node(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it connects again, nothing waits on; nor is it remembered why it was refused."""
    monkeypatch.setattr(guests, "LONGEST", 0.05)
    a = nodes.start(A)
    assert a.cluster is not None
    greenlets = a.cluster.executor._greenlets
    before = len(greenlets)
    in_a_day = int((time.time() + 1.5 * 86_400) * 1e6)
    for turn in range(3):
        peer = Peer(a.address, A)
        peer.greet(version=in_a_day + 2 * 86_400 * 10**6)
        agent = AgentId(1 << 12, ODD, 0)
        for _ in range(100):
            peer.tell_server(RaiseVersion(agent, HOT, 1, in_a_day))
        eventually(lambda: len(greenlets) >= before + 100)
        assert ODD in a.refusals, turn
        peer.close()
        eventually(lambda: ODD not in a.refusals and len(greenlets) < before + 50)


def test_asks_of_an_actor_that_hangs_are_refused(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit, who asks gets an error; it keeps its connection and its locks, and may ask again when the actor has answered."""
    monkeypatch.setattr(actors, "MOST_CALLS", 10)
    a, b = nodes.meet(A, B)
    goes_on = threading.Event()

    class Hangs(pykka.ThreadingActor):
        """It answers when it is allowed to."""

        use_daemon_thread = True

        def on_receive(self, message: Any) -> Any:
            goes_on.wait(LIMIT)
            return message

    b.register("hangs", Hangs.start())
    ref = a.remote("hangs", B)
    tx = Tx(a)
    tx.lock(HOT, [B])
    asked = [ref.ask(number, block=False) for number in range(12)]
    for refused in asked[10:]:
        with pytest.raises(locks.errors.LimitExceeded, match="not answered 10 asks") as raised:
            refused.get(timeout=LIMIT)
        assert (raised.value.node, raised.value.what, raised.value.limit) == (B, "asks", 10)
    goes_on.set()
    assert [each.get(timeout=LIMIT) for each in asked[:10]] == list(range(10))
    assert ref.ask(17, timeout=LIMIT) == 17
    tx.do(tx.agent.ensure_held)
    tx.die()


def test_questions_to_pass_on_are_counted_for_each_who_asks(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has too many of them loses its connection, and nobody else."""
    monkeypatch.setattr(inquiries, "MOST_CALLS", 10)
    a = nodes.start(A)
    client, good = Peer(a.address, A), Peer(a.address, A, "good@127.0.0.1")
    bad = Peer(a.address, A, "bad@127.0.0.1")
    eventually(lambda: len(a.nodes()) == 3)
    question = Break(AgentId(1 << 12, client.name, 0), "no reason", "nobody")
    for _ in range(10):
        bad.ask(question)
    assert a.cluster is not None
    passed_on = a.cluster.inquiries._passed_on
    eventually(lambda: passed_on == {"bad@127.0.0.1": 10})
    good.ask(question)
    eventually(lambda: passed_on["good@127.0.0.1"] == 1)
    news = News(a)
    bad.ask(question)
    assert bad.is_closed()
    eventually(lambda: "it has more than 10 questions to forward here" in news.reasons())
    client.close()
    eventually(lambda: not a.cluster.inquiries._passed_on)
    assert "good@127.0.0.1" in a.nodes()
