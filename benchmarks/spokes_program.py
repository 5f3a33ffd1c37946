"""A program with many nodes, for `benchmarks.spokes`: client nodes, or nodes of a mesh.

It does what each line of its input says; each line of its output is JSON. All that it does happens in one
hub: it is patched by gevent. Times are of `time.monotonic`, one clock for all processes of a machine.
"""

# ruff: noqa: E402  (what is patched must be patched first)

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import gc
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import gevent
import gevent.event

import locks
from benchmarks.lab import COOKIE, HOST
from locks.node.node import Node
from locks.node.options import Options, client_name

__all__: list[str] = []

Place = tuple[Any, Sequence[str], locks.values.Require]
"""A lock id, the nodes where it is locked, and how many of them are needed."""


def say(**what: Any) -> None:
    """Write a line."""
    os.write(1, (json.dumps(what) + "\n").encode())


class Member:
    """One client in a ring: it has its own place, and wants the next one's when it is told so."""

    def __init__(self, node: Node, number: int, own: Place, wanted: Place) -> None:
        self._node, self._number, self._own, self._wanted = node, number, own, wanted
        self.go = gevent.event.Event()
        self.greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        agent = self._node.spawn_agent()
        lock_id, nodes, require = self._own
        locks.original.lock(agent, lock_id, "write", nodes, require)
        say(held=self._number)
        self.go.wait()
        lock_id, nodes, require = self._wanted
        asked = time.monotonic()
        try:
            done = locks.original.lock(agent, lock_id, "write", nodes, require)
        except locks.LocksError as error:
            say(done=self._number, asked=asked, at=time.monotonic(), error=repr(error))
            raise
        at = time.monotonic()
        locks.original.end_transaction(agent)
        own = sum(report.agent == agent.id for report in done.deadlocks)
        say(done=self._number, asked=asked, at=at, yielded=own)


class Program:
    """The nodes of this process, by the world that they belong to."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[Node]] = {}
        self.members: dict[int, Member] = {}
        self.toiling = False
        self.took: list[float] = []

    def start(self, world: str, number: int, peers: list[str], mesh: bool) -> dict[str, Any]:
        """Start nodes, and wait until they are connected with their peers."""
        made = self.nodes.setdefault(world, [])
        new = []
        for _ in range(number):
            name = f"n{os.getpid()}-{world}-{len(made)}@{HOST}" if mesh else client_name()
            options = Options.check(
                name,
                cookie=COOKIE,
                listen=None,
                peers=peers,
                tls=None,
                net_ticktime=None,
                mesh=mesh,
                allow_plaintext=False,
            )
            node = Node(name, None, options)
            new.append(node)
            made.append(node)
        names = [peer.rpartition(":")[0] for peer in peers]
        for node in new:
            node.await_nodes(names)
        return {"names": [node.name for node in new]}

    def alive(self, world: str, names: list[str]) -> dict[str, Any]:
        """How many lock servers each node of a world can ask at least, and whether these are among them."""
        alive = [node.alive for node in self.nodes.get(world, ())]
        return {
            "least": min(map(len, alive), default=0),
            "all": all(each.issuperset(names) for each in alive),
        }

    def stop(self, world: str) -> dict[str, Any]:
        """Stop the nodes of a world."""
        for node in self.nodes.pop(world, []):
            node.stop()
        gc.collect()
        return {}

    def hold(self, world: str, members: list[tuple[int, int, Place, Place]]) -> dict[str, Any]:
        """Let clients of a ring begin."""
        for number, index, own, wanted in members:
            self.members[number] = Member(self.nodes[world][index], number, own, wanted)
        return {}

    def go(self, numbers: list[int]) -> dict[str, Any]:
        """Let clients of the ring ask for the next one's."""
        for number in numbers:
            self.members[number].go.set()
        return {}

    def forget(self) -> dict[str, Any]:
        """The ring is over."""
        gevent.killall([member.greenlet for member in self.members.values()])
        self.members.clear()
        return {}

    def toil(
        self, world: str, server: str, pause: float, ids: int = 0, most: int | None = None
    ) -> dict[str, Any]:
        """Let nodes make a transaction now and then, with an id of their own, or two of so many."""
        self.toiling = True
        for node in self.nodes[world][:most]:
            gevent.spawn(self._toil, node, server, pause, ids)
        return {}

    def _toil(self, node: Node, server: str, pause: float, ids: int) -> None:
        gevent.sleep(random.random() * pause)
        while self.toiling:
            begun = time.monotonic()
            agent = node.spawn_agent()
            wanted = random.sample(range(ids), 2) if ids else [node.name]
            for each in wanted:
                locks.original.lock(agent, ("toil", each), "write", [server])
            locks.original.end_transaction(agent)
            self.took.append(time.monotonic() - begun)
            gevent.sleep(pause * (0.5 + random.random()))

    def rest(self) -> dict[str, Any]:
        """No more transactions; how long they have taken."""
        self.toiling = False
        took, self.took = self.took, []
        return {"took": took}

    def times(self) -> dict[str, Any]:
        """How long transactions have taken since this was asked last."""
        took, self.took = self.took, []
        return {"took": took}

    def processor(self) -> dict[str, Any]:
        """The processor time of this process."""
        return {"processor": time.process_time()}


def main() -> None:
    """Do what is said, until nothing more is."""
    program = Program()
    read = gevent.get_hub().threadpool.apply
    while line := read(sys.stdin.readline):
        order = json.loads(line)
        what = order.pop("do")
        say(answer=what, **getattr(program, what)(**order))
    os._exit(0)


if __name__ == "__main__":
    main()
