"""Figures of one undisturbed client: a whole transaction, and the n-th lock of one."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pykka

import locks
from benchmarks.harness import Figure, Report, clock, interleave, repeat

__all__ = ["FIGURES"]

ONE, OTHER = ("bench", 1), ("bench", 2)
TRANSACTION = "begin + lock + end"
WITH = "with transaction() + lock"
LOCK = "Lock acquire + release"
SECOND = "the same beside another Lock"
TWO = "with transaction() + two locks"
CROWD = "8 threads, a Lock each"
THREADS, TIMES = 8, 200


def begin_lock_end() -> None:
    """One transaction by the functions of the original."""
    agent, _ = locks.original.begin_transaction()
    locks.original.lock(agent, ONE)
    locks.original.end_transaction(agent)


def with_transaction() -> None:
    """One transaction in a `with` block."""
    with locks.transaction() as tx:
        tx.write_lock(ONE)


def with_two_locks() -> None:
    """One transaction of two locks in a `with` block."""
    with locks.transaction() as tx:
        tx.write_lock(ONE)
        tx.write_lock(OTHER)


def many_threads() -> float:
    """Seconds of processor time for one acquire and release, of threads that have a lock each."""

    def work(i: int) -> None:
        lock = locks.Lock(("thread", i))
        for _ in range(TIMES):
            lock.acquire()
            lock.release()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    begun = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.process_time() - begun) / (THREADS * TIMES)


class Echo(locks.actors.GeventActor):
    """Answers what it is asked."""

    def on_receive(self, message: Any) -> Any:
        """Give it back."""
        return message


class ThreadingEcho(pykka.ThreadingActor):
    """The same in a thread."""

    def on_receive(self, message: Any) -> Any:
        """Give it back."""
        return message


def start_and_stop() -> None:
    """The life of an actor with a greenlet."""
    Echo.start().stop()


def libraries(report: Report, folder: Path) -> dict[str, Callable[[], object]]:
    """Acquire and release a lock of each library, exclusively."""
    native = threading.RLock()

    def native_pair() -> None:
        native.acquire()
        native.release()

    pairs: dict[str, Callable[[], object]] = {"threading.RLock": native_pair}
    if fasteners := report.optional("fasteners"):
        in_process = fasteners.ReaderWriterLock()
        between = fasteners.InterProcessLock(str(folder / "fasteners"))

        def in_process_pair() -> None:
            in_process.acquire_write_lock()
            in_process.release_write_lock()

        def between_pair() -> None:
            between.acquire()
            between.release()

        pairs["fasteners.ReaderWriterLock"] = in_process_pair
        pairs["fasteners.InterProcessLock"] = between_pair
    if rwlock := report.optional("readerwriterlock.rwlock"):
        writer = rwlock.RWLockFair().gen_wlock()

        def writer_pair() -> None:
            writer.acquire()
            writer.release()

        pairs["readerwriterlock.RWLockFair"] = writer_pair
    if filelock := report.optional("filelock"):
        on_file = filelock.FileLock(str(folder / "filelock"))

        def on_file_pair() -> None:
            on_file.acquire()
            on_file.release()

        pairs["filelock.FileLock"] = on_file_pair
    return pairs


def one_transaction(report: Report, actor: pykka.ActorRef[Any], target: float | None) -> None:
    """Fill the rows of figure 1; the asks go to `actor`."""
    seconds, rounds = (0.001, 3) if report.quick else (0.01, 41)
    now = clock(green=actor.actor_class is Echo)
    lock, other = locks.Lock(ONE), locks.Lock(OTHER)

    def lock_pair() -> None:
        lock.acquire()
        lock.release()

    def second() -> float:
        with other:
            return repeat(lock_pair, seconds, now)()

    with tempfile.TemporaryDirectory() as folder:
        pairs = libraries(report, Path(folder))
        kind = "GeventActor" if actor.actor_class is Echo else "ThreadingActor"
        ask = f"ask an idle {kind}"
        functions = {
            TRANSACTION: begin_lock_end,
            ask: lambda: actor.ask(1),
            WITH: with_transaction,
            TWO: with_two_locks,
            LOCK: lock_pair,
            **pairs,
        }
        if actor.actor_class is Echo:
            functions["start + stop a GeventActor"] = start_and_stop
        samples = {name: repeat(function, seconds, now) for name, function in functions.items()}
        samples[SECOND] = second
        if actor.actor_class is ThreadingEcho:
            samples[CROWD] = many_threads
        runs = interleave(samples, rounds)
    report.compare(runs, TRANSACTION, ask, target=target)
    if actor.actor_class is Echo:
        report.compare(runs, TRANSACTION, "start + stop a GeventActor")
    for name in (WITH, TWO, LOCK, SECOND, *([CROWD] if CROWD in runs else [])):
        report.compare(runs, name, ask)
    for name in pairs:
        report.compare(runs, LOCK, name)
    actor.stop()
    locks.stop()


def one_transaction_in_hub(report: Report) -> None:
    """Figure 1 in a greenlet; the actor is on the same hub."""
    one_transaction(report, Echo.start(), target=report.limit(6))


def one_transaction_in_thread(report: Report) -> None:
    """Figure 1 in a program without gevent."""
    one_transaction(report, ThreadingEcho.start(), target=None)


# --- The n-th lock ---------------------------------------------------------------------------------


def nth_lock(report: Report) -> None:
    """Figure 2: what one more lock costs in a transaction that holds n siblings."""
    places, rounds, short = ((10, 100), 3, 5) if report.quick else ((10, 100, 1000, 10000), 15, 40)

    now = clock(green=True)

    def sample(n: int, times: int) -> Callable[[], float]:
        """One more lock around the n-th, the median of several transactions."""
        window = range(n - min(100, n) // 2, n + min(100, n) // 2)

        def run() -> float:
            found = []
            for _ in range(times):
                agent, _ = locks.original.begin_transaction()
                lock = locks.original.lock
                for i in range(1, window.start):
                    lock(agent, ("t", i))
                begun = now()
                for i in window:
                    lock(agent, ("t", i))
                found.append((now() - begun) / len(window))
                locks.original.end_transaction(agent)
            return statistics.median(found)

        return run

    samples = {f"lock {n:,}": sample(n, short if n < 1000 else max(1, short // 10)) for n in places}
    if places[-1] >= 1000:
        samples[f"lock {places[-1]:,}"] = sample(places[-1], 1)
    runs = interleave(samples, rounds)
    for n in places:
        target = report.limit(1.3) if n == places[-1] else None
        report.compare(runs, f"lock {n:,}", "lock 10", target=target)
    locks.stop()


FIGURES = [
    Figure(
        "transaction",
        "one client, one lock, nobody else",
        {"hub": one_transaction_in_hub, "threads": one_transaction_in_thread},
    ),
    Figure("nth", "the n-th lock ('t', i) of one transaction", {"hub": nth_lock}),
]
