"""Thousands of client programs, each with a lock, and rings of three while all of them hold theirs.

    python -m benchmarks.thousands 100 300 1000            # real programs, so many; minutes
    python -m benchmarks.thousands 100 300 1000 --write    # the same, and writes the tables of docs/scale.md anew
    python -m benchmarks.thousands --write                 # measures nothing: the tables of what was measured last

Nine lock servers, of which three have each id. Larger numbers than these are simulated (`benchmarks.rings`), from costs that are measured in
the same run, and the simulation is compared with the rings that are measured. `--simulated` chooses the numbers.

The programs are forked from one that has imported `locks`, so they share its memory as
far as they don't write to it. What a program takes is its private memory, and its share of what is common (`Pss`). As many are started as
there is memory for.
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
from benchmarks.placed import MEMBERS, in_turns, servers
from benchmarks.plan import PAGE, Costs
from benchmarks.rings import RATE, Prices, Said, said
from locks.program.serving import open_many_files

__all__ = ["FACTOR", "FILE", "distances", "tables"]

FILE = Path(__file__).parent / "measured" / "thousands.json"
TICKTIME = 60.0  # seconds
SERVERS, COPIES = 9, 3
AT_ONCE = 16  # programs that start at the same time: more would be too many strangers at the servers' doors
SPARE = 5_000  # MiB of memory that are left free
RINGS = 11  # of each kind
LOCKS = 200  # that one program takes, one after the other
BURST, PAUSE = (
    5,
    0.02,
)  # of locks whose cost is measured: as many messages as a ring sends to a server, and then seconds
SIMULATED = (2_000, 10_000)
FACTOR = 2.0  # by which the model may be off
QUIET = 5.0  # seconds, while nobody does anything
MORE = b"x"  # asks for another program
PATIENCE = 60.0  # seconds for a program to get its lock


def available() -> float:
    """The memory that programs can still have, in MiB."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    return next(int(each.split()[1]) / 1024 for each in lines if each.startswith("MemAvailable"))


def worked() -> float:
    """For how many seconds the processors of this machine have worked."""
    times = [
        int(each) for each in Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:]
    ]
    return (sum(times[:3]) + sum(times[5:8])) / os.sysconf("SC_CLK_TCK")


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


def costs(processes: list[int], node: Any, serial: Any) -> Costs:
    """What a transaction costs this program and the servers, on one server and on three, in short bursts."""

    def cost(nodes: list[str] | None) -> tuple[float, float]:
        begun, worked = time.process_time(), sum(map(processor_time, processes))
        for _ in range(LOCKS // BURST):
            first = f"cost {next(serial)}"
            for number in range(BURST):
                with locks.transaction() as tx:
                    tx.write_lock((first, number), nodes=nodes)
            time.sleep(PAUSE)
        servers = sum(map(processor_time, processes)) - worked
        return (time.process_time() - begun) / LOCKS, servers / LOCKS

    cost(None)  # the first ones are not counted
    (one, _), (three, servers) = cost([node.servers.nodes[0]]), cost(None)
    each = (three - one) / (COPIES - 1)
    return Costs(servers / (2 * COPIES), one - each, each)


def state(
    processes: list[int], rings: list[Any], node: Any, serial: Any, pids: list[int]
) -> dict[str, float]:
    """What is measured with the present number of programs."""
    ours = [os.getpid(), *processes, *(each.pid for each in rings), *pids]
    begun, before, ours_before = time.monotonic(), worked(), sum(map(processor_time, ours))
    took = in_turns(rings, node.servers, RINGS, serial)
    others = worked() - before - (sum(map(processor_time, ours)) - ours_before)
    others /= (time.monotonic() - begun) * (os.cpu_count() or 1)
    alone = []
    for _ in range(LOCKS):
        begun = time.perf_counter()
        with locks.transaction() as tx:
            tx.write_lock((f"own {next(serial)}",))
        alone.append(time.perf_counter() - begun)
    return {
        "programs": len(pids),
        "within": statistics.median(took[False]),
        "over": statistics.median(took[True]),
        "longest": max(took[True] + took[False]),
        "others": max(0.0, others),
        "lock": statistics.median(alone),
        "p99": sorted(alone)[len(alone) * 99 // 100],
        "server_memory": statistics.median([share(each) for each in processes]),
        "server_idle": idle(processes),
        "program_idle": idle(pids),
    }


def measure(sizes: list[int]) -> dict[str, Any]:
    """Start programs as long as there is memory, and measure without them and with so many of them."""
    open_many_files()
    serial = count()
    with Lab(Report(False), False) as lab, servers(lab, SERVERS, COPIES) as (given, processes):
        given["net_ticktime"] = TICKTIME
        node = locks.start(**given)
        assert node.servers is not None
        assert node.await_nodes(node.servers.nodes, timeout=30)
        text = json.dumps(given)
        rings = [lab.start(sys.executable, "-m", "benchmarks.placed", text) for _ in range(MEMBERS)]
        found: dict[str, Any] = {"costs": costs(processes, node, serial)}
        states = found["states"] = [state(processes, rings, node, serial, [])]
        mother = lab.start(sys.executable, "-m", "benchmarks.thousands", "--fork", text)
        assert mother.stdin is not None
        free, spent = available(), 0.0
        pids: list[int] = []
        took: list[float] = []
        for wanted in sorted(sizes):
            begun = time.monotonic()
            asked = len(pids)
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
            spent += time.monotonic() - begun
            memory = (free - available()) / len(pids)
            if len(pids) > states[-1]["programs"]:
                states.append(state(processes, rings, node, serial, pids))
        found["started_in"] = spent
        found["start"] = statistics.median(took)
        found["memory"] = memory
        some = pids[:: max(1, len(pids) // 20)]
        found["share"] = statistics.median([share(each) for each in some])
        locks.stop()
        print(
            file=mother.stdin, flush=True
        )  # before the servers end, which their clients would report
        lab.wait(lambda: not any(Path(f"/proc/{each}").exists() for each in pids), "programs go on")
    return found


def simulate(found: dict[str, Any], sizes: list[int]) -> None:
    """Add what the model says: of the measured numbers of programs on the processors of this machine, and of all on processors of their own."""
    states = found["states"]
    most = states[-1]
    heartbeats = [
        (most[each] - states[0][each]) / most["programs"]
        for each in ("server_idle", "program_idle")
    ]
    price = Prices(Costs(*found["costs"]), heartbeats[0], heartbeats[1], TICKTIME)
    here = os.cpu_count() or 1
    found["here"] = [said(each["programs"], price, RINGS, here) for each in states]
    numbers = sorted({*(each["programs"] for each in states[1:]), *sizes})
    found["simulated"] = [(number, said(number, price, RINGS)) for number in numbers]


# --- The page --------------------------------------------------------------------------------------


def distances(real: dict[str, float], model: Said) -> tuple[float, float]:
    """The model's times of rings within one group, and through three, divided by what was measured times the share of the machine that others left."""
    left = 1 - real["others"]
    return model.within / (real["within"] * left), model.over / (real["over"] * left)


def tables(found: dict[str, Any]) -> dict[str, str]:
    """The tables of the page."""
    states = found["states"]
    costs = Costs(*found["costs"])

    def ms(*seconds: float) -> list[str]:
        return [f"{each * 1e3:,.1f}" for each in seconds]

    def ratio(one: Any) -> str:
        return f"{one['over'] / one['within']:.2f}"

    about = [
        ["programs that were started", f"{states[-1]['programs']:,}"],
        ["all had their lock after", f"{found['started_in']:,.0f} s"],
        ["from the start of a program to its lock (median)", f"{found['start']:.2f} s"],
        ["memory that the machine had less, for each", f"{found['memory']:.1f} MiB"],
        ["memory of a program itself", f"{found['share']:.1f} MiB"],
    ]
    rings, rest, compared, simulated = [], [], [], []
    for each, model in zip(states, found["here"], strict=True):
        name = f"{each['programs']:,}"
        model = Said(*model)
        times = each["within"], each["over"]
        rings.append([name, *ms(*times), ratio(each), *ms(each["longest"])])
        rest.append(
            [
                name,
                *ms(each["lock"], each["p99"]),
                f"{each['server_memory']:.1f}",
                *(f"{each[who] * 100:,.1f}" for who in ("server_idle", "program_idle")),
            ]
        )
        compared.append(
            [
                name,
                *ms(model.within, model.over),
                ratio(model._asdict()),
                f"{each['others']:.0%}",
                *(f"{distance:.2f}" for distance in distances(each, model)),
            ]
        )
    for number, model in found["simulated"]:
        model = Said(*model)
        simulated.append(
            [
                f"{number:,}",
                *ms(model.within, model.over),
                ratio(model._asdict()),
                *ms(model.longest),
                *ms(model.busy_within, model.busy_over, model.busy_longest),
                f"{model.server:.0%}",
            ]
        )
    messages = Said(*found["simulated"][-1][1])
    prices = [
        ["a server: a message", f"{costs.message * 1e6:,.0f} µs"],
        ["a program: a transaction", f"{costs.fixed * 1e6:,.0f} µs"],
        ["a program: for each server of the lock, or other message", f"{costs.each * 1e6:,.0f} µs"],
        ["messages of a ring within one group", f"{messages.messages:.0f}"],
        ["messages of a ring through three groups", f"{messages.messages_over:.0f}"],
    ]
    three = ["within one group, ms", "through 3 groups, ms", "ratio"]
    return {
        "thousands": markdown([["what", "measured"], *about], {0}),
        "thousands rings": markdown([["programs", *three, "the longest, ms"], *rings]),
        "thousands locks": markdown(
            [
                [
                    "programs",
                    "a lock, ms",
                    "99th percentile",
                    "MiB of a server",
                    "servers at rest, %",
                    "programs at rest, %",
                ],
                *rest,
            ]
        ),
        "thousands prices": markdown([["what", "cost, or number"], *prices], {0}),
        "thousands compared": markdown(
            [
                ["programs", *three, "others used", "model / measured", "through 3 groups"],
                *compared,
            ]
        ),
        "thousands simulated": markdown(
            [
                [
                    "programs",
                    *three,
                    "the longest",
                    f"{RATE:.0f} rings a second: within",
                    "through 3 groups",
                    "the longest",
                    "a server, for heartbeats",
                ],
                *simulated,
            ]
        ),
    }


def main() -> int:
    """Measure, simulate, and print the tables or write them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.thousands",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "programs", type=int, nargs="*", help="numbers of real programs, all above 0"
    )
    parser.add_argument(
        "--simulated", type=int, nargs="+", default=SIMULATED, help="numbers that are simulated"
    )
    parser.add_argument("--write", action="store_true", help="write the tables of the page")
    parser.add_argument("--fork", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fork:
        fork(json.loads(given.fork))
        return 0
    if min(given.programs, default=1) < 1:
        parser.error("a number of programs must be above 0")
    if given.programs:
        found = measure(given.programs)
        simulate(found, given.simulated)
    else:
        found = json.loads(FILE.read_text(encoding="utf-8"))
    if given.write:
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(rewritten(page, tables(found)), encoding="utf-8")
    print(*(f"{name}\n{each}\n" for name, each in tables(found).items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
