"""As many client programs as fit on this machine, each with a lock, and rings of three while all of them hold theirs.

    python -m benchmarks.thousands 2000            # as many of them as fit; minutes
    python -m benchmarks.thousands 2000 --write    # the same, and writes the table of docs/scale.md anew

Nine lock servers, of which three have each id. The programs are forked from one that has imported `locks`, so they share its memory as
far as they don't write to it. What a program takes is its private memory, and its share of what is common (`Pss`).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import select
import statistics
import sys
import time
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import locks
from benchmarks.harness import Report
from benchmarks.lab import Lab, line_of, processor_time
from benchmarks.messages import markdown, rewritten
from benchmarks.placed import MEMBERS, ids_apart, ring, servers
from benchmarks.plan import PAGE
from locks.program.serving import open_many_files

__all__ = ["FILE", "tables"]

FILE = Path(__file__).parent / "measured" / "thousands.json"
TICKTIME = 60.0  # seconds
SERVERS, COPIES = 9, 3
AT_ONCE = 16  # programs that start at the same time: more would be too many strangers at the servers' doors
SPARE = 5_000  # MiB of memory that are left free
RINGS = 11  # of each kind
LOCKS = 200  # that one program takes, one after the other
QUIET = 5.0  # seconds, while nobody does anything
MORE = b"x"  # asks for another program
PATIENCE = 60.0  # seconds for a program to get its lock


def available() -> float:
    """The memory that programs can still have, in MiB."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    return next(int(each.split()[1]) / 1024 for each in lines if each.startswith("MemAvailable"))


def share(process: int) -> float:
    """The memory of a process, in MiB; of pages that several have, its share."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text("ascii").splitlines()
    return next(int(each.split()[1]) / 1024 for each in lines if each.startswith("Pss:"))


# --- The programs ----------------------------------------------------------------------------------


def program(given: dict[str, Any], number: int) -> None:
    """One program: it takes a lock, and holds it until the first line of its input, which all have, ends."""
    begun = time.monotonic()
    locks.start(**given)
    with locks.transaction() as tx:
        tx.write_lock((f"program {number}", "lock"), timeout=PATIENCE)
        os.write(1, b"%d %f\n" % (os.getpid(), time.monotonic() - begun))
        select.select([0], [], [])
        os._exit(0)  # without a farewell: thousands end at once


LOADED = ("locks.node.peers.cluster", "locks.program.meeting", "locks.transactions", "locks.api")


def fork(given: dict[str, Any]) -> None:
    """Fork a program each time that one more is wanted; then all of them end."""
    for name in LOADED:  # what all need is loaded once
        import_module(name)
    assert callable(locks.start)
    gc.collect()
    gc.freeze()
    numbers = count()
    pipe = os.pipe()
    while os.read(0, 1) == MORE:
        number = next(numbers)
        if not os.fork():
            os.dup2(pipe[0], 0)
            os.close(pipe[1])
            try:
                program(given, number)
            finally:
                os.write(1, b"0 0\n")
                os._exit(1)


# --- The measurement -------------------------------------------------------------------------------


def idle(processes: list[int]) -> float:
    """The share of one processor that these use while nothing happens."""
    worked, begun = [processor_time(each) for each in processes], time.monotonic()
    time.sleep(QUIET)
    passed = time.monotonic() - begun
    after = [processor_time(each) for each in processes]
    return sum(now - then for now, then in zip(after, worked, strict=True)) / passed


def state(
    processes: list[int], rings: list[Any], node: Any, serial: Any, pids: list[int]
) -> dict[str, float]:
    """What is measured with the present number of programs."""
    apart = ids_apart(node.servers, MEMBERS)
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(RINGS + 1):
        for over_groups in (True, False) if number % 2 else (False, True):
            keys = apart if over_groups else apart[:1] * MEMBERS
            seconds = ring(rings, [(key, next(serial), each) for each, key in enumerate(keys)])
            if number:
                took[over_groups].append(seconds)
    alone = []
    for _ in range(LOCKS):
        begun = time.perf_counter()
        with locks.transaction() as tx:
            tx.write_lock((f"own {next(serial)}",))
        alone.append(time.perf_counter() - begun)
    return {
        "within": statistics.median(took[False]),
        "over": statistics.median(took[True]),
        "longest": max(took[True] + took[False]),
        "lock": statistics.median(alone),
        "p99": sorted(alone)[len(alone) * 99 // 100],
        "server_memory": statistics.median([share(each) for each in processes]),
        "servers": idle(processes),
        "programs": idle(pids),
    }


def measure(wanted: int) -> dict[str, Any]:
    """Start programs as long as there is memory, and measure without them and with all of them."""
    open_many_files()
    serial = count()
    with Lab(Report(False), False) as lab, servers(lab, SERVERS, COPIES) as (given, processes):
        given["net_ticktime"] = TICKTIME
        node = locks.start(**given)
        assert node.servers is not None
        assert node.await_nodes(node.servers.nodes, timeout=30)
        text = json.dumps(given)
        rings = [lab.start(sys.executable, "-m", "benchmarks.placed", text) for _ in range(MEMBERS)]
        found: dict[str, Any] = {"without": state(processes, rings, node, serial, [])}
        mother = lab.start(sys.executable, "-m", "benchmarks.thousands", "--fork", text)
        assert mother.stdin is not None
        assert mother.stdout is not None
        free, begun = available(), time.monotonic()
        asked, pids, took = 0, [], []
        while len(pids) < wanted:
            while asked < wanted and asked - len(pids) < AT_ONCE and available() > SPARE:
                mother.stdin.write(MORE.decode())
                mother.stdin.flush()
                asked += 1
            if asked == len(pids):
                break
            pid, seconds = line_of(mother).split()
            if pid == "0":
                raise RuntimeError(f"program {len(pids)} did not get its lock")
            pids.append(int(pid))
            took.append(float(seconds))
            if len(pids) % 100 == 0:
                print(len(pids), f"{available():,.0f} MiB", file=sys.stderr, flush=True)
        found["programs"] = len(pids)
        found["started_in"] = time.monotonic() - begun
        found["start"] = statistics.median(took)
        found["memory"] = (free - available()) / len(pids)
        found["share"] = statistics.median(
            [share(each) for each in pids[:: max(1, len(pids) // 20)]]
        )
        found["with"] = state(processes, rings, node, serial, pids)
        locks.stop()
        print(
            file=mother.stdin, flush=True
        )  # before the servers end, which their clients would report
        lab.wait(lambda: not any(Path(f"/proc/{each}").exists() for each in pids), "programs go on")
    return found


# --- The page --------------------------------------------------------------------------------------


def tables(found: dict[str, Any]) -> dict[str, str]:
    """The table of the page."""
    before, after = found["without"], found["with"]

    def row(what: str, unit: str, key: str, scale: float = 1e3) -> list[str]:
        return [what, *(f"{each[key] * scale:,.1f} {unit}" for each in (before, after))]

    rows = [
        row("ring of 3 within one group", "ms", "within"),
        row("ring of 3 through 3 groups", "ms", "over"),
        [
            "the latter beside the former",
            *(f"{e['over'] / e['within']:.2f}" for e in (before, after)),
        ],
        row("the longest of all rings", "ms", "longest"),
        row("a lock of another program, median", "ms", "lock"),
        row("the same, 99th percentile", "ms", "p99"),
        row("memory of a server", "MiB", "server_memory", 1),
        row("processor time of all servers, when nothing happens", "% of one", "servers", 100),
        row("processor time of all programs, when nothing happens", "% of one", "programs", 100),
    ]
    head = ["", "without them", f"while {found['programs']:,} programs hold a lock each"]
    about = [
        ["programs that were started", f"{found['programs']:,}"],
        ["all had their lock after", f"{found['started_in']:,.0f} s"],
        ["from the start of a program to its lock (median)", f"{found['start']:.2f} s"],
        ["memory that the machine had less, for each", f"{found['memory']:.1f} MiB"],
        ["memory of a program itself", f"{found['share']:.1f} MiB"],
    ]
    return {
        "thousands": markdown([["what", "measured"], *about], {0}),
        "thousands rings": markdown([head, *rows], {0}),
    }


def main() -> int:
    """Measure, and print the tables or write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thousands", description=__doc__)
    parser.add_argument("programs", type=int, nargs="?", default=2_000)
    parser.add_argument("--write", action="store_true", help="write the tables of the page")
    parser.add_argument("--fork", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fork:
        fork(json.loads(given.fork))
        return 0
    found = measure(given.programs)
    if given.write:
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(rewritten(page, tables(found)), encoding="utf-8")
    print(*(f"{name}\n{each}\n" for name, each in tables(found).items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
