"""What agents of client programs cost that talk through lock servers: a chain of many, which becomes a ring.

    python -m benchmarks.channels --sizes 3 10 50 200 --servers 3

All nodes are in one process and one hub, each client on a node of its own that is connected with the lock servers alone. Each
has a lock and waits for the next one's, in random order of age. Counted are the frames that nodes send, from the requests of the
chain until nothing more is said, and from the last request, which closes the ring, until all are done.
"""

from __future__ import annotations

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()

import argparse
import os
import random
import sys
import time
from typing import Any, NamedTuple

import gevent
import gevent.event

import locks
from benchmarks.lab import COOKIE, HOST
from locks.node.node import Node
from locks.otp.links.link import Link
from locks.otp.options import Options, client_name

__all__ = ["Counted", "Ring"]

QUIET = 0.3  # seconds without a frame until nothing more is said
LIMIT = 120.0  # seconds until all must be done


class Counted(NamedTuple):
    """What was sent and used up to a moment."""

    frames: int
    sent: int
    processor: float
    at: float


class Ring:
    """Clients on nodes of their own, and lock servers.

    Args:
        size: How many clients.
        servers: How many lock servers.
        seed: Decides the order of the clients.
    """

    def __init__(self, size: int, servers: int, seed: int) -> None:
        self.frames = self.sent = 0
        self.last = time.monotonic()
        self._count()
        self.hubs: list[Node] = []
        for number in range(servers):
            self.hubs.append(self._node(f"s{number}@{HOST}", listen=True, mesh=True))
        names = [hub.name for hub in self.hubs]
        self.nodes = [self._node(client_name(), listen=None, mesh=False) for _ in range(size)]
        for node in (*self.hubs, *self.nodes):
            assert node.await_nodes(names, timeout=LIMIT)
        self.order = random.Random(seed).sample(range(size), size)
        self.go = [gevent.event.Event() for _ in range(size)]
        self.done: list[float] = []
        self.yielded = 0

    def _count(self) -> None:
        send = Link.send

        def counted(link: Link, data: Any, *args: Any, **given: Any) -> Any:
            self.frames += 1
            self.sent += len(data)
            self.last = time.monotonic()
            return send(link, data, *args, **given)

        Link.send = counted  # type: ignore[method-assign]

    def _node(self, name: str, listen: Any, mesh: bool) -> Node:
        peers = [f"{hub.name}:{hub.address[1]}" for hub in self.hubs if hub.address]
        options = Options.check(
            name,
            cookie=COOKIE,
            listen=listen,
            peers=peers,
            tls=None,
            epmd=False,
            net_ticktime=None,
            mesh=mesh,
            allow_plaintext=False,
        )
        return Node(name, None, options)

    def quiet(self) -> None:
        """Wait until nothing more is said."""
        while time.monotonic() - self.last < QUIET:
            gevent.sleep(0.02)

    def now(self) -> Counted:
        """What was sent and used up to now."""
        return Counted(self.frames, self.sent, time.process_time(), time.monotonic())

    @property
    def tunnels(self) -> int:
        """How many the lock servers relay."""
        return sum(len(hub.cluster.tunnels.relay) for hub in self.hubs if hub.cluster)

    def _client(self, place: int, born: gevent.event.Event) -> None:
        size = len(self.nodes)

        def wanted(number: int) -> tuple[Any, Any, list[str]]:
            return (
                ("ring", number % size),
                "write",
                [self.hubs[number % size % len(self.hubs)].name],
            )

        agent = self.nodes[self.order[place]].spawn_agent()
        locks.original.lock(agent, *wanted(place))
        born.set()
        self.go[place].wait()
        done = locks.original.lock(agent, *wanted(place + 1))
        self.done.append(time.monotonic())
        locks.original.end_transaction(agent)
        self.yielded += sum(report.agent == agent.id for report in done.deadlocks)

    def run(self) -> str:
        """Make the chain, close the ring, and wait until all are done."""
        size = len(self.nodes)
        places = sorted(range(size), key=lambda place: self.order[place])
        clients = []
        for place in places:  # the first one is the oldest
            born = gevent.event.Event()
            clients.append(gevent.spawn(self._client, place, born))
            born.wait()
        self.quiet()
        begun = self.now()
        for go in self.go[:-1]:
            go.set()
        gevent.sleep(0.05)
        self.quiet()
        formed, tunnels = self.now(), self.tunnels
        self.go[-1].set()
        gevent.joinall(clients, timeout=LIMIT)
        ended = self.now()
        if len(self.done) < size:
            return f"{size} over {len(self.hubs)}: stuck, {len(self.done)} are done"
        return (
            f"{size} over {len(self.hubs)}: chain {formed.frames - begun.frames:,} frames, "
            f"{(formed.sent - begun.sent) / 1e6:.2f} MB, {formed.processor - begun.processor:.2f} s of processor time, "
            f"{tunnels} tunnels; ring {ended.frames - formed.frames:,} frames, "
            f"{(ended.sent - formed.sent) / 1e6:.2f} MB, {ended.processor - formed.processor:.2f} s, resolved after "
            f"{(min(self.done) - formed.at) * 1000:.0f} ms, all done after {(max(self.done) - formed.at) * 1000:.0f} ms, "
            f"{self.tunnels} tunnels, {self.yielded} surrenders"
        )


def main() -> None:
    """Measure in the given sizes, each in a process of its own."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.channels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=(3, 10, 50, 200))
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for size in given.sizes:
        child = os.fork()
        if not child:
            print(Ring(size, given.servers, given.seed).run(), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{size} clients have failed")


if __name__ == "__main__":
    main()
