"""Clients whose nodes are connected with lock servers only, and never with each other."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent import futures

import pytest

import locks
from locks.core.messages import Knowledge, Relay, Undelivered
from locks.node.peers import relaying
from tests.cluster.nodes import Nodes, Tx, link
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


def ring(txs: Sequence[Tx], where: Sequence[str]) -> list[futures.Future[locks.LockResult]]:
    """Each one has a lock, and asks for the next one's; `where` says on which node each lock is."""
    for number, tx in enumerate(txs):
        tx.lock((f"lock {number}",), [where[number]])
    count = len(txs)
    after = [(number + 1) % count for number in range(count)]
    return [
        tx.ask((f"lock {wanted}",), [where[wanted]]) for tx, wanted in zip(txs, after, strict=True)
    ]


def resolved(txs: Sequence[Tx], asked: Sequence[futures.Future[locks.LockResult]]) -> int:
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


@pytest.mark.parametrize("where", [(S1, S1, S1), (S1, S2, S3)], ids=["one", "three"])
def test_a_ring_of_three(nodes: Nodes, where: tuple[str, ...]) -> None:
    """It is resolved by one surrender, though no client is connected with another one."""
    servers = sorted(set(where))
    txs = spokes(nodes, servers, [servers] * 3)
    assert resolved(txs, ring(txs, where)) == 1
    for name, node in zip(CLIENTS, nodes.started[len(servers) :], strict=False):
        assert node.name == name
        assert set(node.nodes()) == set(servers)


def test_two_relays(nodes: Nodes) -> None:
    """In a ring of four each client reaches two lock servers; some of what is told goes over two."""
    said: list[object] = []
    # By age; in the ring, the third one is between the first and the second, who tell it of the fourth.
    reached = [(S1, S4), (S2, S3), (S1, S2), (S3, S4)]
    first, second, third, fourth = txs = spokes(nodes, SERVERS, reached)
    for node in nodes.started[:4]:
        node._dispatch.trace = lambda *event: said.append(event[2])
    asked = ring((first, third, second, fourth), (S4, S1, S2, S3))
    assert resolved((first, third, second, fourth), asked) == 1
    assert any(isinstance(message, Relay) and not message.over for message in said)
    for tx, names in zip(txs, reached, strict=True):
        assert set(tx.node.nodes()) == set(names)


def test_what_is_held_back_is_said_again(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client does not read: what is relayed to it is not kept, and its sender says it again later."""
    monkeypatch.setattr(relaying, "MOST_WAITING", -1)
    txs = spokes(nodes, (S1,), [(S1,)] * 3)
    hub = nodes.started[0]
    asked = ring(txs, (S1, S1, S1))
    assert hub.cluster is not None
    held = hub.cluster.relaying._held
    # Each time the link is drained, which it always is, the sender is told and says it again.
    eventually(lambda: hub.cluster.node.server.machine._relays.passed)
    monkeypatch.setattr(relaying, "MOST_WAITING", 1 << 20)
    for tx in txs:
        hub.turn.run(link(hub, tx.node.name).send, b"")
    assert resolved(txs, asked) == 1
    assert not any(held.values())


def test_nobody_relays_for_strangers(nodes: Nodes) -> None:
    """A lock server passes nothing on to an agent that has no request there, and says so."""
    one, two, _ = spokes(nodes, (S1,), [(S1,)] * 3)
    hub = nodes.started[0]
    told: list[object] = []
    hub._dispatch.trace = lambda *event: told.append(event[2])
    one.lock(("x",), [S1])
    server = hub.server
    says = Knowledge(one.agent.id, ())
    server.tell(Relay(one.agent.id, two.agent.id, (), says))
    eventually(lambda: Undelivered(S1, two.agent.id) in told)
    assert says not in told
    for tx in (one, two):
        tx.end()
