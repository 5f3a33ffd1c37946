"""Figures of a lock over many: a table whose rows are held by as many agents."""

from __future__ import annotations

import gc
import statistics
from typing import Any

import gevent
import gevent.event

import locks
from benchmarks.harness import Figure, Report, Runs, clock

__all__ = ["FIGURES"]

now = clock(green=True)


def hold_rows(rows: int) -> list[locks.actors.Agent]:
    """Agents, each with a write lock on one row."""
    agents = []
    for i in range(rows):
        agent, _ = locks.original.begin_transaction()
        locks.original.lock(agent, ("t", i))
        agents.append(agent)
    return agents


def end_all(agents: list[locks.actors.Agent]) -> None:
    """Release the rows."""
    for agent in agents:
        locks.original.end_transaction(agent)


def release_unwanted(rows: int) -> float:
    """Seconds to end the agents when nobody waits."""
    agents = hold_rows(rows)
    gc.collect()
    gc.disable()
    begun = now()
    end_all(agents)
    took = now() - begun
    gc.enable()
    return took


def lock_table(rows: int) -> tuple[float, float]:
    """Seconds to ask for the table, and seconds from the first release to the grant."""
    agents = hold_rows(rows)
    asked: Any = gevent.event.AsyncResult()

    def client() -> float:
        agent, _ = locks.original.begin_transaction()
        begun = now()
        locks.original.lock_nowait(agent, ("t",))
        asked.set(now() - begun)
        locks.original.await_all_locks(agent)
        granted = now()
        locks.original.end_transaction(agent)
        return granted

    gc.collect()
    gc.disable()
    greenlet = gevent.spawn(client)
    asking: float = asked.get()
    gevent.sleep(0)  # it waits now
    begun = now()
    end_all(agents)
    granted: Any = greenlet.get()
    gc.enable()
    return asking, granted - begun


def table_lock(report: Report) -> None:
    """Figure 5."""
    few, many, rounds = (50, 500, 2) if report.quick else (1000, 10000, 5)
    runs = Runs()
    for number in range(rounds):
        for rows in (few, many) if number % 2 else (many, few):
            # Small ones are repeated, so that both sizes take about as long.
            asks, waits, bare = [], [], []
            for _ in range(1 if rows == many else 3):
                asking, waiting = lock_table(rows)
                asks.append(asking)
                waits.append(waiting)
                bare.append(release_unwanted(rows))
            runs.setdefault(f"ask over {rows:,}", []).append(statistics.median(asks))
            runs.setdefault(f"grant over {rows:,}", []).append(statistics.median(waits))
            runs.setdefault(f"end {rows:,}", []).append(statistics.median(bare))
    for rows in (few, many):
        parts = zip(runs[f"ask over {rows:,}"], runs[f"grant over {rows:,}"], strict=True)
        runs[f"ask + grant over {rows:,}"] = [asking + waiting for asking, waiting in parts]
    for what in ("ask", "grant", "ask + grant"):
        target = report.limit(12) if what == "ask + grant" else None
        report.compare(
            runs, f"{what} over {many:,}", f"{what} over {few:,}", "ms", target=target
        )  # fmt: skip
    for rows in (few, many):
        report.compare(
            runs, f"grant over {rows:,}", f"end {rows:,}", "ms",
            yardstick_label=f"{rows:,} ends, nobody waiting",
        )  # fmt: skip
    whole = f"ask + grant over {few:,}"
    report.add(
        whole, runs.median(whole), "s",
        target=report.limit(1), target_on="value",
    )  # fmt: skip
    locks.stop()


FIGURES = [
    Figure(
        "table",
        "a lock on ('t',) while others hold ('t', i): to ask; from the first release to the grant",
        {"hub": table_lock},
    )
]
