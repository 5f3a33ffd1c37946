"""Elections of client programs over three lock servers, beside those of a mesh, in one run.

Each candidate is a process of its own. Its leader's process is killed, again and again; what counts is the time from
the kill until all others agree on the next one, have its state, and it had theirs
(`benchmarks.candidate.Dictionary`). In each round all worlds take their turn:

* *mesh*: candidates that are all connected with each other; the lock is taken on their own nodes.
* *mesh, servers*: the same, and three servers, which are the electorate (`policy="majority"`).
* *clients*: client nodes (`mesh=False`) with three servers as the electorate.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.cluster import on_linux
from benchmarks.harness import Figure, Report
from benchmarks.lab import COOKIE, HOST, Lab, Pins, line_of, pinnings, processor_time
from benchmarks.leader import Election, Group

__all__ = ["FIGURES"]

SERVERS = 3
WORLDS = ("mesh", "mesh, servers", "clients")


class World(Group):
    """Candidates of one kind.

    Args:
        lab: Starts the processes.
        name: Of which kind.
        number: How many candidates.
        pins: The cores on which they run, in turns.
        folder: For the file with the cookie.
    """

    def __init__(self, lab: Lab, name: str, number: int, pins: Pins, folder: Path) -> None:
        self._name = name
        self._servers: list[str] = []
        self.server_processes: list[subprocess.Popen[str]] = []
        if name != "mesh":
            cookie = folder / "cookie"
            cookie.touch(mode=0o600)
            cookie.write_text(COOKIE)
            for each in range(SERVERS):
                process = lab.start(
                    *(sys.executable, "-m", "locks", "node", "--cookie-file", str(cookie)),
                    *("--name", f"server{each}@{HOST}"),
                    peers=self._servers,
                )
                ready = json.loads(line_of(process))
                self._servers.append(f"{ready['name']}:{ready['port']}")
                self.server_processes.append(process)
        super().__init__(lab, number, pins)

    def arguments(self, name: str) -> Sequence[str]:
        """See `Group`."""
        peers = [] if self._name == "clients" else super().arguments(name)
        client = ["--client"] if self._name == "clients" else []
        return [*peers, *client, *(["--servers", *self._servers] if self._servers else [])]

    @property
    def alive(self) -> int:
        """See `Group`."""
        return SERVERS + 1 if self._name == "clients" else super().alive + len(self._servers)

    def takeovers(self) -> Iterator[Election]:
        """Elect a leader, kill it, start it anew, and so on."""
        everybody = set(self._processes)
        found = self._measure(everybody, partial(self._all, "start", "election"))
        while True:
            lost = found.leader
            process = self._processes.pop(lost)
            found = self._measure(everybody - {lost}, process.kill, is_kill=True)
            process.communicate()
            yield found
            self._open(lost)
            self._until_connected()
            self._measure([lost], partial(self._do, lost, "start", "election"))

    def connections(self) -> tuple[float, float]:
        """How many connections a candidate has, and how many links over servers, on average."""
        found = self._all("connections").values()
        return statistics.mean(links for links, _ in found), statistics.mean(
            over for _, over in found
        )


class Outcome(NamedTuple):
    """What came of one world.

    Attributes:
        seconds: Each take-over.
        start: Seconds of processor time of all processes until all agreed for the first time.
        connections: See `World.connections`.
    """

    seconds: list[float]
    start: float
    connections: tuple[float, float]


def took(election: Election) -> float:
    """From the kill until all agree."""
    return (election.agreed - election.begun) / 1e9


def takeover(report: Report) -> None:
    """Measure take-overs in all worlds, in turns."""
    if not on_linux(report):
        return
    candidates, rounds = (3, 2) if report.quick else (10, 5)
    *_, pins = pinnings(report)
    found: dict[str, Outcome] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        going = []
        for name in WORLDS:
            lab = stack.enter_context(Lab(report, False))
            world = World(lab, name, candidates, pins, folder)
            elections = world.takeovers()
            first = next(elections)
            pids = [*world.pids, *(process.pid for process in world.server_processes)]
            worked = sum(map(processor_time, pids))
            found[name] = Outcome([took(first)], worked, world.connections())
            going.append((name, elections))
        for _ in range(1, rounds):
            for name, elections in going:
                found[name].seconds.append(took(next(elections)))
    for name, outcome in found.items():
        direct, over = outcome.connections
        report.add(
            f"{candidates} candidates, {name}: SIGKILL of the leader's process until agreed",
            statistics.median(outcome.seconds) * 1e3,
            "ms",
            note=f"max {max(outcome.seconds) * 1e3:.0f} ms; start {outcome.start:.1f} s of processor time; "
            f"each has {direct:.1f} connections, and {over:.1f} over servers",
        )


FIGURES = [
    Figure("takeover", "elections of client programs, beside a mesh", {"two cores": takeover})
]
