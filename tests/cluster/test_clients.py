"""Agents whose client is on another node, and who watches lock ids of other nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pykka
import pytest

import locks
from locks.program.default import stand_in
from locks_lab.worlds.study import all_watchers
from tests.cluster.nodes import A, B, Nodes, link, peer, until_connected, until_members
from tests.helpers import eventually

X = ("x",)


class Client(pykka.ThreadingActor):
    """A client: it runs what it is sent, in its own thread, and keeps what it is told else."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        if callable(message):
            return message(self)
        self.told.append(message)
        return None


class Pair:
    """An agent of node a whose client is an actor of node b, where `do` is done."""

    def __init__(self, nodes: Nodes, **options: Any) -> None:
        self.a, self.b = nodes.meet(A, B, mesh=False)
        self.client = Client.start()
        self.b.register("client", self.client)
        keeper = Client.start()
        self.a.register("keeper", keeper)
        # The client sends its reference, and is given that of its agent.
        self.b.remote("keeper", A).tell(self.client)
        there = eventually(lambda: keeper.ask(lambda self: self.told))[0]
        assert isinstance(there, locks.node.RemoteRef)
        self.agent = self.a.spawn_agent(there, **options)
        there.tell(("agent", self.agent))
        ((_, self.ref),) = eventually(lambda: self.told)
        self.forget()

    def ask(self, job: Callable[[Any], Any]) -> Any:
        """Have the client do something with its agent; returns a future."""

        def perform(_: Client) -> Any:
            return job(self.ref)

        return self.client.ask(perform, block=False)

    def do(self, job: Callable[[Any], Any]) -> Any:
        """Have the client do something with its agent, and wait for it."""
        return self.ask(job).get(timeout=10)

    @property
    def told(self) -> list[Any]:
        """What the client was told."""
        return self.client.ask(lambda self: list(self.told), timeout=5)

    def forget(self) -> None:
        """Forget what it was told."""
        self.client.ask(lambda self: self.told.clear(), timeout=5)


@contextmanager
def program_of(node: locks.node.Node) -> Iterator[None]:
    """Let the functions of `locks` work on a node."""
    with stand_in(node):
        yield


def test_a_client_on_another_node(nodes: Nodes) -> None:
    """A client uses an agent of another node with the same functions as one of its own."""
    pair = Pair(nodes)
    with program_of(pair.b):
        assert isinstance(pair.ref, locks.node.RemoteRef)
        result = pair.do(lambda ref: locks.lock(ref, X, "read", [A, B], timeout=5))
        assert result == locks.values.LockResult("have_all_locks", ())
        pair.do(lambda ref: locks.lock_nowait(ref, ("y",), "write", [A]))
        pair.do(lambda ref: locks.await_all_locks(ref, timeout=5))
        assert pair.do(locks.transaction_status).status == "have_all_locks"
        infos = pair.do(locks.lock_info)
        assert {info.lock_id: info.granted for info in infos} == {X: (A, B), ("y",): (A,)}
        assert infos == pair.agent.lock_info()
        token = pair.do(lambda ref: locks.fencing_token(ref, X, timeout=5))
        assert token == eventually(lambda: pair.agent.machine.token(X))
        pair.do(lambda ref: locks.ensure_held(ref))
        pair.do(lambda ref: locks.unlock(ref, X))
        assert [info.lock_id for info in pair.do(locks.lock_info)] == [("y",)]
        pair.do(lambda ref: locks.change_flag(ref, "abort_on_deadlock", True))
        assert pair.a.view(("y",)).holders[0].agent == pair.agent.id
        pair.do(locks.end_transaction)
        with pytest.raises(locks.TransactionEnded):
            pair.do(lambda ref: locks.lock(ref, X, timeout=5))
    eventually(lambda: pair.a.statistics().agents == 0)


def test_nodes_by_default_are_the_clients(nodes: Nodes) -> None:
    """A client that names no nodes locks on its own node, wherever its agent is."""
    pair = Pair(nodes)
    with program_of(pair.b):
        pair.do(lambda ref: locks.lock(ref, X, timeout=5))
        assert pair.b.view(X).holders[0].agent == pair.agent.id
        assert pair.a.view(X).holders == ()


def test_only_the_client(nodes: Nodes) -> None:
    """Nobody but the client may use the agent, on its own node or another one."""
    pair = Pair(nodes)
    with program_of(pair.b):
        with pytest.raises(locks.errors.NotClient):
            locks.lock(pair.ref, X, timeout=5)
        with pytest.raises(locks.errors.NotClient):
            locks.end_transaction(pair.ref)
        assert locks.transaction_status(pair.ref).status == "no_locks"  # to be seen by everybody
    with program_of(pair.a), pytest.raises(locks.errors.NotClient):
        locks.lock(pair.agent, X, timeout=5)
    assert pair.agent.lock_info() == []


def test_misuse_by_a_client_elsewhere(nodes: Nodes) -> None:
    """What is wrong is refused with the same errors, and changes nothing."""
    pair = Pair(nodes)
    with program_of(pair.b):
        for error, wrong in (
            (locks.errors.InvalidLockId, lambda ref: locks.lock(ref, "x")),
            (locks.errors.InvalidOption, lambda ref: locks.lock(ref, X, "both")),  # type: ignore[arg-type]
            (locks.errors.InvalidOption, lambda ref: locks.lock(ref, X, nodes=[])),
            (locks.errors.InvalidOption, lambda ref: locks.lock(ref, X, timeout=-1)),
            (locks.errors.NotHeld, lambda ref: locks.unlock(ref, X)),
            (locks.errors.NotHeld, lambda ref: locks.fencing_token(ref, X)),
            (locks.CannotServe, lambda ref: locks.lock(ref, X, nodes=["none@127.0.0.1"])),
            (locks.errors.InvalidOption, lambda ref: locks.change_flag(ref, "notify", print)),
            (locks.MisuseError, lambda ref: locks.change_flag(ref, "no flag", True)),  # type: ignore[arg-type]
        ):
            with pytest.raises(error):
                pair.do(wrong)
        assert pair.do(locks.lock_info) == []


def test_a_timeout_withdraws(nodes: Nodes) -> None:
    """A client that stops waiting leaves nothing behind at the lock server."""
    pair = Pair(nodes)
    holder = pair.a.spawn_agent()
    holder.lock_all([(X, "write", (A,), "all")], 5)
    with program_of(pair.b):
        with pytest.raises(locks.LockTimeout):
            pair.do(lambda ref: locks.lock(ref, X, "write", [A], timeout=0.05))
        eventually(lambda: pair.a.view(X).waiting == ())
        assert pair.b.cluster is not None
        assert pair.b.cluster.processes._monitors == {}
        assert pair.do(locks.lock_info) == []
        holder.end_transaction()
        assert pair.do(lambda ref: locks.lock(ref, X, "write", [A], timeout=5))


@pytest.mark.parametrize("end", ["client", "connection"])
def test_the_end_of_the_client(nodes: Nodes, end: str) -> None:
    """An agent ends with its client, also when that is on another node and waits for a lock."""
    pair = Pair(nodes)
    other = pair.a.spawn_agent()
    other.lock_all([(("y",), "write", (A,), "all")], 5)
    with program_of(pair.b):
        pair.do(lambda ref: locks.lock(ref, X, "write", [A, B], timeout=5))
        waits = pair.ask(lambda ref: locks.lock(ref, ("y",), "write", [A]))
        eventually(lambda: pair.a.view(("y",)).waiting)
        if end == "client":
            pair.client.actor_stopped.set()
            pykka.ActorRegistry.unregister(pair.client)
        else:
            pair.a.disconnect(B)
        eventually(lambda: not pair.agent.is_alive())
        with pytest.raises(locks.TransactionEnded):
            waits.get(timeout=5)
    eventually(lambda: not pair.a.view(X).requests)
    eventually(lambda: not pair.b.view(X).requests)
    eventually(lambda: not pair.a.view(("y",)).waiting)


def test_notifications(nodes: Nodes) -> None:
    """A client on another node is notified by messages: agent, kind and value."""
    pair = Pair(nodes, notify=True)
    with program_of(pair.b):
        pair.do(lambda ref: locks.lock(ref, X, "write", [A], timeout=5))

        def kinds() -> list[str]:
            return [
                message[2]
                for message in pair.told
                if message[0] == locks.values.Atom("locks_agent")
            ]

        eventually(lambda: "have_all_locks" in kinds())
        assert "lock_info" in kinds()
        assert all(message[1] == pair.ref for message in pair.told)


def test_nothing_is_left_of_transactions(nodes: Nodes) -> None:
    """Many transactions of a client on another node leave nothing behind, there or here."""
    pair = Pair(nodes)
    keeper = pair.agent.client
    with program_of(pair.b):
        pair.do(locks.end_transaction)
        for _ in range(5):
            agent = pair.a.spawn_agent(keeper)
            keeper.tell(("agent", agent))
            eventually(lambda: pair.told)
            ((_, ref),) = pair.told
            pair.forget()
            pair.do(lambda _, ref=ref: locks.lock(ref, X, "write", [A], timeout=5))  # type: ignore[misc]
            with pytest.raises(locks.errors.NotHeld):
                pair.do(lambda _, ref=ref: locks.fencing_token(ref, ("z",)))  # type: ignore[misc]
            pair.do(lambda _, ref=ref: locks.end_transaction(ref))  # type: ignore[misc]
    eventually(lambda: pair.a.statistics().agents == 0)
    assert pair.a.cluster is not None
    assert pair.b.cluster is not None
    assert pair.a.cluster.clients._waits == {}
    eventually(lambda: not pair.a.cluster.processes._monitors)  # type: ignore[union-attr]
    eventually(lambda: not pair.b.cluster.processes._monitored)  # type: ignore[union-attr]


# --- Watching -----------------------------------------------------------------------------------


def _holders(views: list[locks.values.View]) -> list[Any]:
    return [tuple(contender.mode for contender in view.holders) for view in views]


def test_watching_a_lock_of_another_node(nodes: Nodes) -> None:
    """A watcher is told the state now, each change, and nothing any more when it has enough."""
    a, b = nodes.meet(A, B)
    views: list[locks.values.View] = []
    watcher = views.append
    agent = b.spawn_agent()
    agent.lock_all([(X, "read", (B,), "all")], 5)
    with program_of(a):
        locks.watch(X, [B], watcher=watcher)
        eventually(lambda: _holders(views) == [("read",)])
        assert views[0].node == B
        assert views[0].lock_id == X
        assert views[0].holders[0].agent == agent.id
        agent.end_transaction()
        eventually(lambda: _holders(views) == [("read",), ()])
        locks.watch(X, [B], watcher=watcher)  # again: the state now
        eventually(lambda: len(views) == 3)
        locks.unwatch(X, [B], watcher=watcher)
        eventually(lambda: b.server.machine.watchers(X) == [])
        with pytest.raises(locks.errors.NodeNotRunning):
            locks.watch(X, ["none@127.0.0.1"], watcher=watcher)
    another = b.spawn_agent()
    another.lock_all([(X, "write", (B,), "all")], 5)
    assert len(views) == 3


def test_watching_across_a_restart(nodes: Nodes) -> None:
    """After the node is back, its views come again."""
    a, b = nodes.meet(A, B)
    views: list[locks.values.View] = []
    with program_of(a):
        locks.watch(X, [B], watcher=views.append)
    eventually(lambda: views)
    b.stop()
    until_connected(a)
    again = nodes.start(B, listen=b.address)
    again.connect(peer(a))
    eventually(lambda: len(views) == 2)
    agent = again.spawn_agent()
    agent.lock_all([(X, "write", (B,), "all")], 5)
    eventually(lambda: _holders(views) == [(), (), ("write",)])


def test_an_actor_that_watches(nodes: Nodes) -> None:
    """An actor is told by messages; when it ends, or its node is lost, it watches no more."""
    a, b = nodes.meet(A, B, mesh=False)
    actor = Client.start()
    with program_of(a):
        locks.watch(X, [A, B], watcher=actor)
        nodes_told = eventually(
            lambda: sorted(view.node for view in actor.ask(lambda self: self.told)) == [A, B]
        )
        assert nodes_told
        locks.watch(("y",), [B], watcher=actor)
        eventually(lambda: b.server.watchers(("y",)))
        actor.stop()
        eventually(lambda: b.server.watchers(X) == b.server.watchers(("y",)) == [])
        locks.watch(X, [B], watcher=print)
    eventually(lambda: b.server.watchers(X))
    a.disconnect(B)
    eventually(lambda: b.server.watchers(X) == [])
    eventually(lambda: all_watchers(b.server.machine) == [])


def test_views_of_requests_between_others(nodes: Nodes) -> None:
    """A view is sent whatever places its requests have: one that goes ahead of others, too."""
    a, b = nodes.meet(A, B)
    views: list[locks.values.View] = []
    with program_of(a):
        locks.watch(X, [B], watcher=views.append)
    reader, writer = b.spawn_agent(), b.spawn_agent(threading.current_thread())
    reader.lock_all([(("x", 1), "read", (B,), "all")], 5)
    writer.ask_for([(X, "write", (B,), "all")])
    third = b.spawn_agent(threading.current_thread())
    third.ask_for([(X, "write", (B,), "all")])
    reader.ask_for([(("x", 1), "write", (B,), "all")])  # ahead of those who wait for it
    reader.ask_for([(X, "write", (B,), "all")])
    eventually(lambda: views and len(views[-1].requests) == 5)
    assert tuple(views[-1].requests) == b.view(X).requests
    assert link(a, B).closed is None
    until_members(a, B)


@pytest.mark.parametrize("youngest", ["inner", "outer"])
def test_a_client_on_another_node_with_two_agents(nodes: Nodes, youngest: str) -> None:
    """Its wait with one of them holds up the other one of the same node; a deadlock by that is found."""
    pair = Pair(nodes)
    outer, ref = pair.agent, pair.ref
    mine = pair.a.spawn_agent()
    second = pair.a.spawn_agent(outer.client, abort_on_deadlock=True)
    outer.client.tell(("agent", second))
    ((_, second_ref),) = eventually(lambda: pair.told)
    if youngest == "outer":
        outer, second, ref, second_ref = second, outer, second_ref, ref
    y = ("y",)
    with program_of(pair.b):
        pair.do(lambda _: locks.lock(ref, X, nodes=[A], timeout=5))
        mine.lock_all([(y, "write", (A,), "all")], 5)
        waits = pair.ask(lambda _: locks.lock(second_ref, y, nodes=[A], timeout=30))
        eventually(lambda: pair.a.view(y).waiting)
        mine.ask_for([(X, "write", (A,), "all")])
        with pytest.raises(locks.DeadlockAborted) as caught:
            waits.get(timeout=30)
        (report,) = mine.machine.deadlocks
        assert str(report) in str(caught.value)
        assert report.agent == (outer.id if youngest == "outer" else second.id)
        assert len(report.agents) == 3
        assert report.run_again == outer.id
        assert not pair.a.view(y).waiting
        if youngest == "inner":
            pair.do(lambda _: locks.end_transaction(ref))
        mine.await_all(30)
        mine.end_transaction()
        if youngest == "outer":
            pair.do(lambda _: locks.end_transaction(second_ref))
    eventually(lambda: pair.a.statistics().agents == 0)
