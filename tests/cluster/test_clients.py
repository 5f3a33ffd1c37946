"""Agents whose client is on another node, and who watches lock ids of other nodes."""

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


@contextmanager
def program_of(node: locks.node.Node) -> Iterator[None]:
    """Let the functions of `locks` work on a node."""
    with stand_in(node):
        yield


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
