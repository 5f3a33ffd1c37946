"""Programs that only look on, or have nothing to do with it, and are stopped (SIGSTOP): they delay nobody."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pykka
import pytest

import locks
import locks_leader
from locks_leader import Behaviour
from tests.cluster.harness import World
from tests.cluster.nodes import Nodes, peer, until_members
from tests.cluster.servers import LIMIT, Servers
from tests.helpers import eventually
from tests.leader.harness import Member

ELECTION = (locks.values.Atom("locks_leader"), "r")  # the lock of the election about "r"
TICKTIME = 8  # seconds for which a stopped node counts as there
TOO_LONG = TICKTIME / 2


def leaders(members: list[Member]) -> list[Member]:
    """Those that lead."""
    return [each for each in members if (led := each.do("led")) and led[-1][1]]


def takeover(members: list[Member]) -> float:
    """Kill the leader; after how many seconds another one leads."""
    (leader,) = eventually(lambda: leaders(members))
    members.remove(leader)
    at = leader.kill()
    (new,) = eventually(lambda: leaders(members))
    took: float = new.do("led")[-1][0] - at
    return took


@pytest.mark.explore
@pytest.mark.parametrize(
    "mesh", [pytest.param(False, id="client"), pytest.param(True, id="node of the mesh")]
)
def test_a_stopped_observer_delays_no_election(world: World, mesh: bool) -> None:
    """A leader is killed while there is no observer, while one runs, and twice while it is stopped."""
    members: list[Member] = []

    def join(name: str, **options: bool) -> Member:
        peers = [member.peer for member in members]
        made = Member(name, peers=peers, net_ticktime=TICKTIME, **options)
        world.processes.append(made)
        others = {member.name for member in members}
        eventually(lambda: set(made.do("alive")) >= others)
        return made

    for number in range(5):
        members.append(join(f"n{number}@127.0.0.1"))
    for member in members:
        member.do("run_for", name="job")
    took = {"without": [takeover(members)]}
    observer = join("a@127.0.0.1", mesh=mesh, listen=mesh)
    took["running"] = [takeover(members)]
    observer.stop()
    took["stopped"] = [takeover(members), takeover(members)]
    print(f"the next leader leads after seconds, by what an observer does: {took}")
    assert max(took["stopped"]) < TOO_LONG


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
import locks, time
took = []
for _ in range(300):
    began = time.monotonic()
    with locks.transaction(timeout=30) as tx:
        tx.write_lock(("accounts", "ann"))
    took.append(time.monotonic() - began)
took.sort()
print(took[150], took[-4])
"""


@contextmanager
def beside(servers: Servers, stopped: bool) -> Iterator[None]:
    """While another program of the same servers has a lock and watches one, or is stopped meanwhile."""
    program = servers.program(LOOKS_ON)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        if stopped:
            subprocess.run(["kill", "-STOP", str(program.pid)], check=True)
        yield
    finally:
        program.kill()
        program.communicate(timeout=LIMIT)


@pytest.mark.explore
def test_a_stopped_client_delays_no_lock() -> None:
    """It watches a lock of the servers that others take, and holds another one: they need not wait for it; it prints how long they take."""
    with World() as world:
        servers = Servers(world)

        def times() -> tuple[float, float]:
            median, slow = map(float, servers.run(WORKS).split())
            return median, slow

        took = {"without": [times()], "running": [], "stopped": []}
        for _ in range(3):
            for how in ("running", "stopped"):
                with beside(servers, how == "stopped"):
                    took[how].append(times())
            took["without"].append(times())
        best = {how: min(each) for how, each in took.items()}
        print(f"median and 99th percentile of a lock in seconds, the best of several runs: {best}")
        assert max(slow for _, slow in took["stopped"]) < TOO_LONG
