"""Figures of client nodes: rings of clients over lock servers, beside a mesh; start and upkeep of many.

Lock servers are processes of their own, and so are the programs with clients, ten of them by default, each with as many
nodes as are needed (`benchmarks.spokes_program`). Clients of a ring are on nodes of their own, dealt out to
the programs. Each has its own id, and wants that of the next one. When all but one wait for each other, that one
asks for the first one's, which closes the ring; from then until all are done counts.
"""

from __future__ import annotations

import collections
import json
import os
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import locks
from benchmarks.cluster import on_linux
from benchmarks.harness import Figure, Report, quartiles
from benchmarks.lab import COOKIE, HOST, ROOT, end_with_parent, processor_time

__all__ = ["FIGURES", "Outcome", "Sizes", "Spokes"]

LIMIT = 120.0  # seconds until a ring must be done, or nodes connected
KILLED = 10  # clients in a ring during which a server is killed, at most
QUIET = 0.03  # seconds without news until the ring is closed


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
        sizes: Of rings.
        runs: How many rings of each size, in each world.
        kills: How many rings of each size up to `KILLED` during which a server is killed.
        programs: How many processes have clients.
        start: How many clients start, beside a mesh of as many.
        connected: How many clients one server has.
        seconds: How long each state of that is measured.
    """

    sizes: Sequence[int] = (2, 3, 10, 50)
    runs: int = 5
    kills: int = 1
    programs: int = 10
    start: int = 40
    connected: Sequence[int] = (500, 2000)
    seconds: float = 4.0

    @classmethod
    def of(cls, report: Report) -> Sizes:
        """The usual sizes."""
        return cls((3,), 1, 1, 2, 6, (20,), 0.5) if report.quick else cls()


class Outcome(NamedTuple):
    """How one ring went.

    Attributes:
        took: Seconds from the last request until all were done.
        yielded: How many surrenders resolved it.
    """

    took: float
    yielded: int


# A process that is to end with its parent ends with the thread that has started it.
_starter = futures.ThreadPoolExecutor(1)


class Process:
    """A process that says lines of JSON."""

    def __init__(self, *command: str, peers: Iterable[str] = ()) -> None:
        self.process = _starter.submit(self._start, command, ",".join(peers)).result()
        self.pid = self.process.pid
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _start(self, command: Sequence[str], peers: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, "LOCKS_PEERS": peers},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,
        )

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")
        self.process.stdout.close()

    def line(self) -> Any:
        """The next line of JSON that it says."""
        return json.loads(self.text())

    def text(self) -> str:
        """The next line that it says.

        Raises:
            AssertionError: It says nothing for too long.
        """
        try:
            return self._lines.get(timeout=LIMIT)
        except queue.Empty:
            raise AssertionError(f"no answer within {LIMIT:g} s") from None

    def order(self, do: str, **what: Any) -> None:
        """Tell it to do something."""
        assert self.process.stdin is not None
        print(json.dumps({"do": do, **what}), file=self.process.stdin, flush=True)

    def answer(self, do: str) -> Any:
        """The answer to an order; all that is said before is for nobody."""
        while True:
            said = self.line()
            if said.get("answer") == do:
                return said

    def ask(self, do: str, **what: Any) -> Any:
        """Tell it to do something, and wait until it is done."""
        self.order(do, **what)
        return self.answer(do)

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


class Server:
    """A lock server, which can be started again where it was."""

    def __init__(self, name: str, cookie: Path, peers: Iterable[str] = ()) -> None:
        self.name = name
        self._given = [f"--name={name}", f"--cookie-file={cookie}"]
        self._peers = list(peers)
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it."""
        listen = f"--listen={HOST}:{self.port}"
        self.process = Process("-m", "locks", "node", *self._given, listen, peers=self._peers)
        self.port = self.process.line()["port"]

    @property
    def peer(self) -> str:
        """How others are told of it."""
        return f"{self.name}:{self.port}"


class Spokes:
    """Lock servers, and programs with clients; a context manager that ends them."""

    def __init__(self, programs: int) -> None:
        self._stack = ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self._cookie = Path(folder, "cookie")
        self._cookie.touch(0o600)
        self._cookie.write_text(COOKIE)
        self.programs = [Process("-m", "benchmarks.spokes_program") for _ in range(programs)]
        self.servers: dict[str, list[Server]] = {}
        self._rings = 0

    def __enter__(self) -> Spokes:
        return self

    def __exit__(self, *_: object) -> None:
        locks.stop()
        for program in self.programs:
            program.end()
        for servers in self.servers.values():
            for server in servers:
                server.process.end()
        self._stack.close()

    def begin(self, world: str, servers: int, nodes: int, mesh: bool = False) -> None:
        """Begin a world: so many lock servers, and so many nodes of clients."""
        made = self.servers[world] = []
        for number in range(servers):
            peers = [each.peer for each in made]
            made.append(Server(f"{world}{number}@{HOST}", self._cookie, peers))
        self.add(world, nodes, mesh)

    def add(self, world: str, nodes: int, mesh: bool = False) -> None:
        """Let more clients come, and wait until all are connected."""
        peers = [each.peer for each in self.servers[world]]
        shares = [nodes // len(self.programs)] * len(self.programs)
        for extra in range(nodes % len(self.programs)):
            shares[extra] += 1
        there = [(p, share) for p, share in zip(self.programs, shares, strict=True) if share]
        for program, share in there:
            program.order("start", world=world, number=share, peers=peers, mesh=mesh)
        for program, _ in there:
            program.answer("start")
        if mesh:
            everybody = nodes + len(peers)
            until(
                lambda: all(
                    program.ask("alive", world=world, names=[])["least"] == everybody
                    for program, _ in there
                ),
                "the mesh is not whole",
            )

    def look(self) -> None:
        """Let this process see who waits at the lock servers."""
        peers = [each.peer for servers in self.servers.values() for each in servers]
        node = locks.start(cookie=COOKIE, peers=peers, mesh=False)
        assert node.await_nodes([peer.rpartition(":")[0] for peer in peers], timeout=LIMIT)

    def ring(
        self, world: str, size: int, servers: int, kill: bool = False, majority: bool = False
    ) -> Outcome:
        """One ring of clients.

        Args:
            world: Where.
            size: How many clients.
            servers: On how many servers their ids are.
            kill: Whether one of them is killed as soon as the ring is closed.
            majority: Whether each id is locked on a majority of them; else on one of them each.
        """
        self._rings += 1
        names = [server.name for server in self.servers[world][:servers]]

        def place(number: int) -> Any:
            nodes = names if majority else [names[number % servers]]
            require = "majority" if majority else "all"
            return ("ring", self._rings, number), nodes, require

        members: dict[int, list[Any]] = {}
        count = len(self.programs)
        for number in range(size):
            member = (number, number // count, place(number), place((number + 1) % size))
            members.setdefault(number % count, []).append(member)
        there = [(self.programs[index], each) for index, each in members.items()]
        for program, each in there:
            program.ask("hold", world=world, members=each)
        for program, each in there:
            for _ in each:
                assert "held" in program.line()
        last = size - 1
        for program, each in there:
            program.ask("go", numbers=[number for number, *_ in each if number != last])
        until(lambda: self._waited_for(names) == size - 1, "there is no chain")
        time.sleep(QUIET)
        self.programs[last % count].order("go", numbers=[last])
        if kill:
            time.sleep(random.random() * 0.01)
            victim = random.choice(self.servers[world][:servers])
            victim.process.end()
        done = [self._done(program) for program, each in there for _ in each]
        if kill:
            victim.start()
            self._again(world)
        for program, _ in there:
            program.ask("forget")
        asked = max(each["asked"] for each in done)
        return Outcome(
            max(each["at"] for each in done) - asked, sum(each["yielded"] for each in done)
        )

    def _done(self, program: Process) -> Any:
        said = program.line()
        while "done" not in said:
            said = program.line()
        if "error" in said:
            raise AssertionError(f"a client of a ring: {said['error']}")
        return said

    def _waited_for(self, servers: Iterable[str]) -> int:
        """How many ids are waited for; of a majority, on one server at least."""
        views = [locks.queue(("ring", self._rings), node=name) for name in servers]
        return len({request.lock_id for view in views for request in view.waiting})

    def _again(self, world: str) -> None:
        """Wait until all are connected again."""
        names = [server.name for server in self.servers[world]]
        assert locks.start().await_nodes(names, timeout=LIMIT)
        until(
            lambda: all(
                program.ask("alive", world=world, names=names)["all"] for program in self.programs
            ),
            "a client is not connected again",
        )

    def processor(self, world: str) -> float:
        """The processor time of all programs and of the servers of a world."""
        pids = [p.pid for p in self.programs] + [s.process.pid for s in self.servers[world]]
        return sum(map(processor_time, pids))


def until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: It takes too long.
    """
    deadline = time.monotonic() + LIMIT
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(otherwise)
        time.sleep(0.002)


# --- Rings ---------------------------------------------------------------------------------------

SPOKES = {"one": 1, "three": 3}  # worlds of client nodes, and how many servers they have


def rings(report: Report) -> None:
    """The figure of rings."""
    if not on_linux(report):
        return
    sizes = Sizes.of(report)
    with Spokes(sizes.programs) as spokes:
        most = max(sizes.sizes)
        for world, servers in SPOKES.items():
            spokes.begin(world, servers, most)
        spokes.begin("mesh", 3, most, mesh=True)
        spokes.look()
        for size in sizes.sizes:
            found: dict[tuple[str, int], list[Outcome]] = {}
            kinds = list(SPOKES.items())
            kinds += [("mesh", servers) for servers in SPOKES.values()]
            for _ in range(sizes.runs):
                for world, servers in kinds:
                    outcome = spokes.ring(world, size, servers)
                    found.setdefault((world, servers), []).append(outcome)
                kinds.reverse()
            for world, servers in SPOKES.items():
                _row(report, size, servers, found[world, servers], found["mesh", servers])
        if sizes.kills:
            for size in [size for size in sizes.sizes if size <= KILLED]:
                outcomes = [
                    spokes.ring("three", size, 3, kill=True, majority=True)
                    for _ in range(sizes.kills)
                ]
                took = [outcome.took * 1000 for outcome in outcomes]
                report.add(
                    f"ring of {size}, majority of 3 servers, one is killed",
                    statistics.median(took),
                    "ms",
                    note=f"{len(took)} runs, all resolved, at most {max(took):,.0f} ms; "
                    f"surrenders {_counted(outcomes)}",
                )


def _counted(outcomes: Iterable[Outcome]) -> str:
    counts = collections.Counter(outcome.yielded for outcome in outcomes)
    return ", ".join(f"{number} in {times} runs" for number, times in sorted(counts.items()))


def _row(
    report: Report, size: int, servers: int, ours: Sequence[Outcome], mesh: Sequence[Outcome]
) -> None:
    ratios = [one.took / other.took for one, other in zip(ours, mesh, strict=True)]
    took, others = ([outcome.took * 1000 for outcome in each] for each in (ours, mesh))
    report.add(
        f"ring of {size} over {servers} server{'s' * (servers > 1)}",
        statistics.median(took),
        "ms",
        yardstick="mesh",
        yardstick_value=statistics.median(others),
        ratio=statistics.median(ratios),
        quartiles=quartiles(ratios),
        target=report.limit(2.0),
        note=f"{len(took)} runs; at most {max(took):,.0f} and {max(others):,.0f} ms; "
        f"surrenders {_counted(ours)}; mesh {_counted(mesh)}",
    )


# --- Many clients --------------------------------------------------------------------------------


def crowd(report: Report) -> None:
    """The figure of many clients: how they start, and what they cost one server."""
    if not on_linux(report):
        return
    sizes = Sizes.of(report)
    work = {}
    for mesh in (False, True):
        with Spokes(sizes.programs) as spokes:
            spokes.begin("new", 3, 0)
            before = spokes.processor("new")
            spokes.add("new", sizes.start, mesh)
            time.sleep(1)
            work[mesh] = spokes.processor("new") - before
    report.add(
        f"start of {sizes.start} clients at 3 servers: processor time of all",
        work[False],
        "s",
        yardstick="mesh",
        yardstick_value=work[True],
        ratio=work[False] / work[True],
        target=report.limit(0.25),
    )
    for number in sizes.connected:
        _at_one_server(report, sizes, number)


def _at_one_server(report: Report, sizes: Sizes, number: int) -> None:
    with Spokes(sizes.programs) as spokes:
        spokes.begin("few", 1, sizes.programs)
        (server,) = spokes.servers["few"]
        pid = server.process.pid
        time.sleep(1)
        memory, idle = resident(pid), busy(pid, sizes.seconds)
        spokes.add("few", number)
        time.sleep(1)
        each = max(0.0, resident(pid) - memory) * 1024 / number
        report.add(f"{number} clients of a server: memory for each", each, "KiB")
        each = max(0.0, busy(pid, sizes.seconds) - idle) * 1e6 / number
        report.add(f"{number} clients of a server: idle, in a second, each", each, "µs")
        for program in spokes.programs:
            program.ask("toil", world="few", server=server.name, pause=1.0)
        time.sleep(2)
        for program in spokes.programs:
            program.ask("times")
        begun = time.monotonic()
        share = busy(pid, sizes.seconds)
        took = [t for program in spokes.programs for t in program.ask("rest")["took"]]
        rate = len(took) / (time.monotonic() - begun)
        each = max(0.0, share - idle) * 1e6 / (rate or 1)
        report.add(
            f"{number} clients of a server: each transaction",
            each,
            "µs",
            note=f"{rate:,.0f} a second, median {statistics.median(took) * 1000:.1f} ms; the server works for "
            f"{share * 100:.0f} % of the time",
        )
        report.add(
            f"{number} clients of a server: memory for each, at work",
            max(0.0, resident(pid) - memory) * 1024 / number,
            "KiB",
        )


def resident(pid: int) -> float:
    """The memory of a process, in MiB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in text.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def busy(pid: int, seconds: float) -> float:
    """Which part of the time a process works."""
    before, begun = processor_time(pid), time.monotonic()
    time.sleep(seconds)
    return (processor_time(pid) - before) / (time.monotonic() - begun)


FIGURES = [
    Figure(
        "spokes", "rings of clients that are connected with servers alone", {"processes": rings}
    ),
    Figure("clients", "what client nodes cost", {"processes": crowd}),
]
