"""Processes that are measured together: nodes, echoes, a Redis; pinned, timed and ended.

Either all are pinned to one core, or the client to one and all others to another. On one core only one
process works at a time, so the processor time of all of them together is compared: the time on the wall
of a machine that has nothing else to do. Other programs change it little. On two cores the time on the
wall is compared.

All of this needs Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import gevent

import locks
from benchmarks.harness import Report, Sample
from locks.node.node import Node

__all__ = [
    "COOKIE",
    "HOST",
    "LIMIT",
    "WARM",
    "Lab",
    "Load",
    "Pins",
    "Run",
    "Timed",
    "line_of",
    "now",
    "pin",
    "pinnings",
    "processor_time",
    "timed",
]

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"
COOKIE = "cookie-of-the-benchmarks"
LIMIT = 20.0  # seconds for a process to be ready, or to end
WARM = 20  # operations ahead of everything
CPU_CLOCK = 2  # of another process: the low bits that clock_getcpuclockid(3) adds to its id
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

now = time.perf_counter


class Timed(NamedTuple):
    """One operation.

    Attributes:
        granted: Seconds until its lock was granted.
        whole: Seconds until all was done.
    """

    granted: float
    whole: float


Run = Callable[[int], list[Timed]]
"""Does something so many times."""


def timed(operation: Callable[[], float]) -> Run:
    """Do an operation so many times, one after the other; it returns when it was granted."""

    def run(times: int) -> list[Timed]:
        found = []
        for _ in range(times):
            begun = now()
            granted = operation()
            found.append(Timed(granted - begun, now() - begun))
        return found

    return run


# --- Where processes run ---------------------------------------------------------------------------


class Pins(NamedTuple):
    """The cores of the client and of all others."""

    name: str
    client: int
    others: int


def pinnings(report: Report) -> list[Pins]:
    """On one core, and on two if there are two."""
    cores = sorted(os.sched_getaffinity(0))
    found = [Pins("one core", cores[0], cores[0])]
    if len(cores) > 1:
        found.append(Pins("two cores", *cores[:2]))
    else:
        report.skipped.append("there is only one core: the rows for two are left out")
    return found


def pin(process: int, core: int) -> None:
    """Let all threads of a process run on one core only."""
    for thread in os.listdir(f"/proc/{process}/task"):
        try:
            os.sched_setaffinity(int(thread), {core})
        except ProcessLookupError:
            continue  # it has just ended


def processor_time(process: int) -> float:
    """The seconds for which the threads of a process have run."""
    return time.clock_gettime(~process << 3 | CPU_CLOCK)


def end_with_parent() -> None:
    """In a child: end when the parent does, even if that is killed."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


# --- The processes ---------------------------------------------------------------------------------


class Load(NamedTuple):
    """What takes part in a measurement: the operation, the client's process, and all others."""

    run: Run
    client: int
    others: Sequence[int]


class Redis(NamedTuple):
    """A Redis: who acquires and releases redis-py's lock there, what it is, and its port."""

    load: Load
    about: str
    port: int


class Peers(NamedTuple):
    """This program's node, and the others: their names, and their processes."""

    node: Node
    names: list[str]
    processes: list[int]

    def load(self, run: Run, others: int = 1) -> Load:
        """Run an operation with some of the other nodes."""
        return Load(run, os.getpid(), self.processes[:others])

    def count_bytes(self, operation: Callable[[], object]) -> list[int]:
        """The bytes of the messages to (above 0) and from (below 0) the first peer: a request first.

        An answer may be noted before its request, by another thread: so not the order counts.
        """
        assert self.node.cluster is not None
        link: Any = self.node.cluster.network.links[self.names[0]]
        operation()
        bare = link._socket
        counting = link._socket = Counting(bare)
        try:
            operation()
        finally:
            link._socket = bare
        sent = [size for size in counting.pieces if size > 0]
        received = [size for size in counting.pieces if size < 0]
        return [sent[0], received[0], *sent[1:], *received[1:]]


class Counting:
    """A socket that notes how many bytes are sent (above 0) and received (below 0)."""

    def __init__(self, sock: Any) -> None:
        self._socket = sock
        self.pieces: list[int] = []

    def send(self, data: bytes) -> int:
        """Send it."""
        done: int = self._socket.send(data)
        self.pieces.append(done)
        return done

    def recv(self, size: int) -> bytes:
        """Receive something."""
        data: bytes = self._socket.recv(size)
        self.pieces.append(-len(data))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class Lab:
    """The processes of one figure; as a context manager it ends them.

    Args:
        report: Is told what is not installed.
        green: Whether the clients are greenlets; else threads.

    Attributes:
        pause: Sleeps for so many seconds.
    """

    def __init__(self, report: Report, green: bool) -> None:
        self.green = green
        self._report = report
        self.pause: Callable[[float], object] = gevent.sleep if green else time.sleep
        self._found: dict[str, list[Timed]] = {}
        self._pinned: dict[int, int] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Lab:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._stack.callback(locks.stop)
        return self

    def __exit__(self, *details: Any) -> None:
        self._stack.close()

    def start_nodes(self, number: int) -> Peers:
        """Start this program's node, and others that it is connected with."""
        cookie = self._folder / "cookie"
        cookie.touch(mode=0o600)
        cookie.write_text(COOKIE)
        command = ("-m", "locks", "node", "--no-mesh", "--cookie-file", str(cookie), "--name")
        processes = [
            self.start(sys.executable, *command, f"server{n}@{HOST}") for n in range(1, number + 1)
        ]
        ready = [json.loads(line_of(process)) for process in processes]
        names = [each["name"] for each in ready]
        node = locks.start(
            f"client@{HOST}",
            cookie=COOKIE,
            peers=[f"{each['name']}:{each['port']}" for each in ready],
            mesh=False,
        )
        self.wait(lambda: node.alive.issuperset(names), f"{names} are not connected")
        return Peers(node, names, [process.pid for process in processes])

    def start_echo(self, there: int, back: int) -> Load:
        """Start both ends of an echo."""
        module = (sys.executable, "-m", "benchmarks.echo")
        server = self.start(*module, "server", str(back))
        client = self.start(*module, "client", line_of(server).strip(), str(there))

        def run(times: int) -> list[Timed]:
            print(times, file=client.stdin, flush=True)
            return [Timed(took, took) for took in json.loads(line_of(client))]

        return Load(run, client.pid, [server.pid])

    def start_redis(self) -> Redis | None:
        """Start a Redis, to acquire and release redis-py's lock; if it is installed.

        Its sockets block, which is the fastest way to use redis-py.
        """
        package = self._report.optional("redis")
        program = shutil.which("redis-server")
        if program is None:
            self._report.skipped.append("redis-server is not installed: its rows are left out")
        if package is None or program is None:
            return None
        with socket.socket() as found:
            found.bind((HOST, 0))
            port = found.getsockname()[1]
        options = ("--bind", HOST, "--save", "", "--appendonly", "no", "--loglevel", "warning")
        server = self.start(program, "--port", str(port), *options, "--dir", str(self._folder))
        client = package.Redis(host=HOST, port=port)
        self._stack.callback(client.close)

        def answers() -> bool:
            try:
                return bool(client.ping())
            except package.ConnectionError:
                return False

        self.wait(answers, "redis-server does not answer")
        lock = client.lock("bench:1", timeout=30)

        def operation() -> float:
            lock.acquire()
            granted = now()
            lock.release()
            return granted

        about = f"redis-py {package.__version__}, Redis {client.info()['redis_version']}"
        return Redis(Load(timed(operation), os.getpid(), [server.pid]), about, port)

    def start(
        self, *command: str, quiet: bool = False, peers: Iterable[str] = ()
    ) -> subprocess.Popen[str]:
        """Start a process, to be ended with all others; what a quiet one logs is not shown. A node connects to the peers."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            text=True,
            cwd=ROOT,
            env={**os.environ, "LOCKS_PEERS": ",".join(peers)},
            preexec_fn=end_with_parent,
        )
        self._stack.callback(_end, process)
        return process

    def wait(self, ready: Callable[[], bool], otherwise: str) -> None:
        """Wait for something.

        Raises:
            TimeoutError: It took too long.
        """
        give_up = now() + LIMIT
        while not ready():
            if now() > give_up:
                raise TimeoutError(f"{otherwise} within {LIMIT:g} s")
            self.pause(0.01)

    # --- Measuring ------------------------------------------------------------------------------

    def sample(
        self, name: str, pins: Pins, load: Load, seconds: float, together: bool = False
    ) -> Sample:
        """Make a sample.

        Args:
            name: What it is called.
            pins: Where the processes run.
            load: What takes part.
            seconds: How long it takes, about.
            together: Whether operations overlap, so that they can't be timed one by one.
        """
        run, client, others = load
        kept = self._found[name] = []
        everybody = (client, *others)

        def sample() -> float:
            self._pin(load, pins)
            worked, begun = sum(map(processor_time, everybody)), now()
            found = run(times)
            took, worked = now() - begun, sum(map(processor_time, everybody)) - worked
            kept.extend(found)
            if pins.client == pins.others:
                return worked / len(found)
            return took / len(found) if together else statistics.median(_wholes(found))

        self._pin(load, pins)
        run(WARM)  # what only the first time costs
        begun = now()
        done = len(run(WARM))
        times = max(5, round(done * seconds / (now() - begun)))
        return sample

    def note(self, name: str) -> str:
        """The time on the wall: median and 99th percentile of all rounds."""
        found = self._found[name]
        wholes = sorted(_wholes(found))
        late = wholes[min(len(wholes) - 1, len(wholes) * 99 // 100)]
        text = f"wall {_micro(statistics.median(wholes))}, p99 {_micro(late)}"
        granted = statistics.median(each.granted for each in found)
        if granted < statistics.median(wholes):
            text += f"; granted after {_micro(granted)}"
        return text

    def _pin(self, load: Load, pins: Pins) -> None:
        cores = {load.client: pins.client, **dict.fromkeys(load.others, pins.others)}
        for process, core in cores.items():
            if self._pinned.get(process) != core:
                pin(process, core)
                self._pinned[process] = core


def _wholes(found: Sequence[Timed]) -> list[float]:
    return [each.whole for each in found]


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints.

    Raises:
        RuntimeError: It has ended instead.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} has ended with {process.wait(LIMIT)}")
    return line


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
