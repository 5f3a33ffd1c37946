"""Greetings: what nodes tell each other of others, and what becomes of a greeting that is wrong.

The peers that say what is wrong go through the handshake as any other (`peers.Peer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import locks
from locks.net.link import Link
from locks.net.messages import Greeting
from tests.cluster.nodes import ODD, A, B, C, Nodes, Peer, peer, until_connected, until_members
from tests.helpers import eventually


def peer_of(node: locks.node.Node, ticktime: float = 15.0) -> Peer:
    """A peer that says what a test wants it to say, connected with a node."""
    return Peer(node.address, node.name, ticktime=ticktime)


def greetings(odd: Peer) -> Iterator[Greeting]:
    """What it is greeted with, greeting by greeting; each is answered."""
    for call in odd.calls():
        odd.answer(call)
        if isinstance(call.question, Greeting):
            yield call.question


def addresses(node: locks.node.Node) -> dict[str, Any]:
    """The nodes that a node knows of."""
    assert node.cluster is not None
    return {name: each.address for name, each in node.cluster.network.book.known.items()}


def knows(node: locks.node.Node, *names: str) -> Callable[[], bool]:
    """Whether a node knows of these nodes, and no others."""
    return lambda: set(addresses(node)) == set(names)


# --- A greeting that is wrong -------------------------------------------------------------------


@pytest.mark.parametrize("version", [2**62, 2**63 - 1])
def test_a_greeting_of_another_time_is_refused_in_words(nodes: Nodes, version: int) -> None:
    """Nothing changes, and this node knows why it does not use the other one; so does the other one, by the answer."""
    a, _ = nodes.meet(A, B)
    before = (dict(addresses(a)), a.server.machine.version, set(a.alive))
    odd = peer_of(a)
    odd.greet(version=version)
    eventually(lambda: "days; correct them" in a.refusals.get(odd.name, ""))
    assert (dict(addresses(a)), a.server.machine.version, set(a.alive)) == before
    assert not odd.is_closed(0.1)
    odd.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2**63},
        {"known": [("x@127.0.0.1", "127.0.0.1", 70_000)]},
        {"known": [("x", "127.0.0.1", 9)]},
        {"known": [("x@127.0.0.1", "127.0 .0.1", 9)]},
        {"known": [(f"x{n}@127.0.0.1", "127.0.0.1", 9) for n in range(10_000)]},
    ],
    ids=["version", "port", "name", "host", "10,000 names"],
)
def test_a_wrong_greeting_ends_the_connection_and_changes_nothing(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, wrong: dict[str, Any]
) -> None:
    """It is closed with a reason; nobody is told of it, and nobody else notices."""
    a, b = nodes.meet(A, B)
    reasons: list[str] = []
    a.monitor_nodes(lambda news: reasons.append(getattr(news, "reason", "")))
    before = (dict(addresses(a)), a.server.machine.version, set(a.alive))
    odd = peer_of(a)
    odd.greet(*wrong.pop("known", ()), **wrong)
    assert odd.is_closed()
    eventually(lambda: any("invalid message" in reason for reason in reasons))
    eventually(lambda: "invalid message" in caplog.text)
    assert max(map(len, reasons)) <= 350
    until_connected(a, B)
    assert (dict(addresses(a)), a.server.machine.version, set(a.alive)) == before
    assert knows(b, A)()
    tx = a.spawn_agent()
    tx.lock_all([(("x",), "write", (A, B), "all")], 10)
    tx.end_transaction()


# --- One who wants too much ---------------------------------------------------------------------


def test_a_short_ticktime_is_for_one_link(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wants to hear often is sent many heartbeats; all others as many as before."""
    beats: list[str] = []
    beat = Link.beat

    def noted(link: Link) -> None:
        beats.append(link.peer.name)
        beat(link)

    monkeypatch.setattr(Link, "beat", noted)
    a, _ = nodes.meet(A, B)
    odd = peer_of(a, ticktime=0.1)
    eventually(lambda: beats.count(ODD) > 20)
    assert beats.count(B) <= 3
    odd.close()


# --- Who is told what, when ---------------------------------------------------------------------


def test_only_what_is_new_is_said(nodes: Nodes) -> None:
    """On a connection all is said once; later of each newcomer once, and of nobody else."""
    a, _ = nodes.meet(A, B)
    odd = peer_of(a)
    odd.greet()
    told = greetings(odd)
    assert sorted(news.name for news in next(told).known) == [A, B]
    c = nodes.start(C, peers=[peer(a)])
    until_members(c, A, B, C)
    assert [news.name for news in next(told).known] == [C]
    c.stop()
    until_members(a, A, B, ODD)
    d = nodes.start("d@127.0.0.1", peers=[peer(a)])
    until_members(d, A, B, d.name)
    assert [(news.name, news.age) for news in next(told).known] == [(d.name, 0.0)]
    odd.close()
