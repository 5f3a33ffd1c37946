"""Limits of what each program may have at a lock server: one too many is refused, with an error, and nothing else is harmed."""

from __future__ import annotations

import logging
import re
from concurrent.futures import Future
from typing import Any

import pytest

import locks
import locks_leader
from locks.errors import LimitExceeded
from locks.node.server import listener
from tests.cluster.nodes import A, Nodes, Tx, link, until_members
from tests.helpers import LIMIT, eventually


def refusal(asked: Future[Any]) -> LimitExceeded:
    """The error of a call that is refused."""
    with pytest.raises(LimitExceeded) as error:
        asked.result(LIMIT)
    return error.value


def test_one_request_too_many_is_refused(nodes: Nodes) -> None:
    """The error has the limit, what the program has, and the server; the locks of this transaction, of others, and of other programs stay. What is released can be had again."""
    a = nodes.start(A, limits={"requests": 3})
    client, other = nodes.client(a), nodes.client(a)
    one, two = Tx(client), Tx(client)
    before = link(client, A)
    for number in range(2):
        one.lock(("x", number), [A])
    two.lock(("y",), [A])
    error = refusal(one.ask(("z",), [A]))
    assert (error.node, error.what, error.limit, error.present) == (A, "requests", 3, 3)
    assert "could not get the write lock on z: this program has 3 locks and requests at" in str(
        error
    )
    refusal(Tx(client).ask(("z",), [A]))
    one.lock(("x", 0), [A])  # it has it
    one.lock(("x", 0), [A], mode="read")
    Tx(other).lock(("z",), [A])
    Tx(a).lock(("w",), [A])  # programs on the server itself have no limit
    one.ensure_held()
    two.ensure_held()
    assert link(client, A) is before
    assert not [each for each in a.view(("z",)).requests if each.agent.node == client.name]
    one.do(lambda: locks.original.unlock(one.agent, ("x", 1)))
    one.lock(("v",), [A])
    two.end()
    last = Tx(client)  # without the name, its thread would end
    last.lock(("u",), [A])
    assert a.statistics().refused == 2
    assert a.statistics().fullest == 100


def test_one_wait_too_many_is_refused_and_free_locks_are_not(nodes: Nodes) -> None:
    """The limit of waits is no limit of locks; it is checked for each program, and a wait that is over makes room."""
    a = nodes.start(A, limits={"waits": 2})
    client, other = nodes.client(a), nodes.client(a)
    holder = Tx(other)
    for number in range(4):
        holder.lock(("x", number), [A])
    waiters = [Tx(client) for _ in range(3)]
    asked = [waiters[number].ask(("x", number), [A]) for number in range(2)]
    eventually(lambda: a.server.machine.statistics().waiting == 2)
    error = refusal(waiters[2].ask(("x", 2), [A]))
    assert (error.what, error.limit, error.present) == ("waits", 2, 2)
    assert (
        "Wait for some first, or start a@127.0.0.1 with a higher limit (LOCKS_LIMITS=waits=...)"
        in str(error)
    )
    for number in range(5):
        waiters[2].lock(("free", number), [A])
    holder.do(lambda: locks.original.unlock(holder.agent, ("x", 0)))
    asked[0].result(LIMIT)
    third = waiters[2].ask(("x", 2), [A])
    eventually(lambda: a.server.machine.statistics().waiting == 2)
    holder.end()
    third.result(LIMIT)
    asked[1].result(LIMIT)


def test_a_refused_upgrade_keeps_the_read_lock(nodes: Nodes) -> None:
    """A read lock whose upgrade is one request too many is still held, and others still can't write."""
    a = nodes.start(A, limits={"requests": 1})
    tx, other = Tx(nodes.client(a)), Tx(nodes.client(a))
    tx.lock(("x",), [A], mode="read")
    refusal(tx.ask(("x",), [A], mode="write"))
    tx.ensure_held(("x",))
    with pytest.raises(locks.LockTimeout):
        other.ask(("x",), [A], timeout=0).result(LIMIT)


def test_one_watch_too_many_is_refused(nodes: Nodes) -> None:
    """The call raises, the watches that there are go on, and one that ends makes room. Several watchers of one id count once."""
    a = nodes.start(A, limits={"watches": 2})
    client, other = nodes.client(a), nodes.client(a)
    views: list[Any] = []
    watcher = listener(views.append)
    for lock_id in (("x",), ("y",)):
        client.watch_elsewhere(A, lock_id, watcher, True)
    client.watch_elsewhere(A, ("x",), listener(print), True)
    with pytest.raises(
        LimitExceeded, match="could not watch z: this program has 2 watches"
    ) as error:
        client.watch_elsewhere(A, ("z",), watcher, True)
    assert (error.value.what, error.value.limit) == ("watches", 2)
    other.watch_elsewhere(A, ("z",), watcher, True)
    Tx(other).lock(("y",), [A])
    eventually(lambda: any(view.requests for view in views))
    assert client.cluster is not None
    client.turn.run(client.cluster.views.unwatch, A, ("y",), watcher)
    client.watch_elsewhere(A, ("z",), watcher, True)


def test_watches_that_were_begun_before_the_server_came(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that allows fewer watches than a program has gets as many as it allows; the rest is logged, and the connection lasts."""
    a = nodes.start(A)
    assert a.address is not None
    client = nodes.client(a)
    views: list[Any] = []
    for number in range(4):
        client.watch_elsewhere(A, ("x", number), listener(views.append), True)
    eventually(lambda: len(views) >= 4)
    a.stop()
    until_members(client)
    with caplog.at_level(logging.WARNING):
        again = nodes.start(A, listen="{}:{}".format(*a.address), limits={"watches": 2})
        until_members(client, A)
        eventually(lambda: "watched no x/2: this program has 2 watches" in caplog.text)
    eventually(lambda: again.statistics().watches == 2)
    assert link(again, client.name).closed is None


@pytest.mark.slow
def test_an_election_at_a_limit_says_so_and_goes_on_later(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs the refusal once, names it where a call times out, asks again in a while, and leads when there is room."""

    class Polite(locks_leader.Behaviour):
        def handle_leader_call(self, request: Any, *_: Any) -> Any:
            return request

    a = nodes.start(A, limits={"requests": 2})
    client = nodes.client(a)
    tx = Tx(client)
    tx.lock(("x",), [A])  # an election needs two
    instance = locks_leader.start(Polite, resource="e", nodes=[A], node=client)
    refused = r"could not get the write lock on election .e. merge: this program has 2 locks"
    eventually(lambda: re.search(f"waiting to be elected in 'e': {refused}", caplog.text))
    with pytest.raises(locks_leader.LeaderTimeout, match=refused):
        locks_leader.leader_call(instance, 1, timeout=0.1)
    instance.stop()
    other = locks_leader.Election("f", nodes=[A], node=client)
    with pytest.raises(locks_leader.LeaderTimeout, match=refused.replace(".e.", ".f.")):
        other.run(print, timeout=2)
    assert 2 <= a.statistics().refused < 10
    instance = locks_leader.start(Polite, resource="e", nodes=[A], node=client)
    tx.end()
    assert locks_leader.leader_call(instance, 2, timeout=LIMIT) == 2
    instance.stop()
