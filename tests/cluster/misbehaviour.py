"""Those who disturb: a node that has the cookie and does its worst, strangers at the door, and programs that come and go.

    python -m tests.cluster.misbehaviour WHAT --seconds 5 a@127.0.0.1=127.0.0.1:9100

does it for that time, or until its standard input is closed, and prints a line of JSON for each beginning. WHAT is one of `BEHAVIOURS`;
`any`, those that need no more than a second, one after the other at one node after the other; `strangers`, who keep idle sockets
and begin handshakes, with TLS as well, and garbage; `churn`, programs with new names that lock something and go.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import selectors
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from msgspec.msgpack import Ext

import locks
from locks.core.messages import RaiseVersion, Request
from locks.model import AgentId
from locks.net.frames import frame
from locks.net.messages import (
    Answered,
    Ask,
    AskView,
    Down,
    EndRead,
    Exit,
    Greeting,
    Limits,
    Monitor,
    News,
    Open,
    Read,
    Tell,
    ToServer,
    encode,
)
from tests.cluster.harness import COOKIE, Address
from tests.cluster.nodes import Stranger, hello

NAME = "odd@127.0.0.1"
CREATION = 77
HOT = ("hot",)  # what the honest program locks, again and again
MODULUS = (1 << 61) - 1  # of Python's hashes of integers


class Bad:
    """One connection of it.

    Args:
        target: The node that it is connected with.
        name: What it is called.
        reads: Whether it takes in what that says.
        seconds: How long it goes on at most.
    """

    def __init__(self, target: Target, name: str, reads: bool, seconds: float = 3600.0) -> None:
        self.node = target.name
        self.peer = Stranger(target.address)
        self.peer.socket.settimeout(seconds + 1)
        self.peer.say_hello(target.name, name, incarnation=CREATION)
        self.name = name
        self.until = time.monotonic() + seconds
        self._count = 0
        if reads:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for message in self.peer.messages():
                if message is None:
                    self.peer.send(bytes(4))
        except (OSError, locks.LocksError):
            pass  # `is_closed` may have taken a part of a frame

    def count(self) -> int:
        """A number that was not given before."""
        self._count += 1
        return self._count

    def many(self, frames: Iterator[bytes]) -> None:
        """Send frames as fast as they are taken."""
        batch = bytearray()
        for body in frames:
            batch += frame(body)
            if len(batch) > 60_000:
                self.peer.send(bytes(batch))
                batch.clear()
            if time.monotonic() > self.until:
                break
        self.peer.send(bytes(batch))

    def call(self, question: Any) -> bytes:
        """A question, or what looks like one."""
        return encode(["call", self.count(), question])

    def agent(self, number: int) -> AgentId:
        """An agent of it."""
        return AgentId(number << 12, self.name, 0)

    def request(self, number: int, lock_id: Any, mode: Any = "read") -> bytes:
        """One of its agents asks for a lock."""
        return encode(ToServer(Request(self.agent(number), "bad", lock_id, mode)))


def forever(make: Callable[[], bytes]) -> Iterator[bytes]:
    """Something again and again."""
    while True:
        yield make()


# --- What it does -------------------------------------------------------------------------------


def watches(bad: Bad) -> None:
    """Read the view of a hot id 3,000 times."""
    bad.many(encode(Read(bad.count(), HOT)) for _ in range(3000))
    stay(bad)


def watches_unread(bad: Bad) -> None:
    """Read the view of a hot id, and take in nothing."""
    bad.many(encode(Read(bad.count(), HOT)) for _ in range(200))
    stay(bad)


def monitors(bad: Bad) -> None:
    """Monitor 100,000 actors that are not there."""
    bad.many(encode(Monitor(bad.count(), 77)) for _ in range(100_000))
    stay(bad)


def map_with_one_hash(bad: Bad) -> None:
    """A map of 45,000 keys that have the same hash, wherever a value may stand."""
    keys = [Ext(5, (n * MODULUS).to_bytes(16, "big", signed=True)) for n in range(1, 45_000)]
    value = encode(Ext(2, encode([each for key in keys for each in (key, 1)])))
    for message in (
        Tell("nobody", value),
        Ask(bad.count(), 77, value),
        Answered(77, value),
        Exit(77, value[: 2**17]),
        Down(77, value[: 2**17]),
    ):
        bad.peer.frame(encode(message))
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


def views(bad: Bad) -> None:
    """Ask for the queue of an id with 5,000 requests, again and again."""
    bad.many(bad.request(1, ("rows", n)) for n in range(5000))
    bad.many(forever(lambda: bad.call(AskView(("rows",)))))


def bad_messages(bad: Bad) -> None:
    """Messages of 1 MB that mean nothing."""
    frame = encode(["toserver", ["nothing", b"\xff" * 1_000_000]])
    bad.many(forever(lambda: frame))


def deep_values(bad: Bad) -> None:
    """Messages that are nested as deep as is allowed."""
    value: Any = []
    for _ in range(58):
        value = [value]
    frame = encode(Tell("nobody", encode([value] * 1500)))
    bad.many(forever(lambda: frame))


def large_maps(bad: Bad) -> None:
    """Maps of 45,000 keys, to somebody who does not mind."""
    frame = encode(Tell("nobody", encode({n * 300: n for n in range(1, 45_000)})))
    bad.many(forever(lambda: frame))


def watches_that_end(bad: Bad) -> None:
    """Read the views of a hot id and of what is below it, and read them no more, and again."""

    def frames() -> Iterator[bytes]:
        while True:
            numbers = [bad.count() for _ in range(500)]
            for number in numbers:
                yield encode(Read(number, (*HOT, number % 50)[: 1 + number % 2]))
            for number in numbers:
                yield encode(EndRead(number))

    bad.many(frames())


def deadlocks(bad: Bad) -> None:
    """Have 300 deadlocks that nobody resolves, and ask for more."""
    for n in range(0, 600, 2):
        for who, row in ((n, n), (n + 1, n + 1), (n, n + 1), (n + 1, n)):
            bad.peer.frame(bad.request(who, ("knot", row), "write"))
    bad.many(forever(lambda: bad.request(1000, ("knot", bad.count() % 600), "write")))


def too_deep(bad: Bad) -> None:
    """A message that is nested deeper than is allowed."""
    bad.peer.frame(encode(["toserver", ["request"]])[:-1] + b"\x91" * 100_000 + b"\1")
    stay(bad)


def small_frames(bad: Bad) -> None:
    """Small frames by the million."""
    frame = encode(Tell(5, b""))
    bad.many(forever(lambda: frame))


def ticks(bad: Bad) -> None:
    """Ticks by the million."""
    while time.monotonic() < bad.until:
        bad.peer.send(bytes(60_000))


def half_frame(bad: Bad) -> None:
    """The first half of a frame of 16 MB, and then nothing."""
    bad.peer.send(struct.pack(">I", 16 * 2**20) + bytes(8 * 2**20))
    stay(bad)


def too_long_frame(bad: Bad) -> None:
    """A frame that is longer than is allowed."""
    bad.peer.send(struct.pack(">I", 2**31))
    stay(bad)


def unknown_names(bad: Bad) -> None:
    """Call names that nobody has."""
    bad.many(forever(lambda: encode(Ask(bad.count(), f"nobody{bad.count() % 1000}", b"\xc0"))))


def large_version(bad: Bad) -> None:
    """Greet with a version that no node ever had."""
    for version in (2**62, 2**63 - 1, 2**64 - 1):
        bad.peer.frame(bad.call(["greeting", version, [], Limits()]))
    stay(bad)


def raised_version(bad: Bad) -> None:
    """Have the version raised that no node ever had."""
    bad.peer.frame(encode(ToServer(RaiseVersion(bad.agent(1), HOT, 1, 2**62))))
    stay(bad)


def greetings(bad: Bad) -> None:
    """Greet again and again."""
    bad.many(forever(lambda: bad.call(Greeting(5, (), Limits()))))


def lies(bad: Bad) -> None:
    """Greet with nodes that are not there, ever more of them."""
    for turn in range(20):
        names = [News(f"lie{turn}-{n}@127.0.0.1", "127.0.0.1", 1, 0.0) for n in range(1000)]
        bad.peer.frame(bad.call(Greeting(5, tuple(names), Limits())))
    stay(bad)


def groups(bad: Bad) -> None:
    """Say hello to process groups that are not there."""
    bad.many(forever(lambda: encode(Tell("locks_pg", b"\xc0"))))


def links(bad: Bad) -> None:
    """Open links to a node that is not there."""
    bad.many(forever(lambda: encode(Open(bad.count(), bad.name, "nobody@127.0.0.1", 77))))


def stay(bad: Bad) -> None:
    """Do no more, until it is thrown out."""
    bad.peer.is_closed(max(0.01, bad.until - time.monotonic()))


BEHAVIOURS: dict[str, Callable[[Bad], None]] = {
    each.__name__: each
    for each in (
        watches,
        watches_unread,
        monitors,
        map_with_one_hash,
        requests,
        agents,
        agents_in_a_queue,
        views,
        bad_messages,
        deep_values,
        large_maps,
        watches_that_end,
        deadlocks,
        too_deep,
        small_frames,
        ticks,
        half_frame,
        too_long_frame,
        unknown_names,
        large_version,
        raised_version,
        greetings,
        lies,
        groups,
        links,
    )
}
UNREAD = ("watches_unread", "small_frames", "ticks", "large_maps")
LARGE = ("agents", "agents_in_a_queue", "monitors", "deadlocks", "views")
"""Those that take seconds, because there is so much of something."""


class Target(NamedTuple):
    """A lock server."""

    name: str
    address: Address


def behave(what: str, target: Target, seconds: float) -> None:
    """Do one of `BEHAVIOURS` for a while from the first connection on, connecting again whenever it is thrown out."""
    connected = threading.Event()

    def go_on() -> None:
        while True:
            try:
                bad = Bad(target, f"{what}@127.0.0.1", what not in UNREAD)
                print(json.dumps({"connected": what}), flush=True)
                connected.set()
                BEHAVIOURS[what](bad)
            except OSError:
                time.sleep(0.05)

    threading.Thread(target=go_on, daemon=True).start()
    connected.wait()
    time.sleep(seconds)


def behave_in_any_way(targets: list[Target], chance: random.Random) -> None:
    """One thing after the other."""
    light = [what for what in BEHAVIOURS if what not in LARGE]
    while True:
        what = chance.choice(light)
        with contextlib.suppress(OSError):
            bad = Bad(chance.choice(targets), "odd@127.0.0.1", what not in UNREAD, chance.random())
            BEHAVIOURS[what](bad)
            bad.peer.close()
        time.sleep(chance.random() * 0.2)


# --- Strangers ----------------------------------------------------------------------------------


def greeting(name: str, own: str = "crowd@127.0.0.1") -> bytes:
    """The first words of a node that nobody knows."""
    return frame(hello(own, name, incarnation=5))


def client_hello() -> bytes:
    """The first words of TLS."""
    out, context = ssl.MemoryBIO(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def crowd(targets: list[Target], chance: random.Random, idle: int, half: int) -> None:
    """Keep idle sockets at each door, and as many that have said something and get no further."""
    selector = selectors.DefaultSelector()

    def begin(target: Target, speaks: bool) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(target.address)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if speaks else 0)
        selector.register(sock, wanted, (target, speaks))

    for target in targets:
        for number in range(idle + half):
            begin(target, number >= idle)
    print(json.dumps({"connected": "strangers"}), flush=True)
    while True:
        for key, events in selector.select(1):
            sock: socket.socket = key.fileobj  # type: ignore[assignment]
            target, speaks = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    known = greeting(target.name, chance.choice(["w1@127.0.0.1", NAME]))
                    garbage = chance.randbytes(chance.randrange(1, 3000))
                    sock.send(chance.choice([known, known, known, client_hello(), garbage, b"GET / HTTP/1.1\r\n\r\n"]))  # fmt: skip
                    selector.modify(sock, selectors.EVENT_READ, key.data)
                    continue
                if sock.recv(4096):  # an answer, which gets none
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            selector.unregister(sock)
            sock.close()
            begin(target, speaks)


# --- Programs that come and go ------------------------------------------------------------------


def come_and_go(targets: list[Target], chance: random.Random) -> None:
    """Be one program after the other."""
    names = [target.name for target in targets]
    peers = [f"{target.name}:{target.address[1]}" for target in targets]
    for number in itertools.count():
        name = f"job{os.getpid()}-{number}@127.0.0.1"
        node = locks.start(name, cookie=COOKIE, peers=peers, listen=chance.random() < 0.7 or False)
        with contextlib.suppress(locks.LocksError):
            if node.await_nodes(names[:1], timeout=2):
                with locks.transaction(timeout=2) as tx:
                    tx.lock(("job", name), nodes=names, require="majority")
        locks.stop()
        time.sleep(chance.random() * 0.5)


def main() -> None:
    """Do it for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*BEHAVIOURS, "any", "strangers", "churn"])
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--seconds", type=float, default=0.0, help="0: until the input is closed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--idle", type=int, default=500, help="strangers at each door")
    parser.add_argument("--half", type=int, default=200, help="those that have said something")
    given = parser.parse_args()
    targets = []
    for each in given.targets:
        name, _, place = each.partition("=")
        host, _, port = place.rpartition(":")
        targets.append(Target(name, (host, int(port))))
    chance = random.Random(given.seed)
    if given.what in BEHAVIOURS:
        behave(given.what, targets[0], given.seconds)
        return
    jobs: dict[str, Callable[[], None]] = {
        "any": lambda: behave_in_any_way(targets, chance),
        "strangers": lambda: crowd(targets, chance, given.idle, given.half),
        "churn": lambda: come_and_go(targets, chance),
    }
    threading.Thread(target=jobs[given.what], daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
