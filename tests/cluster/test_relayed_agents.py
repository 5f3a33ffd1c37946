"""Clients whose nodes are connected with lock servers only: their agents talk through these."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent import futures
from typing import Any

import pytest

import locks
from locks.core.messages import Knowledge, Released
from locks.net import relay
from locks.net.messages import ToAgent, encode
from tests.cluster.nodes import A, Nodes, Tx, link
from tests.helpers import LIMIT, eventually

SERVERS = ("s1@127.0.0.1", "s2@127.0.0.1", "s3@127.0.0.1", "s4@127.0.0.1")
CLIENTS = ("c1@127.0.0.1", "c2@127.0.0.1", "c3@127.0.0.1", "c4@127.0.0.1")
S1, S2, S3, S4 = SERVERS


def spokes(nodes: Nodes, servers: Sequence[str], reached: Sequence[Sequence[str]]) -> list[Tx]:
    """Transactions on client nodes, each connected with some lock servers; these are with each other."""
    hubs = {node.name: node for node in nodes.meet(*servers, mesh=False)}
    made = []
    for name, names in zip(CLIENTS, reached, strict=False):
        made.append(nodes.client(*(hubs[each] for each in names), name=name))
    return [Tx(node) for node in made]


def ring(txs: Sequence[Tx], where: Sequence[str]) -> list[futures.Future[locks.values.LockResult]]:
    """Each one has a lock, and asks for the next one's; `where` says on which node each lock is."""
    for number, tx in enumerate(txs):
        tx.lock((f"lock {number}",), [where[number]])
    count = len(txs)
    after = [(number + 1) % count for number in range(count)]
    return [
        tx.ask((f"lock {wanted}",), [where[wanted]]) for tx, wanted in zip(txs, after, strict=True)
    ]


def resolved(txs: Sequence[Tx], asked: Sequence[futures.Future[locks.values.LockResult]]) -> int:
    """End each one that has all it asked for, until all have; how often one has yielded."""
    left = dict(zip(asked, txs, strict=True))
    yielded = set()
    while left:
        done, _ = futures.wait(left, LIMIT, futures.FIRST_COMPLETED)
        assert done, "stuck"
        for each in done:
            yielded |= {(d.agent, d.lock_id, d.server) for d in each.result().deadlocks}
            left.pop(each).end()
    return len(yielded)


def passing(*servers: locks.node.Node) -> int:
    """How many links pass through them; one over two servers counts twice."""
    return sum(len(relays(each).switch) for each in servers)


def relays(node: locks.node.Node) -> relay.Relays:
    """Its links through servers."""
    assert node.cluster is not None
    return node.cluster.relays


def chain(nodes: Nodes, where: Sequence[str] = (S1, S2, S3, S1)) -> tuple[list[Tx], list[Any]]:
    """Four clients that wait for each other in a chain, all but the last request of a ring.

    The oldest one is the second: it tells the first one of the third one.
    """
    servers = sorted({S1, *where})
    first, *others = spokes(nodes, servers, [servers] * 4)
    txs = [others[0], first, *others[1:]]
    for number, tx in enumerate(txs):
        tx.lock((f"lock {number}",), [where[number]])
    asked = [
        tx.ask((f"lock {number + 1}",), [where[number + 1]]) for number, tx in enumerate(txs[:3])
    ]
    eventually(lambda: others[0].node.name in relays(first.node).links)
    return txs, asked


def close_ring(
    txs: Sequence[Tx], asked: list[Any], where: Sequence[str] = (S1, S2, S3, S1)
) -> None:
    """The last request of the ring; it is resolved by one surrender."""
    asked.append(txs[3].ask(("lock 0",), [where[0]]))
    assert resolved(txs, asked) == 1


@pytest.mark.parametrize("where", [(S1, S1, S1), (S1, S2, S3)], ids=["one", "three"])
def test_a_ring_of_three(nodes: Nodes, where: tuple[str, ...]) -> None:
    """It is resolved by one surrender, though no client is connected with another one."""
    servers = sorted(set(where))
    txs = spokes(nodes, servers, [servers] * 3)
    assert resolved(txs, ring(txs, where)) == 1
    for name, node in zip(CLIENTS, nodes.started[len(servers) :], strict=False):
        assert node.name == name
        assert set(node.nodes()) == set(servers)


def test_clients_without_a_server_in_common(nodes: Nodes) -> None:
    """In a ring of four each client reaches two lock servers; some links are by way of two servers."""
    # By age; in the ring, the third one is between the first and the second, who tell it of the fourth.
    reached = [(S1, S4), (S2, S3), (S1, S2), (S3, S4)]
    first, second, third, fourth = txs = spokes(nodes, SERVERS, reached)
    asked = ring((first, third, second, fourth), (S4, S1, S2, S3))
    assert resolved((first, third, second, fourth), asked) == 1
    for tx, names in zip(txs, reached, strict=True):
        assert set(tx.node.nodes()) == set(names)


def test_programs_have_one_link_however_many_agents_they_have(nodes: Nodes) -> None:
    """Twenty rings over the same three programs take no more links than one."""
    txs = spokes(nodes, (S1, S2, S3), [(S1, S2, S3)] * 3)
    members, waits = [], []
    for number in range(20):
        ones = [Tx(tx.node) for tx in txs]
        for place, tx in enumerate(ones):
            tx.lock((f"ring {number}", place), [SERVERS[place]])
        for place, tx in enumerate(ones):
            after = (place + 1) % 3
            waits.append(tx.ask((f"ring {number}", after), [SERVERS[after]]))
        members += ones
    assert resolved(members, waits) == 20
    assert passing(*nodes.started[:3]) <= 3


def test_a_link_is_closed_when_nobody_needs_it(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left at the ends and at the relays; and there is a new one when it is needed again."""
    monkeypatch.setattr(relay, "LINGER", 0.2)
    monkeypatch.setattr(relay, "PERIOD", 0.05)
    txs, asked = chain(nodes)
    close_ring(txs, asked)
    eventually(lambda: passing(*nodes.started[:3]) == 0)
    for tx in txs:
        eventually(lambda node=tx.node: len(relays(node).links) == 0)
    again = [Tx(tx.node) for tx in txs]
    assert resolved(again, ring(again, (S1, S2, S3, S1))) == 1


@pytest.mark.parametrize("how", ["link", "server"])
def test_what_was_lost_with_a_link_is_said_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The server ends it, or is lost with it: there is another one, and the deadlock is found over that."""
    monkeypatch.setattr(relay, "TRIED", 1)
    monkeypatch.setattr(relay.random, "sample", lambda servers, count: sorted(servers)[:count])
    where = (S2, S3, S2, S3)
    txs, asked = chain(nodes, where)
    hub = nodes.started[0]
    one = txs[1]
    before = relays(one.node).links[txs[0].node.name]
    assert before.server == S1
    if how == "link":
        hub.turn.run(
            relays(hub).switch._end, before.session, "a test", one.node.name, txs[0].node.name
        )
    else:
        hub.stop()
    eventually(lambda: before.closed)
    close_ring(txs, asked, where)


def test_a_client_that_does_not_read_holds_up_nobody(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than may wait for it is not kept: the link ends, and is opened again later."""
    monkeypatch.setattr(relay, "LARGEST", -1)
    monkeypatch.setattr(relay, "LONGEST", 0.05)
    monkeypatch.setattr(relay, "PERIOD", 0.02)
    closed: list[str] = []
    lose = relay.RelayedLink.lose

    def noted(self: relay.RelayedLink, why: str) -> None:
        closed.append(why)
        lose(self, why)

    monkeypatch.setattr(relay.RelayedLink, "lose", noted)
    txs, asked = chain(nodes)
    eventually(lambda: sum("does not read" in why for why in closed) > 1)
    monkeypatch.setattr(relay, "LARGEST", 1 << 20)
    close_ring(txs, asked)


def test_what_must_not_be_said_costs_the_link_alone(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """A node says something for another one's agents, or nonsense: no connection and no lock is lost by it."""
    txs, asked = chain(nodes)
    other, one = txs[:2]
    there, peer = relays(one.node), other.node.name

    def told(message: Any) -> bytes:
        return encode(ToAgent(other.agent.id.created, message))

    bad: list[Any] = [
        b"no term",
        told(Knowledge(other.agent.id, ())),
        told(Released(S1, ("lock 0",), ())),
        told(Released(one.node.name, ("lock 0",), ())),
    ]
    for data in bad:
        eventually(lambda: peer in there.links)
        link = there.links[peer]
        one.node.turn.run(link.send, data)
        eventually(lambda link=link: link.closed)
    assert f"closed the connection to {one.node.name}" in caplog.text
    for tx in txs:
        assert set(tx.node.nodes()) == {S1, S2, S3}
    close_ring(txs, asked)


def test_there_is_none_between_nodes_that_are_connected(nodes: Nodes) -> None:
    """A server reaches clients of its own over its connections."""
    (server,) = nodes.meet(A, mesh=False)
    client = nodes.client(server, name=CLIENTS[0])
    client.turn.run(relays(client).want, A)
    server.turn.run(relays(server).want, client.name)
    client.turn.run(relays(client).wish, "it", {A})
    server.turn.run(relays(server).wish, "it", {client.name})
    eventually(lambda: not relays(client)._attempts and not relays(server)._attempts)
    assert not relays(client).links
    assert not relays(server).links
    assert link(client, A).closed is None
