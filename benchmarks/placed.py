"""Figures of servers of which some have each id (`copies`): what the busiest one does, and rings over groups of them.

Lock servers are processes of their own, and so are the clients of a ring (`python -m benchmarks.placed`).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import locks
import locks.facts
from benchmarks.cluster import on_linux
from benchmarks.harness import Figure, Report, quartiles
from benchmarks.lab import COOKIE, HOST, Lab, line_of, processor_time
from locks.engines.places import take_port
from locks.node.ports import Servers

__all__ = ["FIGURES", "MEMBERS", "ids_apart", "in_turns", "servers"]

NUMBERS = (1, 2, 4, 8)
DOUBLED = 1 / 1.8  # of the processor time of the busiest server, when there are twice as many
APART = 3.0  # rings over three groups beside rings within one
MEMBERS = 3
COMES, TURNS = "as ids come", "one server after the other"


@contextmanager
def servers(lab: Lab, number: int, copies: int) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """While there are so many servers: what programs pass to `locks.start`, and the ids of the processes."""
    with TemporaryDirectory() as folder:
        cookie = Path(folder, "cookie")
        cookie.touch(mode=0o600)
        cookie.write_text(COOKIE)
        names = [f"s{number}x{each}@{HOST}" for each in range(number)]
        addresses = [f"{name}:{take_port(HOST)[1]}" for name in names]
        common = ("--cookie-file", str(cookie), "--servers", ",".join(addresses))
        processes = [
            lab.start(
                *(sys.executable, "-m", "locks", "node", "--name", name, *common),
                *("--copies", str(copies)),
                quiet=True,
            )
            for name in names
        ]
        for process in processes:
            line_of(process)
        yield (
            {"servers": addresses, "cookie": COOKIE, "copies": copies},
            [each.pid for each in processes],
        )
        for process in processes:
            process.kill()
            process.wait()


def busiest(report: Report) -> None:
    """The processor time of the busiest server for each transaction with one lock, with 1, 2, 4 and 8 servers.

    Each round is done twice, with as many ids: as they come, and those of one server after those of another. The latter shows what it costs that
    the servers of this machine take turns on its processors.
    """
    if not on_linux(report):
        return
    times, rounds = (200, 2) if report.quick else (4_000, 3)
    fresh = count()
    before: dict[str, list[float]] = {}
    with Lab(report, False) as lab:
        for number in NUMBERS[: 2 if report.quick else None]:
            most: dict[str, list[float]] = {COMES: [], TURNS: []}
            everyone: dict[str, list[float]] = {COMES: [], TURNS: []}
            requests: Counter[str] = Counter()
            largest: list[float] = []  # shares of the server with the most requests
            with servers(lab, number, 1) as (given, processes):
                node = locks.start(**given)
                place = node.servers
                assert place is not None
                assert node.await_nodes(place.nodes, timeout=30)
                for turn in range(2 * (rounds + 1)):
                    order = (COMES, TURNS)[turn % 2]
                    ids = [(next(fresh),) for _ in range(times)]
                    where = [place.at(each).nodes[0] for each in ids]
                    if order == TURNS:
                        ids = [each for _, each in sorted(zip(where, ids, strict=True))]
                    worked = [processor_time(each) for each in processes]
                    for each in ids:
                        with locks.transaction() as tx:
                            tx.write_lock(each)
                    worked = [
                        processor_time(each) - then
                        for each, then in zip(processes, worked, strict=True)
                    ]
                    if turn >= 2:  # the servers were new
                        most[order].append(max(worked) / times)
                        everyone[order].append(sum(worked) / times)
                        requests.update(where)
                        largest.append(max(Counter(where).values()) * number / times)
                locks.stop()
            for order, took in most.items():
                then = before.get(order)
                ratios = [now / half for now, half in zip(took, then or took, strict=True)]
                report.add(
                    f"{number} server{'s' * (number > 1)}, one copy, {order}",
                    statistics.median(took) * 1e6,
                    "µs",
                    **(
                        {
                            "yardstick": f"{number // 2} server{'s' * (number > 2)}",
                            "yardstick_value": statistics.median(then) * 1e6,
                            "ratio": statistics.median(ratios),
                            "quartiles": quartiles(ratios),
                            "target": report.limit(DOUBLED),
                        }
                        if then
                        else {}
                    ),
                    note=f"all servers {statistics.median(everyone[order]) * 1e6:.0f} µs; the most requests: {statistics.median(largest):.2f} of an "
                    f"even share in a round, {max(requests.values()) * number / requests.total():.2f} in all {2 * rounds}",
                )
            before = most


# --- Rings -----------------------------------------------------------------------------------------


def rings(report: Report) -> None:
    """Rings of three programs whose ids are in three groups of three servers, beside rings within one group."""
    if not on_linux(report):
        return
    with Lab(report, False) as lab, servers(lab, 9, 3) as (given, _):
        node = locks.start(**given)
        assert node.servers is not None
        assert node.await_nodes(node.servers.nodes, timeout=30)
        programs = [
            lab.start(sys.executable, "-m", "benchmarks.placed", json.dumps(given))
            for _ in range(MEMBERS)
        ]
        took = in_turns(programs, node.servers, 2 if report.quick else 21, count())
        locks.stop()
    ratios = [over / within for over, within in zip(took[True], took[False], strict=True)]
    report.add(
        "ring of 3 over 3 groups of 3 servers",
        statistics.median(took[True]) * 1000,
        "ms",
        yardstick="within one group",
        yardstick_value=statistics.median(took[False]) * 1000,
        ratio=statistics.median(took[True]) / statistics.median(took[False]),
        quartiles=quartiles(ratios),
        target=report.limit(APART),
        note=f"{len(ratios)} rings, all resolved; at most {max(took[True]) * 1000:.0f} and {max(took[False]) * 1000:.0f} ms",
    )


def in_turns(
    programs: Sequence[Any], servers: Servers, rounds: int, serial: Iterator[int]
) -> dict[bool, list[float]]:
    """Seconds of rings through three groups of servers (`True`), and of rings within one, in turns; the first of each kind is not counted."""
    apart = ids_apart(servers, MEMBERS)
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds + 1):
        for over_groups in (True, False) if number % 2 else (False, True):
            keys = apart if over_groups else apart[:1] * MEMBERS
            seconds = ring(programs, [(key, next(serial), each) for each, key in enumerate(keys)])
            if number:
                took[over_groups].append(seconds)
    return took


def ids_apart(servers: Servers, groups: int, where: str = "id") -> list[str]:
    """First elements of ids, each on other servers than the ones before.

    Args:
        servers: The servers.
        groups: How many.
        where: How they begin.
    """
    found: list[str] = []
    taken: set[str] = set()
    for number in range(10_000):
        there = set(servers.at((f"{where}{number}",)).nodes)
        if not there & taken:
            found.append(f"{where}{number}")
            taken |= there
        if len(found) == groups:
            return found
    raise AssertionError("no such ids")


def ring(programs: Sequence[Any], ids: Sequence[Any]) -> float:
    """Seconds from the request that closes a ring until all are done."""
    for program, own, wanted in zip(programs, ids, [*ids[1:], ids[0]], strict=True):
        print(json.dumps([own, wanted]), file=program.stdin, flush=True)
        line_of(program)
    for program in programs[:-1]:
        print(file=program.stdin, flush=True)
    while (
        len({edge.waiter.request.agent for edge in locks.facts.waits().edges}) < len(programs) - 1
    ):
        time.sleep(0.002)
    print(file=programs[-1].stdin, flush=True)
    done = [json.loads(line_of(program)) for program in programs]
    return max(at for _, at in done) - max(asked for asked, _ in done)


def main() -> None:
    """A program of a ring: each line has its own id, and the next one's, which it wants after another line."""
    locks.start(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        own, wanted = json.loads(line)
        with locks.transaction(on_deadlock="surrender") as tx:
            tx.write_lock(own)
            print("holds", flush=True)
            sys.stdin.readline()
            asked = time.monotonic()
            tx.write_lock(wanted)
            at = time.monotonic()
        print(json.dumps([asked, at]), flush=True)


FIGURES = [
    Figure("placed", "Servers of which one has each id", {"threads": busiest}),
    Figure("placed_rings", "Rings over groups of servers", {"threads": rings}),
]

if __name__ == "__main__":
    main()
