"""Figures of the MVCC lock table: a key without conflict, many keys, spans, long queues, waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import gevent
from gevent.event import Event

from benchmarks.harness import Figure, Report, Runs, clock, interleave, repeat
from examples.kv_store import Store
from locks.actors import GeventActor
from locks.mvcc import (
    Aborted,
    Committed,
    LockNotAvailable,
    LockTable,
    Request,
    Span,
    Txn,
)

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


def hot_key(waiters: int, keys: str = "k") -> Callable[[], float]:
    """One more writer at hot keys where many wait, all of which hold contended locks.

    Returns:
        What measures the request that begins to wait, with the search for deadlocks in its turn.
    """
    table = LockTable()
    for key in keys:
        table.acquire_lock(key, Txn(0, 0))
    for n in range(1, waiters + 1):
        table.acquire_lock(f"m{n}", Txn(n, n))
        table.scan_and_enqueue(Request(writes=[f"m{n}"]), Txn(1_000_000 + n, n))
        for key in keys:
            table.scan_and_enqueue(Request(writes=[key]), Txn(n, n))
    numbers = itertools.count(2_000_000, 2)
    request = Request(writes=[keys[0]])

    def sample() -> float:
        took = []
        for number in itertools.islice(numbers, 5):
            txn, other = Txn(number, 5), Txn(number + 1, 5)
            table.acquire_lock("mine", txn)
            _, second = table.scan_and_enqueue(Request(writes=["mine"]), other)
            begun = now()
            _, first = table.scan_and_enqueue(request, txn)
            took.append(now() - begun)
            table.dequeue(second)  # nobody waits for it any more: its search is over
            table.dequeue(first)
            table.update_locks("mine", Aborted(txn))
        return sorted(took)[len(took) // 2]

    return sample


def hot_keys(report: Report) -> None:
    """The turn of one more waiter at a hot key."""
    few, many, rounds = (10, 100, 2) if report.quick else (100, 10_000, 9)
    for keys, label in (("k", "with contended locks"), ("kx", "at another hot key, too")):
        runs = interleave(
            {f"{size:,} writers": hot_key(size, keys) for size in (few, many)},
            rounds,
        )
        report.compare(
            runs, f"{many:,} writers", f"{few:,} writers",
            label=f"one more writer at a key where {many:,} wait {label}", target=report.limit(3),
        )  # fmt: skip


def without_a_wait(report: Report) -> None:
    """A request that does not wait is refused, or leaves the key out."""
    table = LockTable()
    table.acquire_lock("k", Txn(0, 0))
    numbers = itertools.count(1)

    def refused() -> None:
        with suppress(LockNotAvailable):
            table.scan_and_enqueue(Request(writes=["k"], wait="error"), Txn(next(numbers), 1))

    def skipped() -> None:
        request = Request(writes=["k"], wait="skip locked")
        table.dequeue(table.scan_and_enqueue(request, Txn(next(numbers), 1))[1])

    seconds, rounds = (0.001, 2) if report.quick else (0.05, 9)
    runs = interleave(
        {
            "one key": repeat(one_key(LockTable()), seconds, now),
            "refused": repeat(refused, seconds, now),
            "skipped": repeat(skipped, seconds, now),
        },
        rounds,
    )
    for case, label in (
        ("refused", 'a locked key, asked for with wait="error"'),
        ("skipped", 'a locked key, left out with wait="skip locked"'),
    ):
        report.compare(
            runs, case, "one key", label=label, yardstick_label="a key that is free, to its commit"
        )


def lock_table(report: Report) -> None:
    """All of them."""
    without_conflict(report)
    spans(report)
    queues(report)
    waits(report)
    rings(report)
    hot_keys(report)
    without_a_wait(report)


def small_puts(large: int, length: int) -> Callable[[], float]:
    """Small values are put, each in a transaction, where there are some large ones; without the disk's time."""
    store = Store(sync=False)
    for n in range(large):
        value = "x" * length
        store.run(lambda tx: tx.put(f"m{n}", value))  # noqa: B023
    keys = itertools.cycle([f"m{n}-" for n in range(max(large, 1))])

    def put() -> None:
        key = next(keys)
        store.run(lambda tx: tx.put(key, "small"))

    return put


def large_values(report: Report) -> None:
    """What large values cost those that are near them."""
    length, seconds, rounds = (10_000, 0.001, 2) if report.quick else (1_000_000, 0.1, 9)
    runs = interleave(
        {f"{large} large": repeat(small_puts(large, length), seconds, now) for large in (0, 100)},
        rounds,
    )
    report.compare(
        runs, "100 large", "0 large",
        label=f"a small put beside 100 values of {length:,} characters",
        yardstick_label="with small values only", target=report.limit(1.5),
    )  # fmt: skip


FIGURES = [
    Figure("mvcc", "the lock table of a multi-version store", {"hub": lock_table}),
    Figure("store", "the example store on it", {"hub": large_values}),
]
