"""Clients whose nodes are connected with lock servers only: their agents talk over channels."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent import futures
from typing import Any

import pytest
from locks.otp.tunnel import channels
from locks.otp.tunnel.messages import TUNNELS

import locks
from locks.core.messages import Knowledge, Released
from locks.otp.bytes import etf
from locks.wire.messages import pack
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


def relayed(*servers: locks.node.Node) -> int:
    """How many tunnels they relay; one over two servers counts twice."""
    return sum(len(each.cluster.tunnels.relay) for each in servers if each.cluster is not None)


def channels_of(node: locks.node.Node) -> channels.Channels:
    """Its channels."""
    assert node.cluster is not None
    return node.cluster.channels


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
    eventually(lambda: channels_of(first.node).is_open(others[0].node.name))
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
    """In a ring of four each client reaches two lock servers; some channels are by way of two servers."""
    # By age; in the ring, the third one is between the first and the second, who tell it of the fourth.
    reached = [(S1, S4), (S2, S3), (S1, S2), (S3, S4)]
    first, second, third, fourth = txs = spokes(nodes, SERVERS, reached)
    asked = ring((first, third, second, fourth), (S4, S1, S2, S3))
    assert resolved((first, third, second, fourth), asked) == 1
    for tx, names in zip(txs, reached, strict=True):
        assert set(tx.node.nodes()) == set(names)


def test_programs_have_one_channel_however_many_agents_they_have(nodes: Nodes) -> None:
    """Twenty rings over the same three programs take no more channels than one."""
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
    assert relayed(*nodes.started[:3]) <= 3


def test_a_channel_is_closed_when_nobody_wants_it(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left at the ends and at the relays; and there is a new one when it is wanted again."""
    monkeypatch.setattr(channels, "LINGER", 0.2)
    monkeypatch.setattr(channels, "PERIOD", 0.05)
    txs, asked = chain(nodes)
    close_ring(txs, asked)
    eventually(lambda: relayed(*nodes.started[:3]) == 0)
    for tx in txs:
        eventually(lambda node=tx.node: len(channels_of(node)) == 0)
    again = [Tx(tx.node) for tx in txs]
    assert resolved(again, ring(again, (S1, S2, S3, S1))) == 1


@pytest.mark.parametrize("how", ["tunnel", "relay"])
def test_what_was_lost_with_a_channel_is_said_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The relay closes it, or is lost with it: there is another one, and the deadlock is found over that."""
    monkeypatch.setattr(channels.random, "shuffle", lambda servers: servers.sort(reverse=True))
    where = (S2, S3, S2, S3)
    txs, asked = chain(nodes, where)
    hub = nodes.started[0]
    one = txs[1]
    before = channels_of(one.node)._channels[txs[0].node.name]
    assert before.key[0] == S1
    if how == "tunnel":
        assert hub.cluster is not None
        tunnels = hub.cluster.tunnels
        said = hub.turn.run(tunnels.relay.lost, one.node.name)
        hub.turn.run(tunnels._pass_on, said)
        for each in said:
            hub.turn.run(tunnels.send, one.node.name, TUNNELS, each.message)
    else:
        hub.stop()
    eventually(lambda: before not in channels_of(one.node)._channels.values())
    close_ring(txs, asked, where)


def test_a_client_that_does_not_read_holds_up_nobody(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than may wait for it is not kept: the channel is closed, and tried again later."""
    monkeypatch.setattr(channels, "MOST_WAITING", -1)
    monkeypatch.setattr(channels, "LONGEST", 0.05)
    monkeypatch.setattr(channels, "PERIOD", 0.02)
    closed: list[str] = []
    give_up = channels.Channels._give_up

    def noted(self: channels.Channels, channel: Any, why: str) -> None:
        closed.append(why)
        give_up(self, channel, why)

    monkeypatch.setattr(channels.Channels, "_give_up", noted)
    txs, asked = chain(nodes)
    eventually(lambda: len(closed) > 1)
    assert all("does not read" in why for why in closed)
    monkeypatch.setattr(channels, "MOST_WAITING", 1 << 20)
    close_ring(txs, asked)


def test_what_must_not_be_said_costs_the_channel_alone(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """A node says something for another one's agents, or nonsense: no connection and no lock is lost by it."""
    txs, asked = chain(nodes)
    other, one = txs[:2]
    there, peer = channels_of(one.node), other.node.name
    bad: list[Any] = [
        b"no term",
        etf.encode(1),
        etf.encode((1, 2)),
        etf.encode((other.agent.id.created, pack(Knowledge(other.agent.id, ()), other.agent.id))),
        etf.encode((other.agent.id.created, pack(Released(S1, ("lock 0",), ()), other.agent.id))),
    ]
    for number, data in enumerate(bad, 1):
        eventually(lambda: there.is_open(peer))
        one.node.turn.run(there.send, peer, data)
        eventually(lambda n=number: caplog.text.count("closes the channel") >= min(n, 1))
        eventually(lambda: not there.is_open(peer))
        one.node.turn.run(there._attempts.pop, peer, None)
        one.node.turn.run(there.want, peer)
    for tx in txs:
        assert set(tx.node.nodes()) == {S1, S2, S3}
    close_ring(txs, asked)


def test_there_is_none_between_nodes_that_are_connected(nodes: Nodes) -> None:
    """When they are connected it is closed, and one that is opened is refused."""
    (server,) = nodes.meet(A, mesh=False)
    one, other = (nodes.client(server, name=name) for name in CLIENTS[:2])
    one.turn.run(channels_of(one).want, other.name)
    eventually(lambda: channels_of(other).is_open(one.name))
    assert one.connect(other.name)
    eventually(lambda: not channels_of(one)._channels and not channels_of(other)._channels)
    one.turn.run(channels_of(one).want, other.name)
    eventually(lambda: not channels_of(one)._channels)
    assert link(one, other.name).closed is None
