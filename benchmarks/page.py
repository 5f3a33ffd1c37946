"""What the live page costs a lock server that has other things to do: its processor time, with the page open and without.

A lock server has 10,000 locks, and a program that leads an election does 1,000 transactions a second there. The server, and the program that serves the
page (`locks web`), are processes of their own; the page is read as a browser reads it.
"""

from __future__ import annotations

import http.client
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import locks
import locks_leader
from benchmarks.cluster import on_linux
from benchmarks.harness import Figure, Report, interleave
from benchmarks.lab import COOKIE, HOST, processor_time
from benchmarks.spokes import Process, Server

__all__ = ["FIGURES"]

RATE = 1_000  # transactions a second


def _serve(cookie: Path, server: str) -> tuple[Process, int]:
    """The program that serves the page, and its port."""
    given = ["--servers", server, "--cookie-file", str(cookie), "--listen", f"{HOST}:0"]
    page = Process("-m", "locks", "web", *given)
    return page, int(page.text().rstrip("/\n").rpartition(":")[2])


def _read(port: int, opened: threading.Event, over: threading.Event) -> None:
    """Read the page's events until it is over."""
    connection = http.client.HTTPConnection(HOST, port)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    while not over.is_set() and (line := answer.readline()):
        if line.startswith(b"data"):
            opened.set()
    connection.close()


def _transactions(seconds: float) -> int:
    """So many transactions a second, for a while; how many there were."""
    begun = time.perf_counter()
    done = 0
    while (now := time.perf_counter() - begun) < seconds:
        if done > now * RATE:
            time.sleep(done / RATE - now)
        with locks.transaction() as tx:
            tx.write_lock(("paid", done % 100))
        done += 1
    return done


def page(report: Report) -> None:
    """With the page open, and without."""
    if not on_linux(report):
        return
    number, seconds, rounds = (100, 0.3, 1) if report.quick else (10_000, 9.0, 4)
    with ExitStack() as stack:
        cookie = Path(stack.enter_context(tempfile.TemporaryDirectory()), "cookie")
        cookie.touch(0o600)
        cookie.write_text(COOKIE)
        made = Server(f"server@{HOST}", cookie)
        server = made.process
        stack.callback(server.end)
        locks.start(servers=[made.peer], cookie=COOKIE)
        stack.callback(locks.stop)
        chief = locks_leader.Election("chief")
        chief.start()
        stack.callback(chief.stop)
        web, port = _serve(cookie, made.peer)
        stack.callback(web.end)
        rates = []

        def alone() -> float:
            begun = processor_time(server.pid)
            done = _transactions(seconds)
            rates.append(done / seconds)
            return (processor_time(server.pid) - begun) / done

        def watched() -> float:
            opened, over = threading.Event(), threading.Event()
            reader = threading.Thread(target=_read, args=(port, opened, over))
            reader.start()
            opened.wait()
            try:
                return alone()
            finally:
                over.set()
                reader.join()

        # By another client: one that waits in a second transaction holds up all that it has in the first one.
        with locks.Owner("many"), locks.transaction() as tx:
            tx.lock_all([("row", n % 100, n) for n in range(number)])
            samples: dict[str, Callable[[], float]] = {"page open": watched, "no page": alone}
            with locks.Owner("payer"):
                runs = interleave(samples, rounds)
        report.compare(
            runs,
            "page open",
            "no page",
            label=f"server's time for a transaction, {number:,} locks, page open",
            target=report.limit(1.2),
            note=f"{min(rates):,.0f} to {max(rates):,.0f} transactions a second",
        )


FIGURES = [Figure("page", "a page that is open", {"threads": page})]
