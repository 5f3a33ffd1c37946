"""What it costs to measure, to look for long waits, and to serve metrics: all of it on, against all of it off.

    python -m benchmarks.watching                # a table: medians, and the ratio with its quartiles
    python -m benchmarks.watching --only on 2000 # so many transactions and no more, to count instructions

One program has both: its lock server's times are taken out and put back between two samples. The metrics are
collected once for each sample, which is much more often than a server is asked for them.

For noisy machines, instructions: run it with `--only on 2000`, `--only on 4000`, and likewise `off`, each under
`valgrind --tool=cachegrind --cache-sim=no`; the differences are 2,000 transactions.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import gevent

import locks
from benchmarks.contention import Crew, Transactions
from benchmarks.transactions import begin_lock_end
from locks.metrics.collecting import Metrics
from locks.node.node import Node

__all__ = ["main"]

ROUNDS = 60
EACH = 300
CLIENTS = 10


class Off:
    """Measures nothing."""

    def note(self, changed: Any) -> None:
        """Nothing."""


def switch(node: Node, times: Any, on: bool) -> None:
    """Measure, and look for long waits, or don't."""
    node.server.times = times if on else Off()  # type: ignore[assignment]


def alone() -> None:
    """One client."""
    for _ in range(EACH):
        begin_lock_end()


def crowd() -> None:
    """Ten clients that want one lock all the time."""
    Crew(True, CLIENTS, EACH // CLIENTS, Transactions).run()


def compare(node: Node, work: Callable[[], None], rounds: int) -> list[float]:
    """The ratios of the rounds, on to off, in processor time; prints the medians."""
    times = node.server.times
    metrics = Metrics(False, lambda: node)
    samples: dict[bool, list[float]] = {True: [], False: []}
    work()
    for number in range(rounds):
        for on in (True, False) if number % 2 else (False, True):
            switch(node, times, on)
            gc.collect()
            gc.disable()
            began = time.process_time()
            work()
            if on:
                list(metrics.collect())
            samples[on].append(time.process_time() - began)
            gc.enable()
            switch(node, times, True)
    ratios = [on / off for on, off in zip(samples[True], samples[False], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    on, off = (statistics.median(samples[each]) / EACH * 1e6 for each in (True, False))
    print(
        f"{work.__name__:8} on {on:6.1f} µs  off {off:6.1f} µs  "
        f"ratio {middle:.3f} ({low:.3f} to {high:.3f})"
    )
    return ratios


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or do some transactions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs=2, metavar=("on|off", "TRANSACTIONS"))
    options = parser.parse_args(arguments)
    node = locks.start()
    if options.only is not None:
        switch(node, node.server.times, options.only[0] == "on")
        for _ in range(int(options.only[1])):
            begin_lock_end()
    else:
        gevent.get_hub()
        compare(node, alone, options.rounds)
        compare(node, crowd, options.rounds)
    locks.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
