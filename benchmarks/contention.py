"""Figures of many clients that want one lock: what it costs each, how fair it is, the hand-over.

The shape is a closed loop: each client locks, lets the others run once while it holds (so that
they really queue), ends, and lets the others run once more (so that a lock that lets its last
holder barge in has to switch to the next one, too).
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import gevent
import gevent.event
import gevent.lock

import locks
from benchmarks.harness import Figure, Report, clock, interleave

__all__ = ["FIGURES"]

ONE = ("bench", 1)
Held = Callable[[], AbstractContextManager[object]]


class Transactions:
    """A transaction with one lock, as a context manager without further cost."""

    __slots__ = ("agent",)

    def __enter__(self) -> None:
        self.agent, _ = locks.original.begin_transaction()
        locks.original.lock(self.agent, ONE)

    def __exit__(self, *_: object) -> None:
        locks.original.end_transaction(self.agent)


class Crew:
    """Clients that take turns at the same work, in greenlets or in threads.

    Args:
        green: Whether in greenlets.
        clients: How many.
        each: How many turns each of them takes.
        held: Makes the context manager that each turn enters and leaves.
    """

    def __init__(self, green: bool, clients: int, each: int, held: Held) -> None:
        self.green, self.clients, self.each, self.held = green, clients, each, held
        self.now = clock(green)
        self.waits: list[list[float]] = []

    def run(self) -> float:
        """Seconds for each turn of a client."""
        go: Any = gevent.event.Event() if self.green else threading.Event()
        ready: list[None] = []
        errors: list[BaseException] = []
        self.waits = []
        pause: Callable[[float], object] = gevent.sleep if self.green else time.sleep

        def client() -> None:
            waits: list[float] = []
            self.waits.append(waits)
            held, now = self.held, self.now
            try:
                with held():  # what only the first time costs
                    pass
                ready.append(None)
                go.wait()
                for _ in range(self.each):
                    asked = now()
                    with held():
                        waits.append(now() - asked)
                        pause(0)
                    pause(0)
            except BaseException as error:
                errors.append(error)
                ready.append(None)

        if self.green:
            crew: list[Any] = [gevent.spawn(client) for _ in range(self.clients)]
        else:
            crew = [threading.Thread(target=client) for _ in range(self.clients)]
            for thread in crew:
                thread.start()
        while len(ready) < self.clients:
            pause(0.001)
        begun = self.now()
        go.set()
        for member in crew:
            member.join()
        took = self.now() - begun
        if errors:
            raise errors[0]
        return took / (self.clients * self.each)

    def unfairness(self) -> tuple[float, float]:
        """The longest wait, and the 99th percentile, over the median one, once all have begun."""
        settled = sorted(wait for waits in self.waits for wait in waits[1:])
        median = statistics.median(settled)
        return settled[-1] / median, settled[int(0.99 * len(settled))] / median


def shared(report: Report, green: bool, crowds: list[int], yardsticks: dict[str, Held]) -> None:
    """Fill the rows of figure 3."""
    turns, rounds = (50, 2) if report.quick else (2000 if green else 1000, 7)
    series: dict[str, Crew] = {}
    unfair: dict[str, list[tuple[float, float]]] = {}

    def sample(name: str) -> Callable[[], float]:
        def run() -> float:
            took = series[name].run()
            unfair[name].append(series[name].unfairness())
            return took

        return run

    for clients in (1, *crowds):
        for kind, held in {"locks": Transactions, **yardsticks}.items():
            name = _name(clients, kind)
            series[name] = Crew(green, clients, max(3, turns // clients), held)
            unfair[name] = []
    runs = interleave({name: sample(name) for name in series}, rounds)

    def worst(name: str) -> str:
        longest, percentile = (statistics.median(each) for each in zip(*unfair[name], strict=True))
        return f"{longest:,.3g} (p99 {percentile:,.3g})"

    for clients in crowds:
        mine = _name(clients, "locks")
        for kind in yardsticks:
            other = _name(clients, kind)
            note = f"max/median wait {worst(mine)}; yardstick {worst(other)}"
            label = f"{clients} clients"
            report.compare(runs, mine, other, label=label, yardstick_label=kind, note=note)
    if green:
        least, most = crowds[0], crowds[-1]
        for more, fewer, target in ((least, 1, 1.3), (most, 1, 1.3), (most, least, 3)):
            report.compare(
                runs, _name(more, "locks"), _name(fewer, "locks"),
                label=f"{more} clients", yardstick_label=f"{fewer} client{'s' * (fewer > 1)}",
                target=report.limit(target),
            )  # fmt: skip


def _name(clients: int, kind: str) -> str:
    return f"{clients} clients, {kind}"


def shared_in_hub(report: Report) -> None:
    """Figure 3 with greenlets."""
    lock = gevent.lock.RLock()
    crowds = [2, 10] if report.quick else [2, 10, 50, 100, 200, 500]
    shared(report, True, crowds, {"gevent.lock.RLock": lambda: lock})
    locks.stop()


def shared_in_threads(report: Report) -> None:
    """Figure 3 with threads."""
    lock = threading.Lock()
    yardsticks: dict[str, Held] = {"threading.Lock": lambda: lock}
    if fasteners := report.optional("fasteners"):
        yardsticks["fasteners.ReaderWriterLock"] = fasteners.ReaderWriterLock().write_lock
    if rwlock := report.optional("readerwriterlock.rwlock"):
        yardsticks["readerwriterlock.RWLockFair"] = rwlock.RWLockFair().gen_wlock
    shared(report, False, [2, 10], yardsticks)
    locks.stop()


# --- The hand-over ---------------------------------------------------------------------------------


class Handover:
    """Two clients that take turns; the time from each release to the other one's grant.

    Args:
        green: Whether they are greenlets; else threads.
        acquire: Returns what `release` is given.
        release: Gives the lock back.
        times: How many hand-overs are one sample.
    """

    def __init__(
        self, green: bool, acquire: Callable[[], Any], release: Callable[[Any], object], times: int
    ) -> None:
        self.green, self.acquire, self.release, self.times = green, acquire, release, times
        self.now = clock(green)

    def run(self) -> float:
        """The median seconds of a hand-over."""
        found = []
        for _ in range(self.times):
            held = self.acquire()
            granted: list[float] = []
            asking: Any = gevent.event.Event() if self.green else threading.Event()

            def wait(granted: list[float] = granted, asking: Any = asking) -> None:
                asking.set()
                got = self.acquire()
                granted.append(self.now())
                self.release(got)

            if self.green:
                waiter: Any = gevent.spawn(wait)
            else:
                waiter = threading.Thread(target=wait)
                waiter.start()
            asking.wait()
            (gevent.sleep if self.green else time.sleep)(0.0005)  # it is in the queue now
            released = self.now()
            self.release(held)
            waiter.join()
            found.append(granted[0] - released)
        return statistics.median(found)


def _begin() -> locks.actors.Agent:
    agent, _ = locks.original.begin_transaction()
    locks.original.lock(agent, ONE)
    return agent


def handover_in_hub(report: Report) -> None:
    """Figure 7 with greenlets."""
    times, rounds = (5, 2) if report.quick else (40, 21)
    lock = gevent.lock.RLock()
    actors = Handover(True, _begin, locks.original.end_transaction, times)
    bare = Handover(True, lock.acquire, lambda _: lock.release(), times)
    runs = interleave({"locks": actors.run, "gevent.lock.RLock": bare.run}, rounds)
    report.compare(runs, "locks", "gevent.lock.RLock", label="end_transaction to grant")
    locks.stop()


def handover_in_threads(report: Report) -> None:
    """Figure 7 with threads."""
    times, rounds = (5, 2) if report.quick else (40, 21)
    native = threading.Lock()
    condition = threading.Condition()
    samples = {
        "locks": Handover(False, _begin, locks.original.end_transaction, times),
        "threading.Lock": Handover(False, native.acquire, lambda _: native.release(), times),
        "threading.Condition": Handover(False, *_by_condition(condition), times),
    }
    if fasteners := report.optional("fasteners"):
        lock = fasteners.ReaderWriterLock()
        samples["fasteners.ReaderWriterLock"] = Handover(
            False, lock.acquire_write_lock, lambda _: lock.release_write_lock(), times
        )
    runs = interleave({name: each.run for name, each in samples.items()}, rounds)
    for name in list(samples)[1:]:
        report.compare(runs, "locks", name, label="end_transaction to grant")
    locks.stop()


def _by_condition(condition: threading.Condition) -> tuple[Any, Any]:
    """A lock made of a condition, like most pure Python ones."""
    taken: list[None] = []

    def acquire() -> None:
        with condition:
            condition.wait_for(lambda: not taken)
            taken.append(None)

    def release(_: None) -> None:
        with condition:
            taken.clear()
            condition.notify()

    return acquire, release


FIGURES = [
    Figure(
        "shared",
        "one lock for many clients, time for each transaction",
        {"hub": shared_in_hub, "threads": shared_in_threads},
    ),
    Figure(
        "handover",
        "from the end of the holder to the next one's grant",
        {"hub": handover_in_hub, "threads": handover_in_threads},
    ),
]
