"""Programs that only look on, or have nothing to do with it, and are stopped (SIGSTOP): they delay nobody."""

from __future__ import annotations

import signal
from typing import Any

import pykka

import locks
import locks_leader
from locks_leader import Behaviour
from tests.cluster.harness import World
from tests.cluster.nodes import Nodes, peer, until_members
from tests.cluster.servers import LIMIT, Servers
from tests.helpers import eventually

ELECTION = ("$election", "r")  # the lock of the election about "r"


def test_a_node_without_instances_is_not_asked(nodes: Nodes) -> None:
    """Not when it is first there, nor when it comes later; but as soon and as long as somebody takes part."""
    alone, here, there = everywhere = nodes.meet("m0@127.0.0.1", "m1@127.0.0.1", "m2@127.0.0.1")

    def begin(node: locks.node.Node) -> pykka.ActorRef[Any]:
        return locks_leader.start(Behaviour, resource="r", node=node)

    def asked() -> list[str]:
        return [node.name for node in everywhere if node.view(ELECTION).requests]

    first = [begin(here), begin(there)]
    eventually(lambda: all(locks_leader.info(ref).leader is not None for ref in first))
    leader, follower = sorted(first, key=lambda ref: locks_leader.info(ref).role != "leader")
    assert asked() == [here.name, there.name]
    later = nodes.start("a@127.0.0.1")
    for node in everywhere:
        assert later.connect(peer(node))
    everywhere.append(later)
    for node in everywhere:
        until_members(node, *(each.name for each in everywhere))
    newcomers = [begin(alone), begin(later)]
    eventually(lambda: all(locks_leader.info(ref).leader is not None for ref in newcomers))
    assert len(asked()) == len(everywhere)
    for ref in newcomers:
        ref.stop()
    eventually(lambda: len(locks_leader.info(follower).candidates) == 1)
    leader.stop()
    eventually(lambda: locks_leader.info(follower).role == "leader")
    eventually(lambda: not {alone.name, later.name} & set(asked()))  # the old leader's locks go


LOOKS_ON = """
import locks, threading
locks.watch(("accounts", "ann"), watcher=lambda view: None)
with locks.transaction(timeout=30) as tx:
    tx.write_lock(("mine",))
    print("ready", flush=True)
    threading.Event().wait()
"""
WORKS = """
import locks
for _ in range(50):
    with locks.transaction(timeout=30) as tx:
        tx.write_lock(("accounts", "ann"))
print("done")
"""


def test_a_stopped_client_delays_no_lock(world: World) -> None:
    """It watches a lock of the servers that others take, and holds another one: they need not wait until it counts as lost."""
    servers = Servers(world, net_ticktime=600)
    program = servers.program(LOOKS_ON)
    try:
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGSTOP)
        assert servers.run(WORKS) == "done\n"
    finally:
        program.kill()
        program.communicate(timeout=LIMIT)
