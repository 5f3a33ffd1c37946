"""What compiled modules save: `python -m benchmarks.forms`, in an environment in which a compiled wheel is installed.

Processes with compiled modules and with interpreted ones take turns; of each work the least processor time of all its rounds counts, so
that it matters little what else the machine does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import gevent

import locks
from benchmarks.transactions import ONE, begin_lock_end, with_transaction

PAIRS = 5
ROUNDS = 7
CALLS = 1000
CLIENTS = 20


def _acquire_and_release() -> None:
    with _lock:
        pass


def _contend() -> None:
    """Several clients and one lock; as many transactions as the other works have."""

    def client() -> None:
        for _ in range(CALLS // CLIENTS):
            with locks.transaction() as tx:
                tx.write_lock(ONE)
                gevent.sleep(0)

    gevent.joinall([gevent.spawn(client) for _ in range(CLIENTS)], raise_error=True)


def _often(call: Callable[[], None]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(CALLS):
            call()

    return calls


_lock = locks.Lock(("bench", "lock"))
WORKS = {
    "begin + lock + end": _often(begin_lock_end),
    "with transaction() + lock": _often(with_transaction),
    "Lock acquire + release": _often(_acquire_and_release),
    f"{CLIENTS} greenlets, one lock": _contend,
}


def measured() -> dict[str, float]:
    """Of each work, the least microseconds of processor time in this process."""
    found = {}
    for name, work in WORKS.items():
        work()
        times = []
        for _ in range(ROUNDS):
            begun = time.process_time()
            work()
            times.append(time.process_time() - begun)
        found[name] = min(times) / CALLS * 1e6
    return found


def main() -> int:
    """Compare; or, as one of the processes that are compared, measure."""
    if sys.argv[1:] == ["measure"]:
        print(json.dumps(measured()))
        return 0
    if not locks.__compiled__:
        print("no compiled modules are used here: there is nothing to compare")
        return 1
    runs: dict[str, list[dict[str, float]]] = {"0": [], "1": []}
    for _ in range(PAIRS):
        for pure, found in runs.items():
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.forms", "measure"],
                env={**os.environ, "LOCKS_PURE": pure},
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            found.append(json.loads(done.stdout))
    for name in WORKS:
        compiled, interpreted = (min(run[name] for run in runs[pure]) for pure in ("0", "1"))
        ratio = compiled / interpreted
        print(f"{name:<28}{compiled:7.1f} µs compiled {interpreted:7.1f} interpreted {ratio:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
