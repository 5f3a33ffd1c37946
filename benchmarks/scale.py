"""Figure of scale: what many connections, and many that came and went, cost one lock server.

The server is a process of its own. The others are bare connections that do the handshake and greet, as
`locks` does, and tick; all of them in this process. A server forgets names after ten minutes; here it is
told to do so after some seconds, or the figure would take as long.

    python -m benchmarks.scale --connected 2000 --gone 10000

measures what `python -m benchmarks --only scale` does, in the given sizes.
"""

from __future__ import annotations

import argparse
import gc
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.harness import Figure, Report, table
from benchmarks.lab import COOKIE, HOST, ROOT, end_with_parent, processor_time
from locks.node.peers.greeting import PROTOCOL
from locks.otp.admission.handshake import Established, Failed, Handshake, Send, Status
from locks.otp.bytes import control
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.otp.process.processes import CALL
from locks.wire.forms import LOCK_SERVER, OURS

__all__ = ["FIGURES"]

SERVER = "server@127.0.0.1"
TICK = 3.75  # seconds: a quarter of net_ticktime
NOBODY = (HOST, 1)
PROGRAM = """
import gc, sys
import locks
import locks.otp.distribution
locks.otp.distribution.FORGET = float(sys.argv[2])
node = locks.start(sys.argv[1], cookie=sys.argv[3])
print(node.address[1], flush=True)
for _ in sys.stdin:
    gc.collect()
    print(len(node.cluster.distribution.addresses), flush=True)
"""


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
        connected: Connections at one time.
        gone: Those that came and went.
        forget: After how many seconds the server forgets names.
        seconds: For how long processor time is measured.
    """

    connected: int = 2000
    gone: int = 10_000
    forget: float = 10.0
    seconds: float = 4.0


class Server:
    """A lock server, and what it costs."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, SERVER, str(sizes.forget), COOKIE],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,
        )
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self._out, self._in = self.process.stdout, self.process.stdin
        self.port = int(self._out.readline())

    def names(self) -> int:
        """How many names it knows; it collects its garbage before."""
        self._in.write("\n")
        self._in.flush()
        return int(self._out.readline())

    def memory(self) -> float:
        """MiB that are in memory."""
        self.names()
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            (line,) = (line for line in file if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def idle(self) -> float:
        """Milliseconds of processor time in a second."""
        before = processor_time(self.process.pid)
        time.sleep(self.sizes.seconds)
        return (processor_time(self.process.pid) - before) * 1000 / self.sizes.seconds

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for file in (self._in, self._out):
            file.close()


def connect(port: int, name: str, listens: bool) -> socket.socket:
    """A node that is connected, and has greeted."""
    sock = socket.create_connection((HOST, port), 10)
    shake = Handshake(name=name, creation=5, cookie=COOKIE, challenge=7, peer=SERVER)
    events: list[Any] = list(shake.start())
    done = False
    while not done:
        for event in events:
            if isinstance(event, Send):
                sock.sendall(event.data)
            elif isinstance(event, Status) and event.status == "alive":
                events += shake.answer_alive(True)
            elif isinstance(event, Failed):
                raise ConnectionError(event.reason)
            done = done or isinstance(event, Established)
        if not done:
            events = shake.receive(sock.recv(4096))
    me = Pid(77, name, 5)
    known = [(name, *NOBODY)] if listens else []
    greeting = (OURS, Atom("greeting"), PROTOCOL, 1, 15.0, known)
    request = (CALL, (me, Reference(name, 5, (1, 0, 0))), greeting)
    body = control.RegSend(me, Atom(LOCK_SERVER), request).pack()
    sock.sendall(struct.pack(">I", len(body)) + body)
    return sock


class Crowd:
    """Connections that tick, and read what they are sent."""

    def __init__(self, port: int, number: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets = [connect(port, f"n{n}@{HOST}", False) for n in range(number)]
        self._ended = threading.Event()
        for sock in self._sockets:
            self._selector.register(sock, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.1):
                sock: Any = key.fileobj
                if not sock.recv(65536):
                    self._selector.unregister(sock)
            if time.monotonic() >= due:
                due += TICK
                for sock in self._sockets:
                    sock.send(bytes(4))

    def end(self) -> None:
        """Close them all."""
        self._ended.set()
        self._thread.join()
        self._selector.close()
        for sock in self._sockets:
            sock.close()


def come_and_go(port: int, number: int, what: str, listens: bool) -> None:
    """Be one connection after the other."""
    for n in range(number):
        connect(port, f"{what}{n}@{HOST}", listens).close()


def scale(report: Report, sizes: Sizes | None = None) -> None:
    """The figure."""
    if sys.platform != "linux":
        report.skipped.append("memory and time are read as Linux has it: all is left out")
        return
    if sizes is None:
        sizes = Sizes(50, 100, 1.0, 0.5) if report.quick else Sizes()
    gc.collect()
    server = Server(sizes)
    try:
        _measure(report, sizes, server)
    finally:
        server.end()


def _measure(report: Report, sizes: Sizes, server: Server) -> None:
    come_and_go(server.port, 20, "first", True)  # what is made only once
    time.sleep(sizes.forget + 1)
    new = server.memory(), server.idle()

    def row(case: str, note: str = "") -> None:
        for what, unit, value, yardstick in (
            ("memory", "MiB", server.memory(), new[0]),
            ("idle", "ms/s", server.idle(), new[1]),
        ):
            report.add(
                f"{case}: {what}",
                value,
                unit,
                yardstick="new",
                yardstick_value=yardstick,
                note=note,
            )

    crowd = Crowd(server.port, sizes.connected)
    try:
        time.sleep(2 * TICK if not report.quick else 0.5)
        row(f"{sizes.connected} connected")
    finally:
        crowd.end()
    time.sleep(2)
    _timed(lambda: come_and_go(server.port, sizes.gone, "c", False), report, sizes.gone, "clients")
    row(f"{sizes.gone} clients came and went")
    listeners = sizes.gone // 10
    _timed(lambda: come_and_go(server.port, listeners, "l", True), report, listeners, "that listen")
    row(f"{listeners} more that listened", f"{server.names()} names")
    while server.names():
        time.sleep(0.5)
    row("when these are forgotten", f"{server.names()} names")


def _timed(do: Callable[[], None], report: Report, number: int, what: str) -> None:
    begun = time.perf_counter()
    do()
    each = (time.perf_counter() - begun) / number * 1000
    report.add(f"one of {number} {what}: come and go", each, "ms")


FIGURES = [Figure("scale", "what many connections cost a lock server", {"processes": scale})]


def main() -> int:
    """Measure in the given sizes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    for name, default in zip(Sizes._fields, Sizes(), strict=True):
        parser.add_argument(f"--{name}", type=type(default), default=default)
    report = Report(False)
    scale(report, Sizes(**vars(parser.parse_args())))
    print(table("scale", report.rows, dict.fromkeys(report.skipped)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
