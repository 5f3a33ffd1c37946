"""Figures of the MVCC lock table: a key without conflict, many keys, spans, long queues, waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import gevent
from gevent.event import Event

from benchmarks.harness import Figure, Report, Runs, clock, interleave, repeat
from locks import GeventActor
from locks.mvcc import Aborted, Committed, LockTable, Request, Span, Txn

__all__ = ["FIGURES"]

now = clock(green=True)


class Echo(GeventActor):
    """The yardstick: a bare gevent actor that is asked."""

    def on_receive(self, message: object) -> object:
        return message


def one_key(table: LockTable, request: Request | None = None) -> Callable[[], None]:
    """A transaction that writes one key, and commits; its request is made anew or there already."""
    numbers = itertools.count(1)

    def run() -> None:
        number = next(numbers)
        txn = Txn(number, number)
        _, guard = table.scan_and_enqueue(request or Request(writes=["k500"]), txn)
        table.acquire_lock("k500", txn)
        table.dequeue(guard)
        table.update_locks("k500", Committed(txn, number))

    return run


def full_table(keys: int) -> LockTable:
    """A table in which that many other keys are held."""
    table = LockTable()
    owner = Txn(0, 0)
    for n in range(keys):
        table.acquire_lock(f"k{n}x", owner)
    return table


def without_conflict(report: Report) -> None:
    """The cost of a key that no other transaction wants."""
    many, seconds, rounds = (100, 0.001, 2) if report.quick else (10_000, 0.05, 15)
    echo = Echo.start()
    numbers = itertools.count()
    runs = interleave(
        {
            "ask": repeat(lambda: echo.ask(next(numbers)), seconds, now),
            "one key": repeat(one_key(LockTable(), Request(writes=["k500"])), seconds, now),
            "with its request": repeat(one_key(LockTable()), seconds, now),
            "in a full table": repeat(one_key(full_table(many)), seconds, now),
        },
        rounds,
    )
    echo.stop()
    for case, label in (
        ("one key", "scan_and_enqueue + acquire_lock + dequeue + update_locks"),
        ("with its request", "the same, and its Request made"),
        ("in a full table", f"the same while {many:,} other keys are held"),
    ):
        report.compare(
            runs, case, "ask", label=label, yardstick_label="ask of a bare gevent actor",
            target=report.limit(2.1) if case == "one key" else None,
        )  # fmt: skip


def spans(report: Report) -> None:
    """The cost of a range scan, for each key in it; and of one that meets a lock at once."""
    few, many, rounds = (10, 100, 2) if report.quick else (1000, 10_000, 9)
    samples = {}
    for size in (few, many):
        table, txn = LockTable(), Txn(1, 10)
        for n in range(many):
            table.acquire_lock(n, txn)
        own = scan_span(table, txn, Span(0, size))
        sample = repeat(own, 0.001 if report.quick else 0.02, now)
        samples[f"span of {size:,}"] = lambda sample=sample, size=size: sample() / size
    runs = interleave(samples, rounds)
    report.compare(
        runs, f"span of {many:,}", f"span of {few:,}",
        label=f"a scan over {many:,} locks, each", target=report.limit(2),
    )  # fmt: skip
    runs = Runs()
    for _ in range(rounds):
        for size in (few, many):
            table, txn = LockTable(), Txn(1, 10)
            for n in range(size):
                table.acquire_lock(n, txn)
            begun = now()
            table.update_locks(Span(0, size), Committed(txn, 10))
            runs.setdefault(f"span of {size:,}", []).append((now() - begun) / size)
    report.compare(
        runs, f"span of {many:,}", f"span of {few:,}",
        label=f"a commit of {many:,} locks in one span, each", target=report.limit(3),
    )  # fmt: skip


def scan_span(table: LockTable, txn: Txn, span: Span) -> Callable[[], None]:
    """Scan a span and be done."""
    request = Request(writes=[span])

    def run() -> None:
        _, guard = table.scan_and_enqueue(request, txn)
        table.dequeue(guard)

    return run


def serve(waiters: int) -> float:
    """Seconds for each of `waiters` writers to queue at one key, and to be served in turn."""
    table = LockTable()
    txns = [Txn(n, n) for n in range(waiters + 1)]
    table.acquire_lock("k", txns[0])
    request = Request(writes=["k"])
    begun = now()
    guards = [table.scan_and_enqueue(request, txn)[1] for txn in txns[1:]]
    for holder, txn, guard in zip(txns, txns[1:], guards, strict=False):
        table.update_locks("k", Committed(holder, holder.timestamp))
        table.wait_for(guard, 0)
        table.scan_and_enqueue(request, txn, guard)
        table.acquire_lock("k", txn)
        table.dequeue(guard)
    took = now() - begun
    table.update_locks("k", Aborted(txns[-1]))
    return took / waiters


def queues(report: Report) -> None:
    """A long queue at one key."""
    few, many, rounds = (10, 50, 2) if report.quick else (100, 1000, 9)
    runs = interleave(
        {
            f"{few:,} writers": lambda: serve(few),
            f"{many:,} writers": lambda: serve(many),
        },
        rounds,
    )
    report.compare(
        runs, f"{many:,} writers", f"{few:,} writers",
        label=f"{many:,} writers at one key, each", target=report.limit(2),
    )  # fmt: skip


def contend(clients: int, turns: int) -> float:
    """Seconds for each transaction of `clients` greenlets that all write one key."""
    table = LockTable()
    numbers = itertools.count(1)
    request = Request(writes=["k"])
    start = Event()

    def client() -> None:
        start.wait()
        for _ in range(turns):
            number = next(numbers)
            txn = Txn(number, number)
            must_wait, guard = table.scan_and_enqueue(request, txn)
            while must_wait:
                table.wait_for(guard)
                must_wait, _ = table.scan_and_enqueue(request, txn, guard)
            table.acquire_lock("k", txn)
            table.dequeue(guard)
            gevent.sleep(0)  # what it does with the lock; so the others stand in line
            table.update_locks("k", Committed(txn, number))

    greenlets = [gevent.spawn(client) for _ in range(clients)]
    gevent.sleep(0)
    begun = now()
    start.set()
    gevent.joinall(greenlets, raise_error=True)
    return (now() - begun) / (clients * turns)


def waits(report: Report) -> None:
    """Greenlets that wait for each other."""
    rounds = 2 if report.quick else 9
    turns = 2 if report.quick else 20
    runs = interleave({f"{n} greenlets": partial(contend, n, turns) for n in (1, 10, 100)}, rounds)
    for n in (10, 100):
        report.compare(
            runs, f"{n} greenlets", "1 greenlets",
            label=f"a transaction, {n} greenlets on one key", yardstick_label="one greenlet",
        )  # fmt: skip


def ring(size: int) -> float:
    """Seconds to find the victim of a ring of `size`, from the request that closes it."""
    table = LockTable()
    txns = [Txn(n, n) for n in range(size)]
    for txn in txns:
        table.acquire_lock(txn.id, txn)
    requests = [Request(writes=[(n + 1) % size]) for n in range(size)]
    for txn, request in list(zip(txns, requests, strict=True))[:-1]:
        table.scan_and_enqueue(request, txn)
    begun = now()
    table.scan_and_enqueue(requests[-1], txns[-1])
    took = now() - begun
    if table.statistics().deadlocks != 1:
        raise RuntimeError("no deadlock, or more than one")
    return took


def rings(report: Report) -> None:
    """Deadlocks."""
    sizes = (2, 10) if report.quick else (2, 10, 100)
    runs = interleave({f"ring of {n}": partial(ring, n) for n in sizes}, 2 if report.quick else 25)
    for n in sizes:
        report.add(f"a deadlock of {n} found", runs.median(f"ring of {n}") * 1e6, "µs")


def lock_table(report: Report) -> None:
    """All of them."""
    without_conflict(report)
    spans(report)
    queues(report)
    waits(report)
    rings(report)


FIGURES = [
    Figure("mvcc", "the lock table of a multi-version store", {"hub": lock_table}),
]
