"""Actors that use the locks of another node: by an actor there, and by watching lock ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pykka
import pytest

import locks
from locks.program.default import stand_in
from locks_lab.worlds.study import all_watchers
from tests.cluster.nodes import A, B, Nodes, peer, until_connected
from tests.helpers import eventually

X = ("x",)


class Client(pykka.ThreadingActor):
    """It runs what it is sent, in its own thread, and keeps what it is told else."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        if callable(message):
            return message(self)
        self.told.append(message)
        return None


@contextmanager
def program_of(node: locks.node.Node) -> Iterator[None]:
    """Let the functions of `locks` work on a node."""
    with stand_in(node):
        yield


# --- An actor there ----------------------------------------------------------------------------


class Locker(pykka.ThreadingActor):
    """It locks for those who ask it."""

    use_daemon_thread = True

    def lock(self, lock_id: Any, timeout: float) -> int:
        """Lock an id; returns the fencing token."""
        if not hasattr(self, "agent"):
            self.agent = locks.original.spawn_agent()
        locks.original.lock(self.agent, lock_id, nodes=[A], timeout=timeout)
        return locks.original.fencing_token(self.agent, lock_id)


def test_a_lock_by_an_actor_there(nodes: Nodes) -> None:
    """Who wants a lock from another node asks an actor there. Its errors arrive with what they are about; its end releases the lock."""
    a, b = nodes.meet(A, B)
    with program_of(a):
        actors = [Locker.start() for _ in range(2)]
        for number, actor in enumerate(actors):
            a.register(f"locker {number}", actor)
        one, two = (b.remote(f"locker {number}", A).proxy() for number in range(2))
        token = one.lock(X, 5).get(timeout=60)
        assert a.view(X).holders[0].number == token
        with pytest.raises(locks.LockTimeout) as raised:
            two.lock(X, 0.05).get(timeout=60)
        assert raised.value.lock_ids == (X,)
        waits = two.lock(X, 60)
        actors[0].stop()
        assert waits.get(timeout=60) > token
        for actor in actors:
            actor.stop()
    eventually(lambda: not a.view(X).requests)


def test_a_client_is_on_its_agents_node(nodes: Nodes) -> None:
    """An agent has no client on another node, and is used by nobody there; the error says what to do."""
    a, b = nodes.meet(A, B)
    b.register("client", Client.start())
    with pytest.raises(locks.errors.InvalidOption, match="ask that actor"):
        a.spawn_agent(a.remote("client", B))
    agent = b.spawn_agent()
    agent.ask_for([(X, "write", (A,), "all")])
    (ref,) = eventually(lambda: a.server.proxy().agents(X).get())
    with program_of(a):
        for use in (
            locks.original.lock_info,
            locks.original.end_transaction,
            lambda ref: locks.original.lock(ref, X),
        ):
            with pytest.raises(locks.MisuseError, match="ask that actor"):
                use(ref)
        for call in (
            lambda: ref.proxy().lock_info().get(timeout=60),
            lambda: ref.ask("x", timeout=60),
        ):
            with pytest.raises(locks.MisuseError, match="only on its own node"):
                call()
        assert agent.is_alive()
        locks.facts.break_transaction(ref, reason="it is named by its reference", by="me")
    eventually(lambda: not agent.is_alive())


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
