"""Locks on several nodes: each requirement, deadlocks, nodes that go and come back."""

from __future__ import annotations

from typing import Any

import pytest

import locks
from tests.cluster.harness import World, until_alive
from tests.cluster.nodes import A, B, C, Nodes, Tx, peer, until_members
from tests.helpers import eventually

X, Y = ("x",), ("y",)
DEAD = "dead@127.0.0.1"
ALL = (A, B, C)


def requests(node: locks.node.Node, lock_id: Any = X) -> tuple[locks.values.Contender, ...]:
    """All requests for a lock id on a node."""
    return node.view(lock_id).requests


# --- The original's cases -----------------------------------------------------------------------


def test_the_originals_distributed_cases(world: World) -> None:
    """d_simple_lock_all, _majority, _any (one node is dead) and d_simple_read_lock, with processes."""
    one, two = world.server("one@127.0.0.1"), world.server("two@127.0.0.1")
    peers = [one.peer, two.peer]
    here, there = world.worker("here@127.0.0.1", peers), world.worker("there@127.0.0.1", peers)
    names = [one.name, two.name]
    until_alive(here, *names, there.name)
    until_alive(there, *names, here.name)

    here.do("begin")
    nodes = [here.name, *names]
    assert here.do("lock", lock_id=["all"], nodes=nodes, require="all") == "have_all_locks"
    nodes = [DEAD, *names]
    assert here.do("lock", lock_id=["maj"], nodes=nodes, require="majority") == "have_all_locks"
    nodes = [DEAD, one.name]
    assert here.do("lock", lock_id=["any"], nodes=nodes, require="any") == "have_all_locks"

    there.do("begin")
    for worker in (here, there):
        assert worker.do("lock", lock_id=["r"], mode="read", nodes=names) == "have_all_locks"
    waits = there.ask("lock", lock_id=["maj"], nodes=[DEAD, *names], require="majority")
    assert not waits.ready
    here.kill()
    assert waits.get() == "have_all_locks"


# --- Requirements -------------------------------------------------------------------------------


def test_majority(nodes: Nodes) -> None:
    """Two majorities exclude each other; one that is not there does not matter."""
    a, b, c = nodes.meet(*ALL)
    first, second = Tx(a), Tx(b)
    first.lock(X, ALL, "majority")
    eventually(lambda: first.granted(X) == ALL)  # the third one answers, too
    waits = second.ask(X, ALL, "majority")
    eventually(lambda: len(requests(a)) == 2)  # in one queue with all who want a majority
    assert not waits.done()
    c.stop()
    until_members(a, B)
    assert not waits.done()
    first.ensure_held()
    first.end()
    assert waits.result(5).status == "have_all_locks"
    with pytest.raises(locks.CannotServe) as error:
        Tx(a).lock(Y, (A, C, DEAD), "majority")
    assert set(error.value.nodes) == {C, DEAD}


@pytest.mark.parametrize("require", ["all_alive", "majority_alive"])
def test_of_those_alive(nodes: Nodes, require: str) -> None:
    """Of the nodes asked only those count that are up."""
    a, b, c = nodes.meet(*ALL)
    first, second = Tx(a), Tx(b)
    assert first.lock(X, (*ALL, DEAD), require).status == "have_all_locks"
    eventually(lambda: first.granted(X) == ALL)
    waits = second.ask(X, (*ALL, DEAD), require)
    eventually(lambda: len(requests(a)) == 2)
    assert not waits.done()
    c.stop()
    until_members(a, B)
    first.ensure_held()
    first.end()
    assert waits.result(5)
    third = Tx(a)
    with pytest.raises(locks.CannotServe):
        third.lock(X, (C, DEAD), require)


def test_readers_share_and_writers_do_not(nodes: Nodes) -> None:
    """Readers on different nodes read the same on all of them; a writer waits for both."""
    a, b, _ = nodes.meet(*ALL)
    readers, writer = [Tx(a), Tx(b)], Tx(a)
    for reader in readers:
        reader.lock(X, ALL, mode="read")
    waits = writer.ask(X, ALL)
    for reader in readers:
        assert not waits.done()
        reader.end()
    assert waits.result(5)
    assert writer.granted(X) == ALL


def test_a_timeout_withdraws_everywhere(nodes: Nodes) -> None:
    """After a timeout no node has a request left, and the next one finds the way free."""
    a, b, c = nodes.meet(*ALL)
    holder, late = Tx(a), Tx(b)
    holder.lock(X, (C,))
    with pytest.raises(locks.LockTimeout):
        late.lock(X, ALL, timeout=0.05)
    eventually(lambda: not requests(a) and not requests(b) and len(requests(c)) == 1)
    other = Tx(c)
    assert other.lock(X, (A, B), timeout=5)


def test_ids_that_can_not_be_sent(nodes: Nodes) -> None:
    """An id that other nodes could not be told of is refused, also on the own node."""
    (a,) = nodes.meet(A)
    tx = Tx(a)
    for wrong in ((object(),), (float("nan"),), ("\ud800",), (frozenset(),)):
        with pytest.raises(locks.errors.InvalidLockId):
            tx.lock(wrong)
    nested: Any = ("x", (1, 2.5, b"b", None, "a"))
    assert tx.lock(nested)
    assert tx.agent.lock_info()[0].lock_id == nested


# --- The end of clients and agents --------------------------------------------------------------


def test_the_end_of_a_client_releases_everywhere(nodes: Nodes) -> None:
    """When a client ends without a word, or its node does, all nodes have its locks free."""
    a, b, c = nodes.meet(*ALL)
    first, second = Tx(a), Tx(b)
    first.lock(X, ALL)
    waits = second.ask(X, ALL)
    eventually(lambda: len(requests(c)) == 2)
    first.die()
    assert waits.result(5)
    third = Tx(c)
    waits = third.ask(X, (A, C))
    eventually(lambda: len(requests(a)) == 2)
    b.stop()
    assert waits.result(5)


# --- Deadlocks ----------------------------------------------------------------------------------


def test_a_deadlock_across_two_nodes(nodes: Nodes) -> None:
    """Each has one and wants the other's: the younger yields, and both get all in the end."""
    a, b = nodes.meet(A, B)
    older, younger = Tx(a), Tx(b)
    older.lock(X, (A,))
    younger.lock(Y, (B,))
    first, second = older.ask(Y, (B,)), younger.ask(X, (A,))
    result = first.result(5)
    assert result.status == "have_all_locks"
    older.end()
    result = second.result(5)
    assert [deadlock.agent for deadlock in result.deadlocks] == [younger.agent.id]
    assert result.deadlocks[0].action == "surrendered"
    assert younger.granted(X) == (A,)
    assert younger.granted(Y) == (B,)


def test_a_deadlock_is_aborted(nodes: Nodes) -> None:
    """With `abort_on_deadlock` the one that must yield is aborted, with a report of the circle."""
    a, b = nodes.meet(A, B)
    older, younger = Tx(a), Tx(b, abort_on_deadlock=True)
    older.lock(X, (A,))
    younger.lock(Y, (B,))
    first, second = older.ask(Y, (B,)), younger.ask(X, (A,))
    with pytest.raises(locks.DeadlockAborted) as error:
        second.result(5)
    assert error.value.deadlock.agent == younger.agent.id
    agents = {edge.waiter.agent for edge in error.value.deadlock.cycle}
    assert agents == {older.agent.id, younger.agent.id}
    assert first.result(5)


# --- Nodes that are down, go down, and come back ------------------------------------------------


def test_a_node_that_is_down_when_asked(nodes: Nodes) -> None:
    """A node that is needed and down is an error, and nothing was changed; or it is awaited."""
    b = nodes.start(B)
    address = b.address
    b.stop()
    a = nodes.start(A, peers=[peer(b)])
    tx, waiter = Tx(a), Tx(a, await_nodes=True)
    with pytest.raises(locks.CannotServe) as error:
        tx.lock(X, (A, B))
    assert error.value.nodes == (B,)
    assert tx.agent.lock_info() == []
    assert tx.lock(Y, (A,))  # the transaction goes on
    waits = waiter.ask(X, (A, B))
    eventually(lambda: len(requests(a)) == 1)
    assert not waits.done()
    nodes.start(B, listen=address)
    assert waits.result(5).status == "have_all_locks"


def test_a_node_that_goes_down_while_it_is_waited_for(nodes: Nodes) -> None:
    """Who waits for a node that is lost is told so, unless it awaits nodes."""
    a, b = nodes.meet(A, B)
    holder, tx, waiter = Tx(b), Tx(a), Tx(a, await_nodes=True)
    holder.lock(X, (B,))
    asked, awaited = tx.ask(X, (B,)), waiter.ask(X, (B,))
    eventually(lambda: len(requests(b)) == 3)
    b.stop()
    with pytest.raises(locks.CannotServe) as error:
        asked.result(5)
    assert error.value.nodes == (B,)
    with pytest.raises(locks.LocksError):
        tx.lock(Y)  # the transaction has ended
    assert not awaited.done()
    again = nodes.start(B, listen=b.address)
    again.connect(peer(a))
    assert awaited.result(5).status == "have_all_locks"
    assert again.view(X).holders[0].agent == waiter.agent.id


def test_a_restarted_node_has_forgotten(nodes: Nodes) -> None:
    """A new incarnation grants what the old one had granted; nobody is told that it still has it."""
    a, b = nodes.meet(A, B)
    holder = Tx(a, await_nodes=True, notify=False)
    holder.lock(X, (B,))
    b.stop()
    eventually(lambda: holder.losses)
    again = nodes.start(B, listen=b.address)
    other = Tx(again)
    assert other.lock(X)  # before anybody else is there
    again.connect(peer(a))
    until_members(a, B)
    eventually(lambda: len(requests(again)) == 2)
    with pytest.raises(locks.LockLost):
        holder.ensure_held()
    other.end()
    eventually(lambda: holder.granted(X) == (B,))
    with pytest.raises(locks.LockLost):
        holder.ensure_held()  # until the client was told again
    assert holder.do(lambda: locks.original.await_all_locks(holder.agent, timeout=5))
    holder.ensure_held()
