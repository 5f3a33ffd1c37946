"""A node that has the cookie and does its worst: what it does, by name.

`python -m tests.cluster.misbehaviour WHAT --node a@127.0.0.1 --port 9100 --seconds 5` connects to a node, does
it for that time, connecting again whenever it is thrown out, and prints one line of JSON: how often it was
connected. The tests of `test_misbehaviour.py` run it beside an honest program, and so does the benchmark.
"""

from __future__ import annotations

import argparse
import itertools
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from locks.core.messages import RaiseVersion, Request, Unwatch, Watch
from locks.model import AgentId
from locks.node.peers.greeting import PROTOCOL
from locks.otp.bytes import control, etf
from locks.otp.bytes.behaviours import CALL, CAST
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.otp.links.budgets import Limits
from locks.otp.tunnel.messages import CHUNK, RELAY
from locks.wire.forms import LOCK_SERVER, OURS
from locks.wire.messages import pack
from tests.cluster.harness import COOKIE
from tests.cluster.nodes import Stranger

NAME = "bad@127.0.0.1"  # `main` gives it another one for each thing that it does: logs are limited by names
CREATION = 77
HOT = ("hot",)  # what the honest program locks, again and again
LIMITS = tuple(Limits())
MODULUS = (1 << 61) - 1  # of Python's hashes of integers


class Bad:
    """One connection of it.

    Args:
        node: The name of the node that it is connected with.
        port: Where that listens.
        reads: Whether it takes in what that says.
        cookie: The cookie.
    """

    def __init__(self, node: str, port: int, reads: bool = True, cookie: str = COOKIE) -> None:
        self.node = node
        self.peer = Stranger(("127.0.0.1", port))
        self.peer.shake_hands(node, NAME, creation=CREATION, cookie=cookie)
        self.me = Pid(1, NAME, CREATION)
        self.pids: list[Pid] = []  # of agents that were seen in views
        self._count = 0
        if reads:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for message in self.peer.messages():
                if message is None:
                    self.peer.send(bytes(4))
        except (OSError, ValueError):
            pass

    def count(self) -> int:
        """A number that was not given before."""
        self._count += 1
        return self._count

    def reference(self) -> Reference:
        """A reference that was not given before."""
        return Reference(NAME, CREATION, (self.count(), 0, 0))

    def many(self, frames: Iterator[bytes], seconds: float = 3600.0) -> None:
        """Send frames as fast as they are taken."""
        until = time.monotonic() + seconds
        batch = bytearray()
        for frame in frames:
            batch += struct.pack(">I", len(frame)) + frame
            if len(batch) > 60_000:
                self.peer.send(bytes(batch))
                batch.clear()
            if time.monotonic() > until:
                break
        self.peer.send(bytes(batch))

    def reg(self, name: str, term: Any) -> bytes:
        """A message to a name."""
        return control.RegSend(self.me, Atom(name), term).pack()

    def cast(self, message: Any) -> bytes:
        """A cast to the lock server."""
        return self.reg(LOCK_SERVER, (CAST, message))

    def call(self, request: Any, name: str = LOCK_SERVER) -> bytes:
        """A call."""
        return self.reg(name, (CALL, (self.me, self.reference()), request))

    def agent(self, number: int) -> AgentId:
        """An agent of it."""
        return AgentId(number << 12, NAME, 0)

    def request(self, number: int, lock_id: Any, mode: Any = "read") -> bytes:
        """One of its agents asks for a lock."""
        return self.cast(pack(Request(self.agent(number), "bad", lock_id, mode)))


def forever(make: Callable[[], bytes]) -> Iterator[bytes]:
    """Something again and again."""
    while True:
        yield make()


# --- What it does -------------------------------------------------------------------------------


def watches(bad: Bad) -> None:
    """Watch a hot id 3,000 times."""
    pids = (Pid(1000 + n, NAME, CREATION) for n in range(3000))
    bad.many(
        control.RegSend(pid, Atom(LOCK_SERVER), (CAST, pack(Watch(pid, HOT)))).pack()
        for pid in pids
    )
    stay(bad)


def watches_of_all(bad: Bad) -> None:
    """Watch a hot id and 3,000 others below it."""
    pids = [Pid(1000 + n, NAME, CREATION) for n in range(3000)]
    bad.many(
        control.RegSend(pid, Atom(LOCK_SERVER), (CAST, pack(Watch(pid, (*HOT, pid.number))))).pack()
        for pid in pids
    )
    stay(bad)


def watches_unread(bad: Bad) -> None:
    """Watch a hot id, and read nothing."""
    pids = (Pid(1000 + n, NAME, CREATION) for n in range(200))
    bad.many(
        control.RegSend(pid, Atom(LOCK_SERVER), (CAST, pack(Watch(pid, HOT)))).pack()
        for pid in pids
    )
    time.sleep(3600)


def monitors(bad: Bad) -> None:
    """Monitor the lock server 100,000 times."""
    server = Atom(LOCK_SERVER)
    bad.many(control.MonitorP(bad.me, server, bad.reference()).pack() for _ in range(100_000))
    stay(bad)


def monitors_that_end(bad: Bad) -> None:
    """Monitor, and demonitor, and monitor nobody."""
    server, nobody = Atom(LOCK_SERVER), Atom("nobody")

    def frames() -> Iterator[bytes]:
        while True:
            reference = bad.reference()
            yield control.MonitorP(bad.me, server, reference).pack()
            yield control.DemonitorP(bad.me, server, reference).pack()
            yield control.MonitorP(bad.me, nobody, bad.reference()).pack()

    bad.many(frames())


def map_with_one_hash(bad: Bad) -> None:
    """A map of 45,000 keys that have the same hash."""
    keys = [etf.encode(n * MODULUS)[1:] + b"a\1" for n in range(1, 45_000)]
    term = b"\x83t" + struct.pack(">I", len(keys)) + b"".join(keys)
    head = bad.reg("net_kernel", None)
    bad.peer.frame(head[: -len(etf.encode(None))] + term)
    stay(bad)


def requests(bad: Bad) -> None:
    """Ask for one id, again and again."""
    bad.many(forever(lambda: bad.request(1, ("warm",))))


def agents(bad: Bad) -> None:
    """Have 50,000 agents, with a lock each."""
    bad.many(bad.request(n, ("agent", n)) for n in range(1, 50_000))
    stay(bad)


def agents_in_a_queue(bad: Bad) -> None:
    """Have 5,000 agents wait for each other, and go on to ask."""
    bad.many(bad.request(n, ("queue",), "write") for n in range(1, 5000))
    stay(bad)


def colliding_ids(bad: Bad) -> None:
    """Lock ids that have the same hash."""
    bad.many(forever(lambda: bad.request(1, ("same", bad.count() * MODULUS))))


def views(bad: Bad) -> None:
    """Ask for the queue of an id with 5,000 requests, again and again."""
    bad.many(bad.request(1, ("rows", n)) for n in range(5000))
    from locks.wire.values import VIEW

    bad.many(forever(lambda: bad.call((OURS, VIEW, ["rows"]))))


def bad_messages(bad: Bad) -> None:
    """Messages of 1 MB that mean nothing."""
    term = (OURS, Atom("nothing"), b"\xff" * 1_000_000)
    bad.many(forever(lambda: bad.cast(term)))


def strange_messages(bad: Bad) -> None:
    """Messages of 1 MB that only the original could mean."""
    term = (Atom("something"), b"\xff" * 1_000_000)
    bad.many(forever(lambda: bad.reg(LOCK_SERVER, term)))


def long_terms(bad: Bad) -> None:
    """Messages of 90,000 parts, to somebody who does not mind."""
    frame = bad.reg("net_kernel", list(range(300, 90_300)))
    bad.many(forever(lambda: frame))


def deep_terms(bad: Bad) -> None:
    """Messages that are nested as deep as is allowed."""
    term: Any = []
    for _ in range(58):
        term = [term]
    frame = bad.reg("net_kernel", [term] * 1500)
    bad.many(forever(lambda: frame))


def large_maps(bad: Bad) -> None:
    """Maps of 45,000 keys, to somebody who does not mind."""
    frame = bad.reg("net_kernel", {n * 300: n for n in range(1, 45_000)})
    bad.many(forever(lambda: frame))


def large_binaries(bad: Bad) -> None:
    """Messages of 8 MB that are one text each."""
    frame = bad.reg("net_kernel", "x" * (8 * 2**20))
    bad.many(forever(lambda: frame))


def drips(bad: Bad) -> None:
    """Small frames, one byte at a time."""
    frame = bad.reg("net_kernel", None)
    data = struct.pack(">I", len(frame)) + frame
    while True:
        for at in range(len(data)):
            bad.peer.send(data[at : at + 1])


def watches_that_end(bad: Bad) -> None:
    """Watch a hot id and what is below it, and watch it no more, and again."""
    pids = [Pid(1000 + n, NAME, CREATION) for n in range(500)]

    def frames() -> Iterator[bytes]:
        for kind in itertools.cycle((Watch, Unwatch)):
            for pid in pids:
                term = pack(kind(pid, (*HOT, pid.number % 50)[: 1 + pid.number % 2]))
                yield control.RegSend(pid, Atom(LOCK_SERVER), (CAST, term)).pack()

    bad.many(frames())


def deadlocks(bad: Bad) -> None:
    """Have 300 deadlocks that nobody resolves, and ask for more."""
    for n in range(0, 600, 2):
        for who, row in ((n, n), (n + 1, n + 1), (n, n + 1), (n + 1, n)):
            bad.peer.frame(bad.request(who, ("knot", row), "write"))
    bad.many(forever(lambda: bad.request(1000, ("knot", bad.count() % 600), "write")))


def too_deep(bad: Bad) -> None:
    """A message that is nested deeper than is allowed."""
    term = b"\x83" + b"l\0\0\0\1" * 100_000 + b"j" * 100_001
    head = bad.reg("net_kernel", None)
    bad.peer.frame(head[: -len(etf.encode(None))] + term)
    stay(bad)


def small_frames(bad: Bad) -> None:
    """Small frames by the million."""
    frame = control.Send(Pid(5, bad.node, 1), None).pack()
    bad.many(forever(lambda: frame))


def ticks(bad: Bad) -> None:
    """Ticks by the million."""
    while True:
        bad.peer.send(bytes(60_000))


def half_frame(bad: Bad) -> None:
    """The first half of a frame of 16 MB, and then nothing."""
    bad.peer.send(struct.pack(">I", 16 * 2**20) + bytes(8 * 2**20))
    stay(bad)


def too_long_frame(bad: Bad) -> None:
    """A frame that is longer than is allowed."""
    bad.peer.send(struct.pack(">I", 2**31))
    stay(bad)


def spawn_requests(bad: Bad) -> None:
    """Ask for processes to be started."""
    mfa = (Atom("os"), Atom("cmd"), 1)

    def frame() -> bytes:
        return control.SpawnRequest(bad.reference(), bad.me, bad.me, mfa, [], [[]]).pack()

    bad.many(forever(frame))


def unsupported(bad: Bad) -> None:
    """Operations that are not offered."""
    frame = b"p" + etf.encode((99, bad.me))
    bad.many(forever(lambda: frame))


def link_requests(bad: Bad) -> None:
    """Link itself to processes that are not there."""
    bad.many(forever(lambda: control.Link(bad.me, Pid(bad.count(), bad.node, 1)).pack()))


def unknown_names(bad: Bad) -> None:
    """Call names that nobody has."""
    bad.many(forever(lambda: bad.call(None, f"nobody{bad.count() % 1000}")))


def unknown_calls(bad: Bad) -> None:
    """Ask the lock server what it does not know."""
    bad.many(forever(lambda: bad.call((OURS, Atom("nothing"), 1))))


def large_version(bad: Bad) -> None:
    """Greet with a version that no node ever had."""
    for version in (2**64, 2**62, 2**8192 - 3):
        bad.peer.frame(bad.call((OURS, Atom("greeting"), PROTOCOL, version, 15.0, [], LIMITS)))
    stay(bad)


def raised_version(bad: Bad) -> None:
    """Have the version raised that no node ever had."""
    for version in (2**64, 2**62, 2**8192 - 3):
        term = list(pack(RaiseVersion(bad.agent(1), HOT, 1, 1)))
        term[-1] = version
        bad.peer.frame(bad.cast(tuple(term)))
    stay(bad)


def greetings(bad: Bad) -> None:
    """Greet again and again."""
    bad.many(forever(lambda: bad.call((OURS, Atom("greeting"), PROTOCOL, 5, 15.0, [], LIMITS))))


def groups(bad: Bad) -> None:
    """Say hello to process groups that are not there."""
    bad.many(forever(lambda: bad.reg("pg", (Atom("discover"), bad.me))))


def tunnels(bad: Bad) -> None:
    """Open tunnels to a node that is not there."""
    head = Atom("open")
    bad.many(forever(lambda: bad.reg(RELAY, (head, NAME, bad.count(), "nobody@127.0.0.1"))))


def tunnel_data(bad: Bad) -> None:
    """Send what is for tunnels that are not there."""
    data = b"\xff" * CHUNK
    bad.many(forever(lambda: bad.reg(RELAY, (Atom("data"), NAME, 1, data))))


def stay(bad: Bad) -> None:
    """Do no more, until it is thrown out."""
    while not bad.peer.is_closed(3600.0):
        pass


BEHAVIOURS: dict[str, Callable[[Bad], None]] = {
    each.__name__: each
    for each in (
        watches,
        watches_of_all,
        watches_unread,
        monitors,
        monitors_that_end,
        map_with_one_hash,
        requests,
        agents,
        agents_in_a_queue,
        colliding_ids,
        views,
        bad_messages,
        strange_messages,
        long_terms,
        deep_terms,
        large_maps,
        large_binaries,
        drips,
        watches_that_end,
        deadlocks,
        too_deep,
        small_frames,
        ticks,
        half_frame,
        too_long_frame,
        spawn_requests,
        unsupported,
        link_requests,
        unknown_names,
        unknown_calls,
        large_version,
        raised_version,
        greetings,
        groups,
        tunnels,
        tunnel_data,
    )
}
UNREAD = ("watches_unread", "small_frames", "ticks", "drips", "large_maps", "large_binaries")


def main() -> None:
    """Do it for a while."""
    global NAME
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=BEHAVIOURS)
    parser.add_argument("--node", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--cookie", default=COOKIE)
    given = parser.parse_args()
    NAME = f"{given.what}@127.0.0.1"
    times = 0
    connected = threading.Event()

    def go_on() -> None:
        nonlocal times
        while True:
            try:
                bad = Bad(given.node, given.port, given.what not in UNREAD, given.cookie)
                times += 1
                print(json.dumps({"connected": times}), flush=True)
                connected.set()
                BEHAVIOURS[given.what](bad)
            except (OSError, ConnectionError):
                time.sleep(0.05)

    threading.Thread(target=go_on, daemon=True).start()
    connected.wait(60)  # the node may be busy with what was done before
    time.sleep(given.seconds)


if __name__ == "__main__":
    main()
