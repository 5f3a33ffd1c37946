"""What a client is told when its locks are gone with a node, and tokens that fence it off."""

from __future__ import annotations

import logging
import signal
import socket
from typing import Any

import pytest

import locks
from locks.core.messages import Request
from locks.model import AgentId
from locks.net.frames import frame
from locks.net.messages import ToServer, encode
from locks.program.default import stand_in
from tests.cluster.harness import World
from tests.cluster.nodes import A, B, C, Nodes, Peer, Tx, peer, until_connected, until_members
from tests.cluster.servers import LIMIT, Servers
from tests.helpers import eventually

X, Y = ("x",), ("y",)

# --- Loss ---------------------------------------------------------------------------------------


def test_a_lost_lock_is_told(nodes: Nodes) -> None:
    """Event, callback and `ensure_held` say it, the transaction ends, and so it says at the exit."""
    a, b = nodes.meet(A, B)
    told: list[locks.LockLost] = []

    def block() -> None:
        with locks.transaction(timeout=5, on_lost=told.append) as tx:
            tx.lock(X, nodes=[B])
            tx.lock(Y, nodes=[A])
            tx.ensure_held()
            assert not tx.lost.is_open
            b.stop()
            assert tx.lost.wait(5)
            with pytest.raises(locks.LockLost):
                tx.ensure_held()
            with pytest.raises(locks.LockLost):
                tx.lock(("z",))

    with stand_in(a), pytest.raises(locks.LockLost) as error:
        block()
    assert error.value.lock_ids == (X,)
    assert error.value.nodes == (B,)
    eventually(lambda: told)
    assert told[0].lock_ids == (X,)
    assert told[0].nodes == (B,)
    assert a.statistics().table.entries == 0  # the other one was released


def test_await_nodes_after_a_loss(nodes: Nodes) -> None:
    """With `await_nodes` the transaction goes on: the lock is claimed anew when the node is back."""
    a, b = nodes.meet(A, B)
    tx = Tx(a, await_nodes=True)
    tx.lock(X, (A, B))
    b.stop()
    assert tx.agent.lost.wait(5)
    for _ in range(2):
        with pytest.raises(locks.LockLost):
            tx.ensure_held()
    assert tx.agent.is_alive()
    eventually(lambda: [each.kind for each in tx.told].count("lost") == 1)
    again = nodes.start(B, listen=b.address)
    again.connect(peer(a))
    # With `notify` it is told when it has the lock again, and may rely on it from then on.
    eventually(lambda: [each.kind for each in tx.told].count("have_all_locks") == 2)
    tx.ensure_held()
    tx.end()


class Failed(Exception):
    """What a block fails with."""


@pytest.mark.parametrize("how", ["block", "failing block", "release", "recursive"])
def test_a_lost_lock_is_given_up(nodes: Nodes, how: str) -> None:
    """Whoever leaves a block, or releases, while the lock is lost does not get it again when another server grants it."""
    a, b, c = nodes.meet(A, B, C)
    other = Tx(c)
    with stand_in(a):
        kind = locks.RLock if how == "recursive" else locks.Lock
        lock = kind(X, nodes=[A, B, C], require="majority", timeout=5)
        other.lock(X, (C,))

        def use() -> None:
            with lock:
                b.stop()
                eventually(lambda: not lock.owned())
                if how != "block":
                    raise Failed

        if how == "release":
            lock.acquire()
            b.stop()
            eventually(lambda: not lock.owned())
            with pytest.raises(locks.errors.NotHeld):
                lock.release()
        else:
            with pytest.raises(locks.LockLost if how == "block" else Failed):
                use()
        eventually(lambda: a.statistics().table.entries == 0)
        other.end()
        eventually(lambda: c.statistics().table.entries == 0)
        lock.acquire()
        lock.release()


# --- Fencing tokens -----------------------------------------------------------------------------


def test_tokens_of_a_restarted_node(nodes: Nodes) -> None:
    """The tokens of a single node go on increasing when it is restarted."""
    a, b = nodes.meet(A, B)
    last = 0
    for _ in range(3):
        tx = Tx(a)
        tx.lock(X, (B,))
        token = tx.token(X)
        assert token > last
        last = token
        b.stop()
        until_connected(a)
        b = nodes.start(B, listen=b.address)
        assert b.connect(peer(a))
        until_members(a, B)


@pytest.mark.parametrize("require", ["any", "majority_alive"])
def test_no_token_where_two_may_have_it(nodes: Nodes, require: Any) -> None:
    """Where two can have the lock at the same time a token means nothing: the error says so."""
    a, _ = nodes.meet(A, B)
    tx = Tx(a)
    tx.lock(X, (A, B), require)
    with pytest.raises(locks.errors.InvalidOption, match=require):
        tx.token(X)
    with pytest.raises(locks.errors.NotHeld):
        tx.token(Y)


def test_a_token_waits_for_nodes_that_confirm_it(nodes: Nodes) -> None:
    """A token that enough nodes do not confirm in time is a timeout; the lock stays."""
    a = nodes.start(A, mesh=False)
    b = nodes.start(B, mesh=False)
    proxy = nodes.proxy(b)
    assert a.connect(proxy.peer(B))
    until_members(a, B)
    tx = Tx(a)
    for number in range(5):  # so that the version of a is the larger one, which b is to confirm
        tx.lock((number,), (A,))
    tx.lock(X, (A, B))
    proxy.stall()
    with pytest.raises(locks.LockTimeout):
        tx.token(X, 0.1)
    proxy.heal()
    assert tx.token(X)


# --- What the log says ----------------------------------------------------------------------------


def test_a_loss_is_logged(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """The server that goes and comes, and the locks that go with it, with their fields."""
    caplog.set_level(logging.INFO, "locks")
    a, b = nodes.meet(A, B)

    def said(event: str, **fields: object) -> bool:
        told = [vars(each) for each in caplog.records if getattr(each, "event", "") == event]
        return any(fields.items() <= each.items() for each in told)

    eventually(lambda: said("node_up", node=A, peer=B))
    assert a.statistics().traffic.connections == 1
    tx = Tx(a)
    tx.ask(X, [B])
    eventually(lambda: tx.agent.machine.holds(X))
    tx.do(tx.agent.status)
    other, traffic = b.statistics().traffic, a.statistics().traffic
    assert 0 < other.messages_received <= traffic.messages_sent
    assert 0 < other.bytes_received <= traffic.bytes_sent
    b.stop()
    eventually(lambda: said("node_down", node=A, peer=B))
    eventually(lambda: said("lost", node=A, agent=str(tx.agent.id), locks=["x"]))
    assert a.statistics().lost == 1
    assert a.statistics().connections_lost == 1


def test_a_deadlock_over_nodes_is_logged_where_it_is_seen(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """The node that broke it says so, and that of the agent that yielded; it is counted by the first."""
    caplog.set_level(logging.INFO, "locks.deadlocks")
    a, b, c = nodes.meet(A, B, C)
    one, two = Tx(a), Tx(b)
    one.ask(X, [C])
    eventually(lambda: one.agent.machine.holds(X))
    two.ask(Y, [C])
    eventually(lambda: two.agent.machine.holds(Y))
    one.ask(Y, [C])
    two.ask(X, [C])
    eventually(lambda: c.statistics().broken.total)

    def told() -> set[str]:
        return {vars(r)["node"] for r in caplog.records if getattr(r, "event", "") == "deadlock"}

    eventually(lambda: told() == {B, C})
    assert sum(each.statistics().broken.total for each in (a, b, c)) == 1
    assert [each.statistics().deadlocks for each in (a, b, c)] == [0, 1, 0]


STOPPED = """
import locks, time
locks.start()
with locks.transaction() as tx:
    tx.write_lock(("a",))
    print("has it", flush=True)
    last = time.monotonic()
    while True:
        began = time.monotonic()
        try:
            tx.ensure_held()
        except locks.LockLost:
            print("lost", flush=True)
            break
        if began - last > 1:  # this call began after the stop
            print("held, it says", flush=True)
            break
        last = began
"""


def test_the_first_answer_after_a_stop_says_that_the_lock_is_lost(world: World) -> None:
    """A program is stopped (SIGSTOP) until another one has its lock; its clock shows that when it goes on."""
    servers = Servers(world, net_ticktime=1)
    program = servers.program(STOPPED)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "has it\n"
        program.send_signal(signal.SIGSTOP)
        next_one = "import locks\nwith locks.Lock(('a',), timeout=30):\n    print('has it, too')"
        assert servers.run(next_one) == "has it, too\n"
        program.send_signal(signal.SIGCONT)
        out, error = program.communicate(timeout=LIMIT)
        assert out == "lost\n", error
    finally:
        program.kill()
        program.communicate()


# --- Last words ---------------------------------------------------------------------------------


def requests_of(stranger: Peer, number: int) -> bytes:
    """Frames in which so many agents of a node each ask for a lock of their own."""
    frames = []
    for n in range(number):
        agent = AgentId(((10**15 + n) << 12) | n & 0xFFF, stranger.name, n & 0xFFF)
        frames.append(frame(encode(ToServer(Request(agent, "program", ("row", n), "write")))))
    return b"".join(frames)


@pytest.mark.parametrize(
    ("number", "last"),
    [(1, b"\0\0\0\1?"), (5_000, b""), (5_000, b"\0\0\0\1?")],
    ids=["nonsense", "end", "end in nonsense"],
)
def test_what_a_node_says_last_is_forgotten_with_it(nodes: Nodes, number: int, last: bytes) -> None:
    """Requests right before the end of a connection, in one piece with it: nothing of them stays.

    The end may be taken in in one turn with the last requests. A server that forgot the node first kept them for ever.
    """
    node = nodes.start(A)
    stranger = Peer(node.cluster.network.address, A)
    stranger.send(requests_of(stranger, number) + last)
    stranger.socket.shutdown(socket.SHUT_WR)
    assert stranger.is_closed()
    until_connected(node)
    eventually(lambda: node.statistics().table.entries == 0)
    assert node.statistics().table.requests == number  # in all
