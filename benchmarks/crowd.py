"""Figures of crowds: many clients that want the same locks, in threads, tasks and programs.

    python -m benchmarks --only crowd                       # all of them, with those of the other crowd_* modules
    python -m benchmarks --only crowd_order crowd_handover  # some

What may take for ever has a limit. Whoever is not done by then gives up, which the note says; the time is then that of each
transaction that was done.
"""

from __future__ import annotations

import inspect
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import locks
from benchmarks.cluster import on_linux
from benchmarks.crowd_servers import (
    Program,
    ask_all,
    fresh,
    out_of_order,
    servers,
    slowed,
    told,
)
from benchmarks.harness import Figure, Report, Runs, run_all
from benchmarks.lab import Lab, processor_time

__all__ = ["FIGURES", "WAYS"]

HOLD = 0.002  # seconds of work between the two locks of a transaction
CLIENTS = {"a few": (2, 5, 10, 20, 40, 80), "more": (240,), "many": (500,)}
STACK = 512 * 1024  # bytes for a thread: there are many
ORDER_LIMIT = 12.0  # seconds for one crowd
QUICK = 10  # clients at most, of a smoke test
TARGETS = {"any order": 2.0, "any order, surrender": 1.5}
TARGETS_FOR = (40, 80, 240)
SAME = "same order"


class TooLong(Exception):
    """The crowd has had its time."""


# --- Two locks in opposite order -------------------------------------------------------------------


class Crowd:
    """Threads that begin at once, each with one transaction, of which each has two locks or more.

    Args:
        wants: What each of them locks, in its order.
        hold: Seconds of work after each lock but the last one.
        limit: Seconds after which nobody begins again.
        nodes: Where they lock; by default where the program does.
    """

    def __init__(
        self, wants: Sequence[Sequence[Any]], hold: float, limit: float, **nodes: Any
    ) -> None:
        self.wants, self.hold, self.limit, self.nodes = wants, hold, limit, nodes
        self.tries = self.failed = 0

    def run(self, way: str) -> float:
        """Seconds for each transaction that was done."""
        self.tries = self.failed = 0
        counting = threading.Lock()
        begun = time.perf_counter()

        def client(wanted: Sequence[Any]) -> None:
            def work(tx: locks.Transaction) -> None:
                with counting:
                    self.tries += 1
                if time.perf_counter() - begun > self.limit:
                    raise TooLong
                if way == "all at once":
                    tx.lock_all(write=wanted)
                    time.sleep(self.hold * (len(wanted) - 1))
                    return
                for lock_id in wanted[:-1]:
                    tx.write_lock(lock_id)
                    time.sleep(self.hold)
                tx.write_lock(wanted[-1])

            try:
                WAYS[way](work, self.nodes | {"timeout": self.limit})
            except (TooLong, locks.LocksError):
                with counting:
                    self.failed += 1

        run_all([lambda wanted=wanted: client(wanted) for wanted in self.wants])
        took = time.perf_counter() - begun
        return took / max(1, len(self.wants) - self.failed)

    def note(self) -> str:
        """How often they tried."""
        text = f"{self.tries:,} tries"
        return f"{text}, {self.failed} GAVE UP" if self.failed else text


Way = Callable[[Callable[[locks.Transaction], None], dict[str, Any]], None]


def _again(work: Callable[[locks.Transaction], None], options: dict[str, Any]) -> None:
    locks.run_transaction(work, **options)


def _surrender(work: Callable[[locks.Transaction], None], options: dict[str, Any]) -> None:
    with locks.transaction(on_deadlock="surrender", **options) as tx:
        work(tx)


def _unlearned(work: Callable[[locks.Transaction], None], options: dict[str, Any]) -> None:
    locks.run_transaction(work, **options, learn=False)


WAYS: dict[str, Way] = {
    SAME: _again,
    "all at once": _again,
    "any order, surrender": _surrender,
    "any order": _again,
}
"""How a crowd may lock; the first one is the yardstick."""
if "learn" in inspect.signature(locks.run_transaction).parameters:
    WAYS["any order, learn=False"] = _unlearned


def opposite(clients: int, same: bool) -> list[list[tuple[Any, ...]]]:
    """What so many clients lock: the same two ids, every other one in the opposite order."""
    pair = [fresh(), fresh()]
    return [pair if same or n % 2 else pair[::-1] for n in range(clients)]


def order(report: Report, sizes: Sequence[int]) -> None:
    """Two locks in opposite order, by threads that begin at once, beside the same order."""
    threading.stack_size(STACK)
    locks.start(servers=locks.HERE)
    for clients in [min(*sizes, QUICK)] if report.quick else sizes:
        rounds = 1 if report.quick or clients > 20 else 3
        runs, notes = Runs({way: [] for way in WAYS}), {}
        for _ in range(rounds):
            for way in WAYS:
                crowd = Crowd(opposite(clients, way == SAME), HOLD, ORDER_LIMIT)
                runs[way].append(crowd.run(way))
                notes[way] = crowd.note()
        for way in WAYS:
            target = (
                report.limit(TARGETS[way]) if way in TARGETS and clients in TARGETS_FOR else None
            )
            report.compare(
                runs, way, SAME, "ms",
                label=f"{clients} clients, {way}", target=target, note=notes[way],
            )  # fmt: skip
    locks.stop()


# --- Three of twenty -------------------------------------------------------------------------------

IDS, WANTED = 20, 3
SEED = 36


def choices(clients: int, each: int, in_order: bool) -> list[list[tuple[Any, ...]]]:
    """What clients lock: some of a few ids, drawn at random, in the order in which they were drawn or sorted."""
    draw = random.Random(SEED)
    ids = [fresh() for _ in range(IDS)]
    drawn = [draw.sample(ids, WANTED) for _ in range(clients * each)]
    return [sorted(wanted) for wanted in drawn] if in_order else drawn


def chosen(report: Report) -> None:
    """Three of twenty ids, drawn at random, on one node and on a majority of three servers."""
    if not on_linux(report):
        return
    clients, rounds = (10, 1) if report.quick else (100, 3)
    with TemporaryDirectory() as folder, Lab(report, False) as lab:
        for where in ("one node", "three servers"):
            if where == "one node":
                locks.start(servers=locks.HERE)
            else:
                locks.start(**servers(lab, 3, folder).given)
            runs, notes = Runs({"sorted": [], "any order": []}), {}
            for _ in range(rounds):
                for way in runs:
                    wants = choices(clients, 1, way == "sorted")
                    crowd = Crowd(wants, HOLD, 15)
                    runs[way].append(crowd.run(SAME))
                    notes[way] = crowd.note()
            report.compare(
                runs, "any order", "sorted", "ms",
                label=f"{WANTED} of {IDS} ids, {clients} clients, {where}",
                target=report.limit(2), note=f"{notes['any order']}; sorted {notes['sorted']}",
            )  # fmt: skip
            locks.stop()


# --- Tasks of three programs -----------------------------------------------------------------------

PROGRAMS = 3


class Served(NamedTuple):
    """How tasks of several programs were served.

    Attributes:
        programs: For each program, when each of its tasks asked, when it had the lock, and which one.
        begun: When the first one could have it.
    """

    programs: list[list[tuple[float, float, int]]]
    begun: float

    @property
    def turns(self) -> list[tuple[float, float, int]]:
        """Those of all programs."""
        return [turn for program in self.programs for turn in program]

    @property
    def took(self) -> float:
        """Seconds until the last one had it."""
        return max(granted for _, granted, _ in self.turns) - self.begun

    @property
    def gap(self) -> float:
        """The longest time in which nobody got anything."""
        times = sorted([self.begun, *(granted for _, granted, _ in self.turns)])
        return max(b - a for a, b in pairwise(times))

    def fairness(self) -> str:
        """The longest wait over the mean one, for each program, and how many overtook."""
        ratios = []
        for program in self.programs:
            waits = [granted - max(asked, self.begun) for asked, granted, _ in program]
            ratios.append(f"{max(waits) / statistics.fmean(waits):.2f}")
        return (
            f"longest/mean wait by program {', '.join(ratios)}; "
            f"{out_of_order(self.turns):.1%} of pairs not in the order in which they asked"
        )


@contextmanager
def crew(
    report: Report, servers_number: int = 3
) -> Iterator[tuple[Lab, list[Program], list[int], dict[str, Any]]]:
    """Servers and three asyncio programs that use them."""
    with TemporaryDirectory() as folder, Lab(report, False) as lab:
        found = servers(lab, servers_number, folder)
        programs = [Program(lab, "tasks", **found.given) for _ in range(PROGRAMS)]
        told(programs)
        yield lab, programs, [process.pid for process in found.processes], found.given


WEB = {"tasks": 200, "keys": 6, "limit": 40}
WEB_BUDGET = 40.0  # seconds for the rounds at one speed


def web(report: Report, slower: float) -> None:
    """The web test's 600 requests that count up six numbers, by three asyncio programs over three servers."""
    if not on_linux(report):
        return
    what = WEB | ({"tasks": 20} if report.quick else {})
    rounds = 1 if report.quick else 20
    found: list[Served] = []
    idle = []
    with crew(report) as (_, programs, processes, _given), slowed(processes, slower):
        everybody = [*processes, *(program.process.pid for program in programs)]
        until = time.monotonic() + WEB_BUDGET
        while len(found) < rounds and (len(found) < 2 or time.monotonic() < until):
            with TemporaryDirectory() as folder:
                worked, begun = sum(map(processor_time, everybody)), time.monotonic()
                name = f"web {len(found)}"
                turns = ask_all(programs, name=name, folder=folder, **what)
                found.append(Served(turns, begun))
                worked = sum(map(processor_time, everybody)) - worked
                idle.append(worked / (time.monotonic() - begun))
                written = sum(int(file.read_text()) for file in Path(folder).iterdir())
                assert written == len(found[-1].turns), "a number was counted wrong"
    wanted = PROGRAMS * what["tasks"]
    missing = sum(wanted - len(each.turns) for each in found)
    took = [each.took for each in found]
    middle = statistics.median(took)
    which = "servers as they are" if slower == 1 else f"servers {slower:g} times slower"
    report.add(
        f"{wanted} requests on {what['keys']} majority locks, {which}: slowest beside the median", max(took), "s",
        yardstick="median", yardstick_value=middle, ratio=max(took) / middle, target=report.limit(2),
        note=f"{len(took)} runs, fastest {min(took):.2f} s; {statistics.median(idle):.2f} processors at work"
        + (f"; {missing} NOT SERVED" if missing else ""),
    )  # fmt: skip
    longest = max(each.gap for each in found)
    report.add(
        f"{wanted} requests, {which}: longest time without a grant", longest, "s",
        target=report.limit(0.5), target_on="value", note=found[-1].fairness(),
    )  # fmt: skip


# --- Hand-overs ------------------------------------------------------------------------------------

WAITING = (10, 100, 1000)


def handover(report: Report) -> None:
    """One majority lock that tasks of three programs wait for: the time for each hand-over."""
    if not on_linux(report):
        return
    sizes = (9, 30) if report.quick else WAITING
    runs = Runs({str(size): [] for size in sizes})
    notes = {}
    with crew(report) as (_, programs, _, given):
        locks.start(**given)
        for size in sizes:
            rounds = 1 if report.quick or size >= 1000 else 300 // size + 2
            for n in range(rounds):
                found = _hand_over(programs, f"{size} waiting {n}", size)
                runs[str(size)].append(found.took / len(found.turns))
                missing = size - len(found.turns)
                notes[str(size)] = found.fairness() + (f"; {missing} NOT SERVED" if missing else "")
        locks.stop()
    fewest = runs.median(str(sizes[0])) * 1e3
    for size in sizes:
        each = runs.median(str(size)) * 1e3
        report.add(
            f"{size} waiting tasks in {PROGRAMS} programs: a hand-over", each, "ms",
            yardstick=f"{sizes[0]} waiting", yardstick_value=fewest, ratio=each / fewest,
            target=report.limit(1.3), note=notes[str(size)],
        )  # fmt: skip


def _hand_over(programs: Sequence[Program], name: str, size: int) -> Served:
    """Have tasks wait for one lock, which is then released."""
    lock_id = (name, 0)
    with locks.Lock(lock_id):
        for n, program in enumerate(programs):
            program.begin(name=name, tasks=(size + n) // PROGRAMS, keys=1, limit=40)
        _until_still(lock_id)
        begun = time.monotonic()
    return Served([program.end() for program in programs], begun)


def _until_still(lock_id: Any) -> None:
    """Wait until no more requests come to a lock's queue."""
    found, again = -1, 0
    while again < 3:
        time.sleep(0.1)
        before, found = found, len(locks.queue(lock_id, timeout=30).requests)
        again = again + 1 if found == before and found > 1 else 0


FIGURES = [
    Figure(
        "crowd_order",
        "two locks in opposite order, by threads that begin at once: time for each transaction",
        {name: partial(order, sizes=sizes) for name, sizes in CLIENTS.items()},
    ),
    Figure(
        "crowd_chosen",
        "three of twenty ids, drawn at random: time for each transaction",
        {"threads": chosen},
    ),
    Figure(
        "crowd_web",
        "600 requests that count up six numbers, by three asyncio programs over three servers",
        {"as they are": partial(web, slower=1), "slowed": partial(web, slower=5)},
    ),
    Figure(
        "crowd_handover",
        "one majority lock that many tasks wait for",
        {"tasks": handover},
    ),
]
