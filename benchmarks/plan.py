"""A plan past these machines: how many lock servers many programs need, in one data centre and in three regions.

    python -m benchmarks.plan --measure      # measures costs and what they are checked against, in about a minute
    python -m benchmarks.plan --write        # writes the tables and plots of docs/scale.md anew

`plan` is a pure function from a shape to throughput, latency and utilisation: a discrete-event model with a queue for
each processor, a delay for each link, and the measured cost of each message.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

from gevent import monkey

import locks
from benchmarks.harness import Report
from benchmarks.lab import Lab, line_of, pin, processor_time
from benchmarks.messages import markdown, rewritten
from benchmarks.placed import servers
from benchmarks.plot import Line, plot
from locks.model import majority

__all__ = [
    "FILE",
    "IMAGES",
    "PAGE",
    "Costs",
    "Plan",
    "Shape",
    "capacity",
    "costs",
    "pictures",
    "plan",
    "tables",
]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scale.md"
IMAGES = ROOT / "docs" / "img"
FILE = ROOT / "benchmarks" / "measured" / "plan.json"
RUNS = 2_000  # transactions of a simulation, of which the first quarter is not counted
CLOSED = 1_000  # clients; more of them are one stream of arrivals
FULL = 0.95  # of the capacity
NEAR = 100e-6  # seconds that a message takes within a data centre
FAR = 40e-3  # and to another region


class Costs(NamedTuple):
    """Seconds of processor time.

    Attributes:
        message: At a server: a request with its answer, or a release.
        fixed: At a client, for each transaction.
        each: At a client, for each transaction and server.
        wake: At a server, for a message that finds it idle; what arrives while it works is read together.
    """

    message: float
    fixed: float
    each: float
    wake: float = 0.0

    def of_client(self, copies: int) -> float:
        """What a transaction costs a client."""
        return self.fixed + self.each * copies

    def of_servers(self, copies: int) -> float:
        """What it costs all servers together, when they are always at work."""
        return 2 * self.message * copies


class Shape(NamedTuple):
    """Programs with a lock in each transaction, each lock another one, and their servers.

    Attributes:
        clients: Programs.
        servers: Lock servers.
        copies: The number of servers of each lock. A lock needs a majority of them.
        rate: Transactions that each program begins in a second; 0 for one after the other without a pause.
        regions: Servers and programs are spread over so many.
        near: Seconds that a message takes within a region.
        client_processors: The processors that all programs share; 0 for one each.
        server_processors: The same of the servers.
    """

    clients: int = 1
    servers: int = 1
    copies: int = 1
    rate: float = 0.0
    regions: int = 1
    near: float = NEAR
    client_processors: int = 0
    server_processors: int = 0

    @property
    def processors_of_clients(self) -> int:
        """The number of processors that work for programs."""
        return self.client_processors or self.clients

    @property
    def processors_of_servers(self) -> int:
        """The number of processors that work for servers."""
        return self.server_processors or self.servers


class Plan(NamedTuple):
    """What the model says: transactions a second, seconds, and shares of 1.

    Attributes:
        throughput: Transactions in a second.
        median: Seconds of a transaction.
        p99: The 99th percentile of these.
        client: The share of the time for which processors of clients work.
        server: The same of servers.
        link: The share of a transaction for which messages to and from the server that completes the majority are under way.
    """

    throughput: float
    median: float
    p99: float
    client: float
    server: float
    link: float

    @property
    def bottleneck(self) -> str:
        """What to change first."""
        if max(self.client, self.server) >= 0.7:
            return "servers" if self.server >= self.client else "clients"
        return "links" if self.link > 0.5 else "none"


def capacity(shape: Shape, costs: Costs) -> float:
    """The most transactions in a second that the processors of servers and clients can do: nothing wakes up then."""
    servers = shape.processors_of_servers / costs.of_servers(shape.copies)
    return min(servers, shape.processors_of_clients / costs.of_client(shape.copies))


def delay(shape: Shape, one: int, other: int) -> float:
    """How long a message takes between a client and a server."""
    return shape.near if (one - other) % shape.regions == 0 else FAR


@lru_cache
def plan(shape: Shape, costs: Costs, seed: int = 1) -> Plan:
    """Simulate a shape.

    More than `CLOSED` programs are one stream of arrivals. If these are more than the processors can do, then throughput is the capacity,
    and the rest of each program's time is waiting (Little's law); programs are one after the other, so all wait for as long.
    """
    most = capacity(shape, costs)
    if shape.clients > CLOSED and not 0 < shape.clients * shape.rate < FULL * most:
        latency = shape.clients / most - (1 / shape.rate if shape.rate else 0)
        under_way = _simulated(shape._replace(clients=1, rate=0.0), costs, seed, RUNS // 4)
        latency = max(latency, under_way.median)
        link = under_way.link * under_way.median / latency
        work = costs.of_client(shape.copies), costs.of_servers(shape.copies)
        return _shares(shape, work, most, latency, latency, link)
    return _simulated(shape, costs, seed, RUNS)


def _shares(
    shape: Shape,
    work: tuple[float, float],
    throughput: float,
    median: float,
    p99: float,
    link: float,
) -> Plan:
    client = throughput * work[0] / shape.processors_of_clients
    server = throughput * work[1] / shape.processors_of_servers
    return Plan(throughput, median, p99, min(client, 1), min(server, 1), link)


def _simulated(shape: Shape, costs: Costs, seed: int, runs: int) -> Plan:
    """Run the events in the order of their times: who has work at a processor, and what follows."""
    drawn = random.Random(seed)
    free: dict[tuple[str, int], float] = {}  # until when each processor works
    awake: dict[int, float] = {}  # until when each server has work
    woken: list[bool] = []  # whether a server was, for each message
    events: list[tuple[float, int, str, int, int]] = []  # time, order, what, transaction, server
    began: list[float] = []
    client: list[int] = []
    places: list[list[int]] = []
    answers: list[int] = []
    finished: list[float] = []  # when each transaction was
    done: dict[int, tuple[float, float]] = {}  # of those that count: how long, of it under way
    order = 0
    needed = majority(shape.copies)
    closed = shape.clients <= CLOSED

    def push(at: float, what: str, number: int, server: int = 0) -> None:
        nonlocal order
        order += 1
        heappush(events, (at, order, what, number, server))

    def work(at: float, kind: str, which: int, seconds: float) -> float:
        shared = shape.client_processors if kind == "client" else shape.server_processors
        place = kind, which % (shared or sys.maxsize)
        free[place] = max(at, free.get(place, 0.0)) + seconds
        return free[place]

    def serve(at: float, server: int) -> float:
        woken.append(at >= awake.get(server, 0.0))
        awake[server] = work(at, "server", server, costs.message + costs.wake * woken[-1])
        return awake[server]

    def arrive(who: int, at: float) -> None:
        began.append(at)
        client.append(who)
        places.append(drawn.sample(range(shape.servers), shape.copies))
        answers.append(0)
        push(at, "begin", len(began) - 1)

    def pause(rate: float) -> float:
        return drawn.expovariate(rate) if rate else 0.0

    for who in range(shape.clients if closed else 1):
        arrive(who, pause(shape.rate))
    half = costs.fixed / 2
    warm = runs // 4
    counted = runs - warm
    if not closed:  # until the first releases of the farthest programs are at work
        warm = max(warm, int(2.5 * FAR * shape.clients * shape.rate) if shape.regions > 1 else 0)
    while len(done) < counted:
        at, _, what, number, server = heappop(events)
        who = client[number]
        if what == "begin":
            if not closed:
                following = at + pause(shape.rate * shape.clients)
                arrive(drawn.randrange(shape.clients), following)
            at = work(at, "client", who, half)
            for server in places[number]:
                at = work(at, "client", who, costs.each / 3)
                push(at + delay(shape, who, server), "request", number, server)
        elif what == "request":
            at = serve(at, server)
            push(at + delay(shape, who, server), "answer", number, server)
        elif what == "answer":
            at = work(at, "client", who, costs.each / 3)
            answers[number] += 1
            if answers[number] == needed:
                at = work(at, "client", who, half)
                for other in places[number]:
                    at = work(at, "client", who, costs.each / 3)
                    push(at + delay(shape, who, other), "release", number, other)
                finished.append(at)
                if 0 <= number - warm < counted:
                    done[number] = at - began[number], 2 * delay(shape, who, server)
                if closed:
                    arrive(who, at + pause(shape.rate))
        else:
            serve(at, server)
    took = sorted(each for each, _ in done.values())
    throughput = (len(finished) - warm) / (finished[-1] - finished[warm - 1])
    link = sum(each for _, each in done.values()) / sum(took)
    message = costs.message + costs.wake * sum(woken) / len(woken)
    mean = costs.of_client(shape.copies), costs._replace(message=message).of_servers(shape.copies)
    return _shares(shape, mean, throughput, took[len(took) // 2], took[len(took) * 99 // 100], link)


# --- Measured --------------------------------------------------------------------------------------

CHECKED = ("1 1 1", "2 1 1", "4 1 1", "8 1 1", "1 3 3", "4 3 3", "8 3 3", "4 4 1", "8 4 1")
"""Clients, servers, copies."""
SECONDS = 1.5
ROUNDS = 4
IN_TURNS = "8 1 1 in turns"
ONE_CORE = "1 1 1 on one core"
IN_HUB = "1 1 1 in the hub"
WHY = ("1 1 1", ONE_CORE, IN_HUB, IN_TURNS, "8 1 1")
AT_A_TIME = 50  # transactions of a program, then of the next one


def switches(process: int) -> int:
    """How often another thread got the processor of a thread of a process."""
    lines = [
        line
        for thread in Path(f"/proc/{process}/task").iterdir()
        for line in (thread / "status").read_text("ascii").splitlines()
    ]
    return sum(int(each.split()[1]) for each in lines if "ctxt_switches" in each)


def measure() -> dict[str, Any]:
    """Programs that lock on servers, all programs on one core and all servers on another one; of some rounds the one that others disturbed least."""
    with Lab(Report(False), False) as lab:

        def best(name: str) -> dict[str, float]:
            rounds = [_measured(lab, name) for _ in range(ROUNDS)]
            return max(rounds, key=lambda each: each["throughput"])

        return {
            what: {name: best(name) for name in names}
            for what, names in (("checked", CHECKED), ("why", WHY))
        }


def _measured(lab: Lab, name: str) -> dict[str, float]:
    """One shape: all programs at the same time; or one after the other, some transactions each."""
    number, many, copies = map(int, name.split()[:3])
    with servers(lab, many, copies) as (given, processes):
        command = (sys.executable, "-m", "benchmarks.plan", "--client")
        programs = [
            lab.start(*command, json.dumps([given, each, name == IN_HUB]), quiet=True)
            for each in range(number)
        ]
        for each in programs:
            line_of(each)
        for process, core in [
            *((each.pid, 0) for each in programs),
            *((each, name != ONE_CORE) for each in processes),
        ]:
            pin(process, core)
        everyone = [*(each.pid for each in programs), *processes]
        before = [(processor_time(each), switches(each)) for each in everyone]
        took: list[float] = []
        if name == IN_TURNS:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                for each in programs:
                    print(AT_A_TIME, file=each.stdin, flush=True)
                    took += json.loads(line_of(each))
        else:
            for each in programs:
                print(0, file=each.stdin, flush=True)
            took += [second for each in programs for second in json.loads(line_of(each))]
        worked = [
            (processor_time(each) - seconds, switches(each) - times)
            for each, (seconds, times) in zip(everyone, before, strict=True)
        ]
        took.sort()
        found = {
            "throughput": len(took) / SECONDS,
            "median": statistics.median(took),
            "p99": took[len(took) * 99 // 100],
        }
        for who, theirs in (("client", worked[:number]), ("server", worked[number:])):
            found[who] = sum(seconds for seconds, _ in theirs) / len(took)
            found[f"{who} switches"] = sum(times for _, times in theirs) / len(took)
        for each in programs:
            each.kill()
            each.wait()
    return found


def client(given: dict[str, Any], number: int, in_hub: bool) -> None:
    """A program that locks one id after the other: so many times, or for a while; when it is told to.

    Args:
        given: Arguments of `locks.start`.
        number: Its number.
        in_hub: Whether the thread that locks also reads and writes, as in programs on gevent.
    """
    if in_hub:
        monkey.patch_all()
    locks.start(**given).await_nodes(
        [each.rpartition(":")[0] for each in given["servers"]], timeout=30
    )
    print("ready", flush=True)
    serial = number * 1_000_000
    for line in sys.stdin:
        times = int(line) or sys.maxsize
        end = time.perf_counter() + SECONDS
        took: list[float] = []
        while len(took) < times and (begun := time.perf_counter()) < end:
            with locks.transaction() as tx:
                tx.write_lock((serial,))
            serial += 1
            took.append(time.perf_counter() - begun)
        print(json.dumps(took), flush=True)


def costs(measured: dict[str, Any]) -> Costs:
    """The costs, from processor times: of one program, which wakes its server for each message; of one with three servers; of a server that works all the time."""
    found = measured["checked"]
    one, three = found["1 1 1"], found["1 3 3"]
    each = (three["client"] - one["client"]) / 2
    busy = min(real["server"] for name, real in found.items() if name.endswith(" 1 1"))
    return Costs(busy / 2, one["client"] - each, each, (one["server"] - busy) / 2)


# --- The page --------------------------------------------------------------------------------------

RATE = 1.0
CLIENTS = (10, 100, 1_000, 10_000, 100_000)
PLACES = ((1, 1), (3, 3), (10, 3), (100, 1), (100, 3))


def text(head: str, rows: Sequence[tuple[str, ...]]) -> str:
    """A table, as Markdown; all columns but the last one are numbers."""
    columns = head.split(", ")
    return markdown([columns, *rows], {len(columns) - 1})


def _here(clients: int, servers: int, copies: int) -> Shape:
    """A shape as it is measured here: all programs on one core, and all servers on another one."""
    return Shape(clients, servers, copies, near=0.0, client_processors=1, server_processors=1)


def tables(measured: dict[str, Any]) -> dict[str, str]:
    """The tables of the page."""
    price = costs(measured)
    checked = []
    for name in CHECKED:
        number, many, copies = map(int, name.split())
        said = plan(_here(number, many, copies), price)
        real = measured["checked"][name]
        checked.append(
            (
                *name.split(),
                *(f"{real[each] * 1e6:,.0f}" for each in ("client", "server")),
                f"{real['throughput']:,.0f}",
                f"{price.of_client(copies) / real['client']:.2f}",
                *(f"{getattr(said, e) / real[e]:.2g}" for e in ("throughput", "median", "p99")),
            )
        )
    why = measured["why"]
    in_turns = [
        [
            what,
            *(f"{why[name][each] * 1e6:,.0f}" for each in ("client", "server")),
            *(f"{why[name][f'{each} switches']:.1f}" for each in ("client", "server")),
        ]
        for what, name in (
            ("eight programs at the same time", "8 1 1"),
            ("eight programs in turns", IN_TURNS),
            ("one program", "1 1 1"),
            ("one program, on the core of the server", ONE_CORE),
            ("one program on gevent", IN_HUB),
        )
    ]
    found = {
        "costs": text(
            "µs, what",
            [
                (f"{price.message * 1e6:.0f}", "a server: a request with its answer, or a release"),
                (f"{price.wake * 1e6:.0f}", "a server: in addition, if it was idle"),
                (f"{price.fixed * 1e6:.0f}", "a client: a transaction"),
                (f"{price.each * 1e6:.0f}", "a client: for each server of the lock"),
                (f"{NEAR * 1e6:.0f}", "a message within a data centre (assumed)"),
                (f"{FAR * 1e6:,.0f}", "a message to another region (assumed)"),
            ],
        ),
        "checked": text(
            "programs, servers, copies, programs' µs, servers' µs, measured a second, model: programs' µs, throughput, median, p99",
            checked,
        ),
        "in turns": markdown(
            [
                ["", "a program's µs", "a server's µs", "switches", "at servers"],
                *in_turns,
            ],
            {0},
        ),
        "most": text(
            "servers, copies, locks a second, note",
            [
                (
                    str(many),
                    str(copies),
                    f"{capacity(Shape(10**9, many, copies), price):,.0f}",
                    "a majority of three"
                    if copies == 3
                    else "nothing is kept if a server goes down",
                )
                for many, copies in PLACES
            ],
        ),
    }
    for regions, title in ((1, "one data centre"), (3, "three regions")):
        rows = []
        for many, copies in PLACES:
            for number in CLIENTS:
                said = plan(Shape(number, many, copies, RATE, regions), price)
                rows.append(
                    (
                        str(many),
                        str(copies),
                        *(f"{each:,.0f}" for each in (number, said.throughput)),
                        *(f"{each * 1e3:,.2f}" for each in (said.median, said.p99)),
                        *(f"{each:.1%}" for each in (said.server, said.link)),
                        said.bottleneck,
                    )
                )
        found[title] = text(
            "servers, copies, clients, transactions a second, median ms, p99 ms, busy server, link, bottleneck",
            rows,
        )
    return found


def pictures(measured: dict[str, Any]) -> dict[str, str]:
    """The plots of the page, by the names of their files."""
    price = costs(measured)
    lines = []
    for kind, (many, copies) in enumerate(((3, 3), (10, 3), (100, 3), (100, 1))):
        points = [(float(n), plan(Shape(n, many, copies, RATE), price).throughput) for n in CLIENTS]
        lines.append(
            Line(f"{many} servers, {copies} cop{'y' if copies == 1 else 'ies'}", points, kind)
        )
    late = [
        Line(
            f"{many} servers, {'three regions' if regions == 3 else 'one place'}",
            [
                (float(n), plan(Shape(n, many, 3, RATE, regions), price).median * 1e3)
                for n in CLIENTS
            ],
            kind,
            dashed=regions == 3,
        )
        for kind, many in enumerate((3, 100))
        for regions in (1, 3)
    ]
    across = "programs, with a transaction a second each"
    return {
        "scale-throughput.svg": plot(
            lines,
            across,
            "transactions a second",
            "Transactions a second, against the number of programs",
        ),
        "scale-latency.svg": plot(
            late,
            across,
            "ms for a transaction (median)",
            "Milliseconds of a transaction, against the number of programs",
        ),
    }


def main() -> int:
    """Measure, write the page, or print its tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure costs anew")
    parser.add_argument("--write", action="store_true", help="write the page and its plots")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        client(*json.loads(given.client))
        return 0
    if given.measure:
        FILE.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    measured = json.loads(FILE.read_text(encoding="utf-8"))
    if given.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(rewritten(page, tables(measured)), encoding="utf-8")
        for name, picture in pictures(measured).items():
            (IMAGES / name).write_text(picture, encoding="utf-8")
    elif not given.measure:
        print(*(f"{name}\n{each}\n" for name, each in tables(measured).items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
