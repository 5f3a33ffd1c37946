"""Figures of elections: until all agree on a leader, at the start and when the leader is gone.

What is measured is `benchmarks.candidate.Dictionary`: the new leader asks the others for their
state, as in the original's test, and hands all of it over. All *agree* when the last of them knows the
leader and has the state: the last `elected` or `surrendered`. Each notes the time itself, and is asked
for it afterwards.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import gevent
import pykka

import locks
import locks_leader
from benchmarks.candidate import Counts, Dictionary, Note, Notes
from benchmarks.cluster import on_linux
from benchmarks.harness import Figure, Report, Runs
from benchmarks.lab import (
    COOKIE,
    HOST,
    LIMIT,
    WARM,
    Lab,
    Load,
    Pins,
    line_of,
    now,
    pin,
    pinnings,
    processor_time,
)

__all__ = ["FIGURES", "Election", "Group"]

QUIET = 0.03  # seconds until the candidates are asked how it went
BYTES = 100  # of an echo, each way
ECHOES = 200  # in each round
TARGET = 100  # echoes, for at most so many processes:
TARGET_UP_TO = 5

ECHO = "echo"
START = "at the start"
DEATH = "the leader dies"
STOP = "the leader is stopped"
KILL = "SIGKILL of the leader's process"
AGAIN = "one that comes back follows"
ENDS = (DEATH, STOP, KILL)
NOTICED = ": noticed"
AGREED = ": from then until agreed"
WORK = "work"


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
        here: How many candidates in one process.
        processes: How many processes with one candidate each.
        rounds: How often.
    """

    here: Sequence[int] = (2, 3, 5, 10)
    processes: Sequence[int] = (2, 3, 5)
    rounds: int = 10

    @classmethod
    def of(cls, report: Report) -> Sizes:
        """The usual sizes."""
        return cls((3,), (3,), 1) if report.quick else cls()


class Election(NamedTuple):
    """How one election went.

    Attributes:
        leader: The candidate that leads.
        begun: When it began, in nanoseconds.
        noticed: When the first one was told that the leader is gone; `agreed` if none was.
        agreed: When all agreed.
        sent: What was sent until all was quiet again, by kind, and the seconds of processor time.
    """

    leader: str
    begun: int
    noticed: int
    agreed: int
    sent: dict[str, float]


def election(notes: Iterable[Note], members: set[str], begun: int | None = None) -> Election | None:
    """The outcome of an election, or `None` while not all agree.

    Args:
        notes: What all have noted.
        members: The candidates that are to agree.
        begun: When it began; by default, when that was noted.
    """
    ordered = sorted(notes, key=lambda note: note.at)
    last = {n.who: n for n in ordered if n.what in ("elected", "surrendered") and n.who in members}
    leaders = [who for who, note in last.items() if note.what == "elected"]
    if last.keys() != members or len(leaders) > 1:
        return None
    if begun is None:
        begun = min(note.at for note in ordered if note.what in ("begun", "ends"))
    agreed = max(note.at for note in last.values())
    # The lock may be passed on before any candidate is told why.
    noticed = min([note.at for note in ordered if note.what == "noticed"] + [agreed])
    return Election(leaders[0] if leaders else "", begun, noticed, agreed, {})


class Series:
    """The elections of one size.

    Args:
        name: What it is called.
        pins: Where they run. On one core the processor time of all is measured, until all is quiet
            again; on two the time on the wall, until all agree.
    """

    def __init__(self, name: str, pins: Pins) -> None:
        self._name = name
        self._pins = pins
        self._wall = pins.client != pins.others
        self._runs = Runs({ECHO: []})
        self._walls: dict[str, list[float]] = {}
        self._sent: dict[str, list[dict[str, float]]] = {}

    def add_echo(self, echo: Load) -> None:
        """Begin a round: measure the yardstick."""
        pin(echo.client, self._pins.client)
        for process in echo.others:
            pin(process, self._pins.others)
        echo.run(WARM)
        everybody = (echo.client, *echo.others)
        worked = sum(map(processor_time, everybody))
        found = echo.run(ECHOES)
        worked = sum(map(processor_time, everybody)) - worked
        wall = statistics.median(each.whole for each in found)
        self._runs[ECHO].append(wall if self._wall else worked / ECHOES)

    def add(self, event: str, found: Election) -> None:
        """Keep one election."""
        noticed, agreed = found.noticed - found.begun, found.agreed - found.begun
        self._sent.setdefault(event, []).append(found.sent)
        self._walls.setdefault(event, []).append(agreed / 1e9)
        if not self._wall:
            self._runs.setdefault(event, []).append(found.sent[WORK])
        elif event in ENDS:
            self._runs.setdefault(event + NOTICED, []).append(noticed / 1e9)
            self._runs.setdefault(event + AGREED, []).append((agreed - noticed) / 1e9)
        else:
            self._runs.setdefault(event, []).append(agreed / 1e9)

    def report(self, report: Report, target: float | None = None) -> None:
        """Add the rows; the target is for the time from noticing the loss until all agree."""
        what = "on the wall" if self._wall else "processor time of both ends"
        report.add(
            f"{self._name}: {ECHO}", self._runs.median(ECHO) * 1e6, "µs",
            note=f"{BYTES} bytes each way; {what}",
        )  # fmt: skip
        for row, took in self._runs.items():
            event = row.removesuffix(NOTICED).removesuffix(AGREED)
            if row == ECHO:
                continue
            report.compare(
                self._runs, row, ECHO, "ms",
                label=f"{self._name}: {row}",
                target=target if row.endswith(AGREED) else None,
                note=f"max {max(took) * 1e3:.1f} ms"
                if row.endswith(NOTICED)
                else self._note(event),
            )  # fmt: skip

    def _note(self, event: str) -> str:
        rounds, walls = self._sent[event], self._walls[event]
        number = {
            kind: statistics.median(sent.get(kind, 0) for sent in rounds) for kind in rounds[0]
        }
        text = (
            f"wall {statistics.median(walls) * 1e3:.1f} ms in all, max {max(walls) * 1e3:.1f}; "
            f"work {number[WORK] * 1e3:.1f} ms; messages: {number.get('requests', 0):g} to lock servers"
        )
        if "frames" in number:
            text += f", {number['frames']:g} between nodes ({number['bytes'] / 1000:.1f} KB)"
        return text


# --- All in one process ----------------------------------------------------------------------------


class Here:
    """Candidates of this process, on one node.

    Args:
        number: How many.
    """

    def __init__(self, number: int) -> None:
        self._names = [f"candidate {n}" for n in range(number)]
        self._notes = Notes()
        self._counts = Counts(locks.start(servers=locks.HERE))
        self._refs: dict[str, pykka.ActorRef[Any]] = {}

    def round(self, resource: str) -> Iterator[tuple[str, Election]]:
        """One election after the other."""

        def start(*names: str) -> None:
            for name in names:
                self._notes.add("begun")
                made = locks_leader.start(Dictionary, self._notes, name, resource=resource)
                self._refs[name] = made

        def stop(ref: pykka.ActorRef[Any]) -> None:
            self._notes.add("ends")
            ref.stop(block=False)

        def die(ref: pykka.ActorRef[Any]) -> None:
            locks_leader.cast(ref, "die")

        found = self._measure(self._names, partial(start, *self._names))
        yield START, found
        for event, end in ((DEATH, die), (STOP, stop)):
            lost = found.leader
            ref = self._refs.pop(lost)
            found = self._measure(self._refs, partial(end, ref))
            yield event, found
            again = self._measure([lost], partial(start, lost))
        yield AGAIN, again
        for ref in self._refs.values():
            ref.stop()
        self._refs.clear()

    def _measure(self, members: Iterable[str], event: Callable[[], object]) -> Election:
        gevent.sleep(QUIET)
        self._notes.clear()
        self._counts.found.clear()
        gc.collect()
        gc.disable()
        worked = time.process_time()
        event()
        found = when_agreed(lambda: election(self._notes, set(members)), gevent.sleep)
        worked = time.process_time() - worked
        gc.enable()
        return found._replace(sent={**self._counts.found, WORK: worked})


def when_agreed(look: Callable[[], Election | None], pause: Callable[[float], object]) -> Election:
    """Wait until all agree."""
    give_up = now() + LIMIT
    while True:
        pause(QUIET)
        found = look()
        if found is not None:
            return found
        if now() > give_up:
            raise TimeoutError(f"no agreement within {LIMIT:g} s")


def candidates(report: Report) -> None:
    """Figure 12: candidates in one process."""
    if not on_linux(report):
        return
    sizes = Sizes.of(report)
    with Lab(report, True) as lab:
        echo = lab.start_echo(BYTES, BYTES)
        pins, *_ = pinnings(report)
        pin(os.getpid(), pins.client)
        for number in sizes.here:
            series = Series(f"{number} candidates", pins)
            members = Here(number)
            for n in range(sizes.rounds):
                series.add_echo(echo)
                for event, found in members.round(f"{number} candidates, round {n}"):
                    series.add(event, found)
            series.report(report)


# --- Each in a process of its own ------------------------------------------------------------------


class Group:
    """Processes, each with a node and a candidate.

    Args:
        lab: Starts them.
        number: How many.
        pins: The cores on which they run, in turns.
    """

    def __init__(self, lab: Lab, number: int, pins: Pins) -> None:
        self._lab = lab
        names = [f"member{n}@{HOST}" for n in range(number)]
        self._cores = dict(zip(names, cycle((pins.client, pins.others)), strict=False))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._peers: dict[str, str] = {}
        for name in names:
            self._open(name)
        self._until_connected()

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [process.pid for process in self._processes.values()]

    def round(self, resource: str) -> Iterator[tuple[str, Election]]:
        """One election after the other."""
        everybody = self._processes.keys()
        found = self.start_together(resource)
        yield START, found
        for event, end in ((DEATH, "kill"), (STOP, "stop")):
            lost = found.leader
            found = self._measure(everybody - {lost}, partial(self._do, lost, end))
            yield event, found
            again = self._measure([lost], partial(self._do, lost, "start", resource))
        yield AGAIN, again
        lost = found.leader
        process = self._processes.pop(lost)
        found = self._measure(everybody, process.kill, is_kill=True)
        yield KILL, found
        process.communicate()
        self._open(lost)
        self._until_connected()
        self._measure([lost], partial(self._do, lost, "start", resource))
        self.stop_all()

    def start_together(self, resource: str) -> Election:
        """All candidates start at once."""
        return self._measure(self._processes.keys(), partial(self._all, "start", resource))

    def stop_all(self) -> None:
        """All candidates end in good order."""
        self._all("stop")

    def command(self, name: str) -> Sequence[str]:
        """What runs a candidate."""
        module = ("-m", "benchmarks.candidate")
        return (sys.executable, *module, name, COOKIE, *self.arguments(name))

    def arguments(self, name: str) -> Sequence[str]:
        """Whom a candidate is connected with."""
        return [peer for each, peer in self._peers.items() if each != name]

    @property
    def alive(self) -> int:
        """How many lock servers a candidate sees, its own among them."""
        return len(self._processes)

    def _open(self, name: str) -> None:
        process = self._lab.start(*self.command(name))
        self._processes[name] = process
        self._peers[name] = line_of(process).strip()
        pin(process.pid, self._cores[name])

    def _until_connected(self) -> None:
        self._lab.wait(
            lambda: all(count == self.alive for count in self._all("alive").values()),
            "not all are connected",
        )

    def _measure(
        self, members: Iterable[str], event: Callable[[], object], is_kill: bool = False
    ) -> Election:
        self._lab.pause(QUIET)
        self._all("forget")
        begun = time.monotonic_ns() if is_kill else None
        event()
        sent: defaultdict[str, float] = defaultdict(float)

        def look() -> Election | None:
            told = self._all("tell").values()
            sent.clear()
            for _, counted in told:
                for kind, number in counted.items():
                    sent[kind] += number
            return election(
                [Note(*note) for notes, _ in told for note in notes], set(members), begun
            )

        return when_agreed(look, self._lab.pause)._replace(sent=sent)

    def _do(self, name: str, *command: Any) -> Any:
        return self._all(*command, of=[name])[name]

    def _all(self, *command: Any, of: Iterable[str] | None = None) -> dict[str, Any]:
        asked = [(name, self._processes[name]) for name in of or self._processes]
        for _, process in asked:
            print(json.dumps(command), file=process.stdin, flush=True)
        return {name: json.loads(line_of(process)) for name, process in asked}


def leader(report: Report, where: str) -> None:
    """Figure 13: candidates that each have a process of their own."""
    if not on_linux(report):
        return
    sizes = Sizes.of(report)
    for pins in [each for each in pinnings(report) if each.name == where]:
        for number in sizes.processes:
            with Lab(report, False) as lab:
                echo = lab.start_echo(BYTES, BYTES)
                members = Group(lab, number, pins)
                series = Series(f"{number} processes", pins)
                for n in range(sizes.rounds):
                    series.add_echo(echo)
                    for event, found in members.round(f"election {n}"):
                        series.add(event, found)
                series.report(report, report.limit(TARGET) if number <= TARGET_UP_TO else None)


FIGURES = [
    Figure("candidates", "elections of candidates in one process", {"hub": candidates}),
    Figure(
        "leader",
        "elections of candidates in processes of their own",
        {where: partial(leader, where=where) for where in ("one core", "two cores")},
    ),
]
