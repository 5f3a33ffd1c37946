"""A client that does not import `locks`: sockets, `hmac`, and MessagePack. So one can be written in any language.

`docs/protocol.md` describes what it says to lock servers. It takes one majority lock at a time, with a fencing token, beside other
programs. It waits for the lock in the servers' queue, keeps it when one of three servers is killed, and notices when it is lost with a
second one. To stay short, it does not connect again, and does not look for deadlocks: a client that holds one lock at a time causes none
that last, if it gives up a part of a lock that it can't complete.
"""

from __future__ import annotations

import hmac
import os
import secrets
import select
import socket
import threading
import time
from typing import Any

import msgpack  # type: ignore[import-untyped]  # any library for MessagePack

TICKTIME = 15.0  # seconds of silence after which a server counts as dead
PATIENCE = 1.0  # seconds that a part of a lock is kept
INCARNATION = secrets.randbits(62) + 1  # says which start of this program it is


def frame(body: bytes) -> bytes:
    """A frame: four bytes of length, and the body. An empty body is a heartbeat."""
    return len(body).to_bytes(4, "big") + body


def size(data: bytes) -> int:
    """The length of the body of the first frame."""
    return int.from_bytes(data[:4], "big")


class Link:
    """A connection with a lock server, after both have proven that they know the cookie."""

    def __init__(self, own: str, server: str, address: tuple[str, int], cookie: bytes) -> None:
        self.server, self.arrived, self.heard, self.beat = server, b"", time.monotonic(), 0.0
        self.state, self.since, self.confirmed = "", 0, 0  # of the request at this server
        self.socket = socket.create_connection(address, 5)
        nonce = os.urandom(32)
        hello = msgpack.packb(["hello", 1, own, server, INCARNATION, TICKTIME, "client", nonce])
        self.socket.sendall(frame(hello))
        answer, said = self.receive("hello")
        self.pause = said[5] / 6  # seconds between our heartbeats
        if said[2:4] != [server, own]:
            raise ConnectionError(f"found {said[2]} instead of {server}")
        both = frame(hello) + frame(answer)
        self.send(["proof", [hmac.digest(cookie, b"locks 1 dials" + both, "sha256")]])
        ((proof, *_), *_) = self.receive("proof")[1][1:]
        if not hmac.compare_digest(proof, hmac.digest(cookie, b"locks 1 accepts" + both, "sha256")):
            raise ConnectionError(f"{server} has another cookie")

    def send(self, message: list[Any]) -> None:
        self.socket.sendall(frame(msgpack.packb(message)))

    def frames(self) -> list[bytes]:
        """The bodies that have arrived, after some waiting; without heartbeats."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError(f"{self.server} has closed the connection")
        self.heard = time.monotonic()
        self.arrived += data
        bodies = []
        while len(self.arrived) >= 4 and len(self.arrived) >= 4 + (length := size(self.arrived)):
            if length:
                bodies.append(self.arrived[4 : 4 + length])
            self.arrived = self.arrived[4 + length :]
        return bodies

    def receive(self, kind: str) -> tuple[bytes, list[Any]]:
        """The next message of the hello, and its body; nothing else comes before it is answered."""
        while not (bodies := self.frames()):
            pass
        message = msgpack.unpackb(bodies[0])
        if message[0] != kind:
            raise ConnectionError(f"{self.server} said {message}")
        return bodies[0], message


class Client:
    """Holds one majority lock at a time. A thread of its own reads what the servers say, and sends heartbeats."""

    def __init__(self, servers: dict[str, tuple[str, int]], cookie: str) -> None:
        self.name = f"plain-{os.getpid()}-{secrets.token_hex(3)}@127.0.0.1"
        self.majority = len(servers) // 2 + 1
        self.changed = threading.Condition()  # its lock may be taken again
        self.agent: list[Any] = []
        self.lock_id: list[Any] = []
        self.held, self.token, self.stuck = False, 0, 0.0
        self.links = [Link(self.name, n, servers[n], cookie.encode()) for n in sorted(servers)]
        for link in self.links:  # ordered by name: the first one is the gate
            link.send(["call", 1, ["agree", sorted(servers), "majority", 0]])
            link.send(["call", 2, ["greeting", 0, [], []]])
        threading.Thread(target=self.keep_reading, daemon=True).start()

    def acquire(self, *lock_id: Any, timeout: float) -> bool:
        """Wait until a majority of the servers, and the first of them, have granted the lock."""
        with self.changed:
            created = time.time_ns() * 4096 // 1000 & ~4095  # an agent for each lock
            self.agent, self.lock_id = [created, self.name, 0], list(lock_id)
            self.look()
            self.changed.wait_for(lambda: self.held or not self.lock_id, timeout)
            if not self.held:
                self.release()
            return self.held

    def release(self) -> None:
        with self.changed:
            self.withdraw()
            self.lock_id, self.held, self.token, self.stuck = [], False, 0, 0.0

    def tell(self, link: Link, kind: str, *fields: Any) -> None:
        try:
            link.send(["toserver", [kind, self.agent, *fields]])
        except OSError:
            link.heard = 0.0  # the reader will find it lost

    def withdraw(self) -> None:
        for link in self.links:
            if link.state:
                self.tell(link, "remove")
            link.state, link.since, link.confirmed = "", 0, 0

    def look(self) -> None:
        """Do what is due after each change."""
        granted = [link for link in self.links if link.state == "granted"]
        if not self.lock_id:
            return
        if len(self.links) < self.majority or (self.held and len(granted) < self.majority):
            self.release()  # lost, or it can't be had
        elif self.links[0].state == "granted" or self.held:
            if len(granted) >= self.majority and not self.held:
                self.held = True
                for link in [each for each in self.links if each.state == "waiting"]:
                    self.tell(link, "release", self.lock_id, None)
                    self.request(link)  # ahead of all that wait
            self.confirm(granted)
        if self.lock_id and not self.held:  # the first one decides who is next
            for link in self.links if self.links[0].state == "granted" else self.links[:1]:
                if not link.state:
                    self.request(link)
            self.stuck = 0.0 if not granted else self.stuck or time.monotonic()
        self.changed.notify_all()

    def request(self, link: Link) -> None:
        elsewhere = any(other.state for other in self.links if other is not link)
        self.tell(link, "request", self.name, self.lock_id, "write", elsewhere, False, self.held)
        link.state = link.state or "requested"

    def confirm(self, granted: list[Link]) -> None:
        """Let a majority promise larger versions to all later holders: then this one is the fencing token."""
        version = max(link.since for link in granted)
        if self.held and not self.token:
            for link in granted:
                if link.since < version and not link.confirmed:
                    link.confirmed = -1
                    self.tell(link, "raiseversion", self.lock_id, link.since, version)
            sure = [link for link in granted if version in (link.since, link.confirmed)]
            self.token = version if len(sure) >= self.majority else 0

    def keep_reading(self) -> None:
        while self.links:
            ready, _, _ = select.select([link.socket for link in self.links], [], [], 0.1)
            with self.changed:
                now = time.monotonic()
                for link in list(self.links):
                    try:
                        if now - link.heard > TICKTIME:
                            raise ConnectionError("it is silent")
                        for body in link.frames() if link.socket in ready else ():
                            self.take(link, msgpack.unpackb(body))
                        if now > link.beat:
                            link.beat = now + link.pause
                            link.socket.sendall(frame(b""))
                    except OSError:
                        self.links.remove(link)
                        link.socket.close()
                if self.stuck and now - self.stuck > PATIENCE and not self.held:
                    self.withdraw()  # two clients may each have a part: begin again
                    self.agent = [self.agent[0] + 4096, self.name, 0]
                    self.stuck = 0.0
                self.look()

    def take(self, link: Link, message: list[Any]) -> None:
        """Take in a frame; what is not known is ignored."""
        match message:
            case ["call", number, [kind, *_], *_]:
                answer = "done" if kind in ("greeting", "agree") else "notunderstood"
                link.send(["reply", number, [answer]])
            case ["ping"]:
                link.send(["pong"])
            case ["reply", _, ["agree" | "refusal", *_] as answer, *_]:
                raise ConnectionError(f"{link.server} does not serve this program: {answer}")
            case ["toagent", number, ["requeststates", _, records, *_], *_]:
                for record in records:
                    if number == self.agent[0] and record[2] == self.agent:
                        link.state, link.since = record[6], record[8]
            case ["toagent", _, ["versionraised", _, _, link.since, version, True, *_], *_]:
                link.confirmed = version
