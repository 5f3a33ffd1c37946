"""The live page of real lock servers: `locks web` as a process, and who reads it without a browser."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from locks.web.changes import NOTHING, Changes, applied
from locks.web.picture import Picture
from tests.cluster.servers import LIMIT, Servers
from tests.warm import Program

__all__ = ["HOLDER", "RING", "Reader", "Web", "web"]

HOLDER = """
import sys, locks
with locks.transaction(label={label!r}) as tx:
    tx.write_lock({lock_id!r})
    print("ready", flush=True)
    sys.stdin.readline()
"""
RING = """
import locks, threading
both = threading.Barrier(2)
def work(mine, other):
    with locks.transaction(label=f"wants {other}") as tx:
        tx.write_lock(("ring", mine))
        both.wait()
        tx.write_lock(("ring", other))
threads = [threading.Thread(target=work, args=each) for each in (("x", "y"), ("y", "x"))]
for each in threads: each.start()
for each in threads: each.join()
"""


class Web:
    """A live page that is served.

    Args:
        address: Its address, as it is printed.
        pid: The number of the process that serves it.

    Attributes:
        port: The port in it.
        token: The token in it; empty if there is none.
    """

    def __init__(self, address: str, pid: int = 0) -> None:
        self.address = address
        self.pid = pid
        parts = urlsplit(address)
        assert parts.port, address
        self.port: int = parts.port
        self.token = parts.fragment.removeprefix("token=")

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> http.client.HTTPResponse:
        """Make a request; with the token, if there is one and no other `x_locks_token` is given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        known = {"X-Locks-Token": self.token} if self.token else {}
        known |= {"Content-Type": "application/json"} if body is not None else {}
        known |= {name.replace("_", "-").title(): value for name, value in headers.items()}
        data = json.dumps(body) if body is not None else None
        connection.request(method, path, data, {k: v for k, v in known.items() if v})
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Make a request; return its status, and the answer."""
        with self.request(method, path, body, **headers) as answer:
            return answer.status, json.loads(answer.read())


class Reader:
    """Reads the stream of changes, as the page does.

    Attributes:
        picture: What it has so far.
        messages: How many messages that took.
    """

    def __init__(self, page: Web) -> None:
        self.picture: Picture = NOTHING
        self.messages = 0
        self.answer = page.request("GET", "/events")
        assert self.answer.status == 200

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()

    def next(self) -> Picture:
        """The next picture."""
        while True:
            line = self.answer.readline().decode()
            assert line, "the stream has ended"
            if not line.startswith("data: "):
                continue
            message = json.loads(line[6:])
            self.messages += 1
            self.picture = applied(
                NOTHING if message["first"] else self.picture,
                Changes(message["put"], message["gone"]),
            )
            if message["last"]:
                return self.picture

    def until(self, seen: Callable[[Picture], bool]) -> Picture:
        """The next picture that is as it should be."""
        while not seen(self.next()):
            pass
        return self.picture


@contextmanager
def web(servers: Servers, *arguments: str) -> Iterator[Web]:
    """While the page is served."""
    process = Program(
        [sys.executable, "-m", "locks_leader.command", "web", "--listen=127.0.0.1:0", *arguments],
        env=servers.environment(),
    )
    try:
        yield Web(process.stdout.readline().strip(), process.pid)
    finally:
        process.terminate()
        try:
            _, errors = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert "Traceback" not in errors, errors
        assert process.returncode == 0, errors
