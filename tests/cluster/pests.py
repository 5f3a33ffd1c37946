"""Those who disturb lock servers all the time: `python -m tests.cluster.pests KIND SEED NUMBER NAME=HOST:PORT...`.

Kinds:

* `peer`: a node that knows the cookie, and does what a bug would: greetings, messages and frames that are
  wrong, or too many. (What is allowed, but would cost a promise, it leaves alone: it locks no id of others.)
* `strangers`: NUMBER sockets at each door that say nothing, besides half handshakes and garbage.
* `churn`: programs that come, lock something, and go, each with a new name.

It ends with SIGTERM or when its standard input is closed, and prints what it has done how often.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from locks.core.messages import Request, Watch
from locks.model import AgentId
from locks.otp.admission.handshake import Handshake, Send
from locks.otp.bytes import control
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.wire.forms import LOCK_SERVER
from locks.wire.messages import pack
from tests.cluster.harness import COOKIE, Address
from tests.cluster.peers import ODD, Peer

NOBODY = ("127.0.0.1", 1)


class Target(NamedTuple):
    """A lock server."""

    name: str
    address: Address


# --- A peer with bugs ---------------------------------------------------------------------------


def _wrong_greeting(peer: Peer, chance: random.Random) -> None:
    wrong: list[dict[str, object]] = [
        {"version": 2**8192 - 3},
        {"version": 2**63 + 1},
        {"ticktime": 1e-9},
        {"protocol": 9},
        {"version": "1"},
    ]
    peer.greet(**chance.choice(wrong))


def _many_names(peer: Peer, chance: random.Random) -> None:
    peer.greet(*((f"x{n}@127.0.0.1", *NOBODY) for n in range(10_000)))


def _lies(peer: Peer, chance: random.Random) -> None:
    start = chance.randrange(10**6)
    peer.greet(*((f"lie{start + n}@127.0.0.1", *NOBODY) for n in range(1000)))


def _bad_frame(peer: Peer, chance: random.Random) -> None:
    peer.frame(chance.randbytes(chance.randrange(1, 2000)))


def _bad_message(peer: Peer, chance: random.Random) -> None:
    agent = Pid(chance.randrange(2**60), peer.name, 77)
    bad: list[tuple[Any, ...]] = [
        ("request", agent, "c", ["x"], Atom("loud")),
        ("request", agent, "c", 17, Atom("write")),
        ("watch", 17, ["x"]),
        ("nothing",),
        ("surrender", agent, ["x"]),
        ("release", agent),
    ]
    head, *rest = chance.choice(bad)
    peer.cast((Atom(head), *rest))


def _large_messages(peer: Peer, chance: random.Random) -> None:
    for _ in range(5):
        peer.cast((Atom("request"), "x" * 1_000_000))


def _colliding_keys(peer: Peer, chance: random.Random) -> None:
    peer.tell({n * (2**61 - 1): n for n in range(3000)})


def _requests(peer: Peer, chance: random.Random) -> None:
    for number in range(1000):
        serial = number & 0xFFF
        agent = AgentId(((10**15 + number) << 12) | serial, peer.name, serial)
        peer.cast(pack(Request(agent, "pest", ("pest",), "write"))[1:])


def _watches(peer: Peer, chance: random.Random) -> None:
    for number in range(200):
        peer.cast(pack(Watch(Pid(1000 + number, peer.name, 77), ("soak", 0)))[1:])


def _monitors(peer: Peer, chance: random.Random) -> None:
    for number in range(1000):
        reference = Reference(peer.name, 77, (number, 1, 1))
        peer.frame(control.MonitorP(peer.me, Atom(LOCK_SERVER), reference).pack())


def _to_nobody(peer: Peer, chance: random.Random) -> None:
    for number in range(1000):
        peer.frame(control.RegSend(peer.me, Atom(f"nobody{number}"), number).pack())


def _half_a_frame(peer: Peer, chance: random.Random) -> None:
    peer.send((10**6).to_bytes(4, "big") + bytes(100))


def _ticks(peer: Peer, chance: random.Random) -> None:
    peer.send(bytes(4 * 50_000))


BUGS: list[Callable[[Peer, random.Random], None]] = [
    *(_wrong_greeting, _many_names, _lies, _bad_frame, _bad_message, _large_messages),
    *(_colliding_keys, _requests, _watches, _monitors, _to_nobody, _half_a_frame, _ticks),
]


def be_a_peer(
    targets: list[Target], chance: random.Random, stop: threading.Event, done: Counter[str]
) -> None:
    """Connect with one after the other, and do something wrong."""
    while not stop.is_set():
        target = chance.choice(targets)
        bug = chance.choice(BUGS)
        try:
            peer = Peer(target.address, target.name, chance.choice([ODD, "odder@127.0.0.1"]))
            peer.socket.settimeout(2)
            try:
                if chance.random() < 0.5:
                    peer.greet()
                bug(peer, chance)
                done[bug.__name__.strip("_")] += 1
                if chance.random() < 0.5:  # it reads nothing in the other half
                    peer.is_closed(chance.random())
                else:
                    stop.wait(chance.random())
            finally:
                peer.close()
        except OSError:
            done["not connected, or closed"] += 1
            stop.wait(0.1)


# --- Strangers ----------------------------------------------------------------------------------


def be_idle(target: Target, number: int, stop: threading.Event, done: Counter[str]) -> None:
    """Keep sockets that say nothing at one door."""
    sockets: list[socket.socket] = []
    while not stop.is_set():
        try:
            while len(sockets) < number:
                sockets.append(socket.create_connection(target.address, 2))
                done["idle"] += 1
        except OSError:
            pass
        if sockets:
            closed, _, _ = select.select(sockets, [], [], 0.2)
            for sock in closed:
                sockets.remove(sock)
                sock.close()
        else:
            stop.wait(0.2)
    for sock in sockets:
        sock.close()


def be_strange(
    targets: list[Target], chance: random.Random, stop: threading.Event, done: Counter[str]
) -> None:
    """Begin handshakes, and say what is none."""
    while not stop.is_set():
        target = chance.choice(targets)
        try:
            with socket.create_connection(target.address, 2) as sock:
                sock.settimeout(chance.random())
                kind = chance.choice(["half", "garbage", "web"])
                if kind == "half":
                    others = [each.name for each in targets if each is not target]
                    name = chance.choice([ODD, "w1@127.0.0.1", *others])
                    shake = Handshake(
                        name=name, creation=5, cookie="unknown", challenge=1, peer=target.name
                    )
                    (event,) = shake.start()
                    assert isinstance(event, Send)
                    sock.sendall(event.data)
                elif kind == "web":
                    sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                else:
                    sock.sendall(chance.randbytes(chance.randrange(1, 3000)))
                done[kind] += 1
                while sock.recv(4096):
                    pass
        except OSError:
            pass
        stop.wait(0.02)


# --- Programs that come and go ------------------------------------------------------------------


def come_and_go(
    targets: list[Target], chance: random.Random, stop: threading.Event, done: Counter[str]
) -> None:
    """Be one program after the other."""
    import locks

    peers = [f"{target.name}:{target.address[1]}" for target in targets]
    while not stop.is_set():
        done["programs"] += 1
        name = f"job{os.getpid()}-{done['programs']}@127.0.0.1"
        node = locks.start(name, cookie=COOKIE, peers=peers, listen=chance.random() < 0.7 or False)
        try:
            names = [target.name for target in targets]
            if node.await_nodes(names[:1], timeout=2):
                with locks.transaction(timeout=2) as tx:
                    tx.lock(("job", name), nodes=names, require="majority")
                done["locked"] += 1
        except locks.LocksError:
            done["not locked"] += 1
        finally:
            locks.stop()
        stop.wait(chance.random() * 0.5)


def main(arguments: list[str]) -> None:
    """Disturb until it is enough."""
    kind, seed, number, *given = arguments
    targets = []
    for each in given:
        name, _, place = each.partition("=")
        host, _, port = place.rpartition(":")
        targets.append(Target(name, (host, int(port))))
    stop = threading.Event()
    done: Counter[str] = Counter()
    chance = random.Random(int(seed))
    jobs: list[threading.Thread] = []
    if kind == "peer":
        jobs.append(threading.Thread(target=be_a_peer, args=(targets, chance, stop, done)))
    elif kind == "strangers":
        jobs += [
            threading.Thread(target=be_idle, args=(target, int(number), stop, done))
            for target in targets
        ]
        jobs.append(threading.Thread(target=be_strange, args=(targets, chance, stop, done)))
    else:
        jobs.append(threading.Thread(target=come_and_go, args=(targets, chance, stop, done)))
    for job in jobs:
        job.start()
    sys.stdin.read()
    stop.set()
    deadline = time.monotonic() + 10
    for job in jobs:
        job.join(max(0.0, deadline - time.monotonic()))
    print(json.dumps(done), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
