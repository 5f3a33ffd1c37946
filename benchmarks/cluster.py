"""Figures of locks on other nodes: one remote lock, several nodes, many clients.

Each other node is a process of its own, `python -m locks node`; the client's node is in this one.
All goes over loopback, and all processes are pinned (`benchmarks.lab`). The yardstick is a bare echo
of as many bytes as a request for a lock and its answer have, which are counted. redis-py's `Lock` on
a Redis without persistence, started here, is measured where both are installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import locks
from benchmarks.harness import Figure, Report, Runs, Sample, interleave, run_all
from benchmarks.lab import Lab, Timed, now, pinnings, timed

__all__ = ["FIGURES"]

IDS = [("bench", n) for n in range(1000)]
BEGIN = "begin + lock + end"
WITH = "with transaction() + lock"
LOCK = "Lock: acquire + release"
Operation = Callable[[], float]
"""Locks and ends once; returns the time at which the lock was there."""


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
        nodes: Over how many nodes `quorum` locks.
        clients: How many clients `crowd_nodes` has.
        rounds: How often everything is measured.
        seconds: How long one sample takes, about.
    """

    nodes: Sequence[int] = (3, 5)
    clients: Sequence[int] = (10, 100)
    rounds: int = 9
    seconds: float = 0.06

    @classmethod
    def of(cls, report: Report) -> Sizes:
        """The usual ones, or few."""
        return cls((3,), (10,), 2, 0.005) if report.quick else cls()


def begin_lock_end(
    nodes: Sequence[str],
    require: locks.values.Require = "all",
    ids: Sequence[tuple[Any, ...]] = IDS,
) -> Operation:
    """One transaction by the functions of the original, each with the next lock id."""
    plans = cycle([[(lock_id, "write", nodes, require)] for lock_id in ids])

    def operation() -> float:
        agent, _ = locks.original.begin_transaction(next(plans))
        granted = now()
        locks.original.end_transaction(agent)
        return granted

    return operation


def with_transaction(
    nodes: Sequence[str], require: locks.values.Require = "all", token: bool = False
) -> Operation:
    """One transaction in a `with` block, with the lock's fencing token if wanted."""
    ids = cycle(IDS)

    def operation() -> float:
        lock_id = next(ids)
        with locks.transaction() as tx:
            tx.lock(lock_id, nodes=nodes, require=require)
            if token:
                tx.token(lock_id)
            return now()

    return operation


def lock_and_release(nodes: Sequence[str]) -> Operation:
    """`Lock.acquire` and `release`, each with the next lock id."""
    plans = cycle([locks.Lock(lock_id, nodes=nodes) for lock_id in IDS])

    def operation() -> float:
        lock = next(plans)
        lock.acquire()
        granted = now()
        lock.release()
        return granted

    return operation


def on_linux(report: Report) -> bool:
    """Whether processes can be pinned here; if not, the report says so."""
    if sys.platform != "linux":
        report.skipped.append("processes are pinned and timed as Linux does it: all is left out")
        return False
    return True


# --- One node --------------------------------------------------------------------------------------


def remote(report: Report, green: bool) -> None:
    """Figure 9: one client, one lock on one other node."""
    if not on_linux(report):
        return
    sizes = Sizes.of(report)
    with Lab(report, green) as lab:
        peers = lab.start_nodes(1)
        operations = {
            BEGIN: begin_lock_end(peers.names),
            WITH: with_transaction(peers.names),
            f"{WITH} + token": with_transaction(peers.names, token=True),
            LOCK: lock_and_release(peers.names),
        }
        asked, answered, ended = peers.count_bytes(operations[BEGIN])
        echo = lab.start_echo(asked, -answered)
        redis = lab.start_redis()
        samples: dict[str, Sample] = {}
        pinned = pinnings(report)
        for pins in pinned:
            parties = {"echo": echo}
            parties |= {name: peers.load(timed(each)) for name, each in operations.items()}
            if redis is not None:
                parties["redis-py"] = redis.load
            for name, party in parties.items():
                name = f"{pins.name}: {name}"
                samples[name] = lab.sample(name, pins, party, sizes.seconds)
        runs = interleave(samples, sizes.rounds)
        for pins in pinned:
            add_echo(report, runs, lab, f"{pins.name}: echo", f"{asked} bytes, {-answered} back")
            for each in operations:
                name = f"{pins.name}: {each}"
                counts = green and pins.client == pins.others and each == BEGIN
                report.compare(
                    runs, name, f"{pins.name}: echo",
                    yardstick_label="echo",
                    target=report.limit(8) if counts else None,
                    note=lab.note(name) + (f"; {ended} bytes to end it" if each == BEGIN else ""),
                )  # fmt: skip
            if redis is not None:
                yardstick = f"{pins.name}: redis-py"
                report.compare(
                    runs, f"{pins.name}: {LOCK}", yardstick,
                    yardstick_label="redis-py's Lock",
                    target=report.limit(1) if green else None,
                    note=f"{redis.about}: {lab.note(yardstick)}",
                )  # fmt: skip


def add_echo(report: Report, runs: Runs, lab: Lab, name: str, more: str) -> None:
    """A row for the yardstick itself."""
    report.add(name, runs.median(name) * 1e6, "µs", note=f"{lab.note(name)}; {more}")


# --- Several nodes ---------------------------------------------------------------------------------


def quorum(report: Report, green: bool) -> None:
    """Figure 10: one client, one lock on several nodes."""
    if not on_linux(report):
        return
    sizes = Sizes.of(report)
    with Lab(report, green) as lab:
        peers = lab.start_nodes(max(sizes.nodes))
        own = peers.node.name
        parties = {"1 other node": peers.load(timed(begin_lock_end(peers.names[:1])))}
        for number in sizes.nodes:
            groups = {
                "others": peers.names[:number],
                "with the own one": [own, *peers.names[: number - 1]],
            }
            for which, nodes in groups.items():
                others = number - (own in nodes)
                for require in ("all", "majority"):
                    name = f"{number} nodes, {which}, {require}"
                    operation = begin_lock_end(nodes, require)
                    parties[name] = peers.load(timed(operation), others)
                operation = with_transaction(nodes, "majority", token=True)
                parties[f"{name} + token"] = peers.load(timed(operation), others)
        samples: dict[str, Sample] = {}
        pinned = pinnings(report)
        for pins in pinned:
            for name, party in parties.items():
                name = f"{pins.name}: {name}"
                samples[name] = lab.sample(name, pins, party, sizes.seconds)
        runs = interleave(samples, sizes.rounds)
        for pins in pinned:
            one, *names = (f"{pins.name}: {name}" for name in parties)
            report.add(one, runs.median(one) * 1e6, "µs", note=lab.note(one))
            for name in names:
                counts = green and " 3 nodes" in name and name.endswith("majority")
                report.compare(
                    runs, name, one,
                    yardstick_label="1 other node",
                    target=report.limit(1.6) if counts else None,
                    note=lab.note(name),
                )  # fmt: skip


# --- Many clients ----------------------------------------------------------------------------------


WAITERS = (2, 8, 16, 60)


class Crowd:
    """Clients that each do transactions, one after the other, with a lock on another node.

    Args:
        green: Whether they are greenlets; else threads.
        nodes: Where they lock; of several nodes, on a majority.
        clients: How many they are.
        same: Whether all want the same lock; else each has one of its own.
    """

    def __init__(self, green: bool, nodes: list[str], clients: int, same: bool = True) -> None:
        self.green = green
        self.operations = [
            begin_lock_end(
                nodes, "all" if len(nodes) == 1 else "majority", ids=[("crowd", 0 if same else n)]
            )
            for n in range(clients)
        ]

    def run(self, times: int) -> list[Timed]:
        """Have so many transactions done by all together, at least one by each."""
        found: list[Timed] = []
        each = max(1, times // len(self.operations))

        def client(operation: Operation) -> None:
            found.extend(timed(operation)(each))

        run_all([partial(client, operation) for operation in self.operations], self.green)
        return found


def crowd(report: Report, green: bool) -> None:
    """Figure 11: many clients, each with a lock on another node, or all with the same one; or on a majority."""
    if not on_linux(report):
        return
    sizes = Sizes.of(report)
    with Lab(report, green) as lab:
        peers = lab.start_nodes(3)
        one_node = peers.names[:1]
        crowds = {"1 client": Crowd(green, one_node, 1)}
        for clients in sizes.clients:
            for what, same in (("a lock each", False), ("one lock for all", True)):
                crowds[f"{clients} clients, {what}"] = Crowd(green, one_node, clients, same)
        for clients in WAITERS:
            for nodes in (one_node, peers.names):
                name = f"{clients} who want one lock, {len(nodes)} nodes"
                crowds[name] = Crowd(green, nodes, clients)
        samples: dict[str, Sample] = {}
        pinned = pinnings(report)
        for pins in pinned:
            for name, people in crowds.items():
                name = f"{pins.name}: {name}"
                party = peers.load(people.run)
                samples[name] = lab.sample(name, pins, party, 3 * sizes.seconds, together=True)
        runs = interleave(samples, sizes.rounds)
        for pins in pinned:
            one, *names = (f"{pins.name}: {name}" for name in crowds)
            report.add(one, runs.median(one) * 1e6, "µs", note=_rate(runs, lab, one))
            for name in names:
                note = _rate(runs, lab, name)
                report.compare(runs, name, one, yardstick_label="1 client", note=note)


def _rate(runs: Runs, lab: Lab, name: str) -> str:
    return f"{1 / runs.median(name):,.0f} transactions/s; each: {lab.note(name)}"


FIGURES = [
    Figure(
        name,
        title,
        {"hub": partial(function, green=True), "threads": partial(function, green=False)},
    )
    for name, title, function in (
        ("remote", "a lock on one other node", remote),
        ("quorum", "a lock on several nodes", quorum),
        (
            "crowd_nodes",
            "many clients with locks on one other node: time for each transaction",
            crowd,
        ),
    )
]
