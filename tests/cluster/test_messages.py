"""What peers send of ids, and thousands of agents of a node that is lost."""

from __future__ import annotations

from concurrent import futures
from functools import partial
from typing import Any

import pytest

import locks
from locks.core.messages import Request
from locks.lock_ids import MOST_ELEMENTS
from locks.model import AgentId
from tests.cluster.nodes import A, B, C, News, Nodes, Tx, peer, until_members
from tests.helpers import LIMIT, eventually

X = ("x",)


def holders(node: locks.node.Node) -> list[AgentId]:
    """Who holds `x` there."""
    return [contender.agent for contender in node.view(X).holders]


@pytest.mark.parametrize("lock_id", [("x",) * (MOST_ELEMENTS + 1), ("x" * 70_000,)], ids=len)
def test_what_a_peer_sends_has_the_same_limits(nodes: Nodes, lock_id: Any) -> None:
    """An id that is too large is never asked for; its node loses its connection, and others lose nothing."""
    a, b, c = nodes.meet(A, B, C)
    holder = a.spawn_agent()
    holder.lock_all([(X, "write", (A,), "all")], 5)
    probe = c.spawn_agent()
    assert probe.lock_all([(("z",), "write", (A,), "all")], 5).status == "have_all_locks"
    news = News(a)
    agent = b.spawn_agent()
    b.turn.run(b.perform, agent, agent.machine.ask(lock_id, "write", (A,), "all"))
    eventually(lambda: [each.node for each in news.told[:1]] == [B])
    assert "invalid message: lock id" in news.told[0].reason  # type: ignore[union-attr]
    assert a.view(("x",)).holders[0].agent == holder.id
    assert a.statistics().table.entries == 2
    probe.ensure_held()
    for each in (probe, holder):
        each.end_transaction()


def test_a_deadlock_through_two_transactions_of_a_client_over_nodes(nodes: Nodes) -> None:
    """What stands for a client's wait in another transaction is told to agents of other nodes, too."""
    a, b = nodes.meet(A, B)
    clients = [Tx(node, abort_on_deadlock=True) for node in (a, b)]
    ids = [(("one",), A), (("other",), B)]
    for client, (lock_id, where) in zip(clients, ids, strict=True):
        client.lock(lock_id, [where])

    def second(client: Tx, lock_id: Any, where: str) -> str:
        agent = client.node.spawn_agent(abort_on_deadlock=True)
        try:
            locks.original.lock(agent, lock_id, "write", [where], "all", timeout=LIMIT)
        except locks.DeadlockAborted:
            return "aborted"
        agent.end_transaction()
        return "locked"

    waits = [
        client.later(partial(second, client, *ids[1 - number]))
        for number, client in enumerate(clients)
    ]
    done, _ = futures.wait(waits, LIMIT, futures.FIRST_COMPLETED)
    first = waits.index(next(iter(done)))
    assert waits[first].result() == "aborted"
    clients[first].die()  # the other one gets its lock by that
    assert waits[1 - first].result(LIMIT) in ("locked", "aborted")
    clients[1 - first].die()


def test_thousands_of_agents_leave_a_few_at_a_time(nodes: Nodes) -> None:
    """When their node is lost, others are served meanwhile; a node that is back begins with nothing."""
    a, b = nodes.meet(A, B)
    number = 500
    for each in range(number):
        agent = AgentId(each << 12, B, 0)
        assert b.cluster is not None
        b.turn.run(b.cluster.send_to_server, A, agent, Request(agent, "x", X, "read"))
    eventually(lambda: len(holders(a)) == number)
    assert a.disconnect(B)
    assert 0 < len(holders(a)) < number
    assert a.connect(peer(b))
    until_members(a, A, B)
    assert holders(a) == []
