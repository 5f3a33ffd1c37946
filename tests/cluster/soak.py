"""A soak: locks by majority with fencing tokens, under faults, for as long as you like.

    python -m tests.cluster.soak --minutes 20 --seed 4711
    python -m tests.cluster.soak --minutes 5 --servers 3 --bank 20

Real processes on loopback: first 3 lock servers for half of the time, then 5. Workers lock a few ids by
majority, take a fencing token, and increase numbers in files that fence (`tests.cluster.ledger`). Meanwhile
processes are killed and restarted, or stopped for a while; links are cut, stalled in one direction or both, or slow;
clocks are wrong (by less than what decision 0009 assumes: the time from one start to another one's restart).
A node with bugs that knows the cookie, strangers, and programs that come and go are there all the time
(`tests.cluster.pests`), and stay when everything else heals.

With `--bank` there are so many client nodes instead, which are connected with the lock servers alone. They
move money between accounts, each of which is locked by majority, in any order: so there are deadlocks. Half of
them wait for a minute, and who has waited for that long is stuck.

At the end all is mended: each worker must get each lock, and nothing may be left of what was. Then all holds
are checked (`tests.cluster.soak_checks`). It prints what was done when if anything is wrong, and returns 1. The
seed gives the same faults, if not at the same moments.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.harness import Answer, Process, Proxy, Server, Worker, World
from tests.cluster.ledger import Bank, Broken, Ledger
from tests.cluster.soak_checks import Hold, Pause, overlaps, percentiles, violations
from tests.helpers import eventually

TICKTIME = 3.0  # seconds
WORKERS = 3
CLIENTS = 2  # of each worker
IDS = 3
ACCOUNTS = 12
WARM_UP = 2.0  # seconds before the first fault
AT_A_TIME = 3  # faults
HEALING = 60.0  # seconds after which somebody is stuck
CALM = 3.0  # seconds of work after healing
LAST = 60  # lines of what was done that are printed
SHOWN = 10  # lines of what a process has written to standard error


class SoakWorker(Worker):
    """A worker that soaks."""

    program = "tests.cluster.soak_worker"


class Pest(Process):
    """Somebody who disturbs."""

    def __init__(self, kind: str, seed: int, number: int, servers: Sequence[Server]) -> None:
        given = [f"{each.name}={each.address[0]}:{each.address[1]}" for each in servers]
        command = ["tests.cluster.pests", kind, str(seed), str(number), *given]
        super().__init__(f"{kind} (pest)", command)

    def end(self) -> dict[str, int]:
        """Have it end; returns what it has done how often."""
        self._stdin.close()
        done: dict[str, int] = json.loads(self._stdout.readline() or "{}")
        return done


class Fault(NamedTuple):
    """A fault that goes on.

    Attributes:
        what: What it is.
        targets: What it is done to: nothing is done to that meanwhile.
        until: When it ends.
        mend: Ends it.
    """

    what: str
    targets: frozenset[Any]
    until: float
    mend: Callable[[], object]


class Outcome(NamedTuple):
    """What came of one world.

    Attributes:
        wrong: What is wrong.
        lines: What to print.
    """

    wrong: list[str]
    lines: list[str]


class Soak:
    """One world.

    Args:
        world: What ends its processes.
        servers: How many lock servers.
        seed: For all that is random.
        seconds: How long faults come.
        strangers: How many idle sockets are kept at each door.
        skew: How wrong clocks are, in seconds, at most.
        cheats: Whether one client writes without a lock, which must be found.
        bank: How many client nodes are in the bank, in place of the workers; 0 for no bank.
    """

    def __init__(
        self,
        world: World,
        *,
        servers: int,
        seed: int,
        seconds: float,
        strangers: int,
        skew: float,
        cheats: bool = False,
        bank: int = 0,
    ) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.seed = seed
        self.seconds = seconds
        self.strangers = strangers
        self.cheats = cheats
        self.bank = bank
        self.ids = ACCOUNTS if bank else IDS
        self.clients = 1 if bank else CLIENTS
        self.folder = Path(tempfile.mkdtemp(prefix="soak-"))
        self.servers = {f"s{n}@127.0.0.1": 0.0 for n in range(1, servers + 1)}
        self.workers = {f"w{n}@127.0.0.1": 0.0 for n in range(1, (bank or WORKERS) + 1)}
        for clocks in (self.servers, self.workers):
            for name in clocks:
                clocks[name] = round(self.chance.uniform(-skew, skew), 3)
        self.links: dict[frozenset[str], Proxy] = {}
        self.there: dict[str, Any] = {}
        self.ports: dict[str, int] = {}
        self.begun = time.monotonic()
        self.done: list[str] = []
        self.pauses: list[Pause] = []
        self.answers: list[Answer] = []
        self.counts: Counter[str] = Counter()
        self.end = 0.0

    # --- Its processes

    def note(self, what: str) -> None:
        """Put down what is done."""
        self.done.append(f"{time.monotonic():.2f} (+{time.monotonic() - self.begun:.1f} s) {what}")

    def start(self) -> None:
        """Start all processes."""
        for name in self.servers:
            self.start_server(name)
        for server, worker in itertools.product(self.servers, self.workers):
            self.links[frozenset((server, worker))] = self.world.proxy(self.there[server].address)
        for pair in () if self.bank else itertools.combinations(self.workers, 2):
            self.links[frozenset(pair)] = self.world.proxy()
        for name in self.workers:
            self.start_worker(name)
        self.until_whole()
        servers = [self.there[name] for name in self.servers]
        self.pests = [
            Pest(kind, self.seed + number, self.strangers, servers)
            for number, kind in enumerate(("peer", "strangers", "churn"))
        ]
        self.world.processes += self.pests

    def start_server(self, name: str) -> None:
        """Start a lock server, where it was before."""
        peers = [f"{other}:{port}" for other, port in self.ports.items() if other != name]
        self.there[name] = server = self.world.server(
            name,
            peers,
            port=self.ports.get(name, 0),
            net_ticktime=TICKTIME,
            skew=self.servers[name],
        )
        self.ports[name] = server.address[1]

    def start_worker(self, name: str) -> None:
        """Start a worker; the links that lead to it lead there from now on."""
        before = [] if self.bank else list(self.workers)[: list(self.workers).index(name)]
        peers = [self.link(name, other).peer(other) for other in (*self.servers, *before)]
        worker = SoakWorker(
            name,
            peers=peers,
            net_ticktime=TICKTIME,
            mesh=False,
            listen=not self.bank,
            skew=self.workers[name],
        )
        self.world.processes.append(worker)
        self.there[name] = worker
        if self.bank:
            return
        address = worker.address
        for other in self.workers:
            if other not in (*before, name):
                self.link(name, other).target = address

    def link(self, one: str, other: str) -> Proxy:
        """The link between two of them."""
        return self.links[frozenset((one, other))]

    def toil(self, name: str, until: float) -> None:
        """Let the clients of a worker work."""
        for number in range(self.clients):
            client = f"c{number}"
            arguments: dict[str, Any] = {
                "folder": str(self.folder),
                "until": until,
                "name": f"{name.split('@')[0]}/{client}",
                "nodes": list(self.servers),
                "ids": self.ids,
                "seed": self.chance.randrange(10**9),
                "bank": bool(self.bank),
            }
            if self.cheats and name.startswith("w1") and number == 0:
                arguments["cheats"] = True
            self.answers.append(self.there[name].ask("toil", client=client, **arguments))

    def until_whole(self) -> None:
        """Wait until each worker can ask all servers and all workers; client nodes, all servers."""
        names = {*self.servers} if self.bank else {*self.servers, *self.workers}
        for name in self.workers:
            eventually(
                lambda name=name: names <= set(self.there[name].do("alive", client="looks")),  # type: ignore[misc]
                HEALING,
            )

    # --- Faults

    def begin_fault(self, busy: set[Any]) -> Fault | None:
        """Begin a fault, if what it hits is not hit by another one."""
        chance = self.chance
        kind = chance.choice(FAULTS)
        targets, what, begin, mend = kind(self, chance)
        if busy & targets:
            return None
        long = chance.random() < 0.15
        seconds = chance.uniform(2, 8) if long else chance.uniform(0.1, 2)
        self.note(f"{what} for {seconds:.1f} s")
        self.counts[what.split()[0]] += 1
        begin()
        return Fault(what, targets, time.monotonic() + seconds, mend)

    def run(self) -> Outcome:
        """Soak it, mend it, and judge."""
        try:
            self.start()
            self.begun = time.monotonic()
            self.end = self.begun + self.seconds
            self.note(f"seed {self.seed}; clocks {self.servers | self.workers}")
            for name in self.workers:
                self.toil(name, self.end)
            self.wait(min(WARM_UP, self.seconds / 4))
            self.disturb()
            healed = self.heal()
            return self.judge(*healed)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def disturb(self) -> None:
        """Let faults come and go until the end."""
        active: list[Fault] = []
        while time.monotonic() < self.end or active:
            now = time.monotonic()
            for fault in [each for each in active if each.until <= now or now >= self.end]:
                active.remove(fault)
                self.note(f"mended: {fault.what}")
                fault.mend()
            if now < self.end and len(active) < AT_A_TIME:
                busy = {target for fault in active for target in fault.targets}
                begun = self.begin_fault(busy)
                active += [begun] if begun is not None else []
            self.wait(self.chance.uniform(0.05, 0.5))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def heal(self) -> tuple[list[str], float]:
        """All faults are over: see that everybody goes on. Returns who is stuck, and how long it took."""
        begin = time.monotonic()
        self.note("all faults are over")
        stuck = []
        nodes = list(self.servers)
        try:
            self.until_whole()
        except AssertionError as error:
            stuck.append(f"not connected again: {error}")
        for answer in self.answers:
            try:
                self.counts.update(answer.get(HEALING))
            except AssertionError as error:
                stuck.append(f"a client does not end: {error}")
            except BaseException as error:  # it was killed
                if not answer.future.cancelled():
                    stuck.append(f"a client ended with {error!r}")
        left: dict[str, list[str]] = {}

        def nothing_left() -> bool:
            looks = self.there[next(iter(self.workers))]
            for number, name in itertools.product(range(self.ids), nodes):
                left[name] = looks.do(
                    "requests", client="looks", lock_id=["soak", number], node=name
                )
                if left[name]:
                    return False
            return True

        try:
            eventually(nothing_left, HEALING)
        except AssertionError:
            stuck.append(f"requests that are left: {left}")
        whole = time.monotonic() - begin
        for name, number in itertools.product(self.workers, range(self.ids)):
            try:
                worker = self.there[name]
                worker.do("begin", client="last", await_nodes=True)
                given = {"lock_id": ["soak", number], "nodes": nodes, "require": "majority"}
                worker.do("lock", client="last", timeout=HEALING, **given)
                worker.do("end", client="last")
            except Exception as error:
                stuck.append(f"{name} does not get id {number}: {error!r}")
        return stuck, whole

    # --- What came of it

    def judge(self, stuck: list[str], whole: float) -> Outcome:
        """Check everything, and say how it went."""
        faulty = self.holds()
        calm_begin = time.monotonic()
        self.answers = []
        for name in self.workers:
            self.toil(name, calm_begin + CALM)
        for answer in self.answers:
            answer.get()
        done = {pest.name: pest.end() for pest in self.pests}
        wrong, holds = [*stuck], self.holds()
        if faulty == holds or not faulty:
            wrong.append("nobody has held a lock")
        for text in self.broken():
            wrong.append(text)
        written = 0
        kept: list[Ledger | Bank] = [Ledger(self.folder / f"ledger-{n}") for n in range(IDS)]
        for each in [Bank(self.folder / "bank", ACCOUNTS)] if self.bank else kept:
            try:
                written += each.check()
            except Broken as error:
                wrong.append(str(error))
        wrong += violations(holds, self.pauses, TICKTIME)
        for name in (*self.servers, *self.workers):
            code = self.there[name].process.poll()
            if code is not None:
                wrong.append(f"{name} has ended with {code}")
        both = [
            seconds
            for number in range(self.ids)
            for *_, seconds in overlaps(hold for hold in holds if hold.lock_id == number)
        ]
        times = {
            "under faults": [hold.had - hold.asked for hold in faulty],
            "afterwards": [hold.had - hold.asked for hold in holds if hold.asked > calm_begin],
        }
        memory = {name: _resident(self.there[name].process.pid) for name in self.servers}
        lines = [
            f"{len(self.servers)} servers, seed {self.seed}, {self.seconds:.0f} s: "
            f"{len(holds)} locks, {written} {'transfers' if self.bank else 'increments'}, {len(wrong)} violations",
            f"  what was done: {dict(self.counts)}",
            f"  who disturbed: {done}",
            f"  whole again after {whole:.1f} s; two took themselves for the holder {len(both)} times, "
            f"for {max(both, default=0.0):.2f} s at most",
            f"  memory of servers, MiB: {memory}",
        ]
        for what, values in times.items():
            found = percentiles(value * 1000 for value in values)
            shown = ", ".join(f"{key} {value:.1f}" for key, value in found.items())
            lines.append(f"  until a lock was there, {what}, ms: {shown}")
        if wrong:
            lines += ["  WRONG:", *(f"    {each}" for each in wrong[:LAST])]
            lines += ["  what was done when:", *(f"    {each}" for each in self.done[-LAST:])]
        return Outcome(wrong, lines)

    def _records(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.folder.glob("holds-*")):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # one who was killed leaves half a line
                    found.append(json.loads(line))
        return found

    def holds(self) -> list[Hold]:
        """What holders have put down."""
        return [Hold(**each) for each in self._records() if "broken" not in each]

    def broken(self) -> list[str]:
        """What the ledgers have found."""
        return [each["broken"] for each in self._records() if "broken" in each]


def _resident(pid: int) -> int:
    """The memory of a process, in MiB."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    sizes = [int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")]
    return sizes[0] // 1024 if sizes else 0


# --- Kinds of faults ------------------------------------------------------------------------------

Do = Callable[[], object]
Kind = tuple[frozenset[Any], str, Do, Do]


def _kill(soak: Soak, chance: random.Random) -> Kind:
    servers = [*soak.servers] * (len(soak.workers) // len(soak.servers) + 1)
    name = chance.choice([*servers, *soak.workers])

    def mend() -> None:
        if name in soak.servers:
            soak.start_server(name)
        else:
            soak.start_worker(name)
            soak.toil(name, soak.end)

    return frozenset((name,)), f"SIGKILL {name}", lambda: soak.there[name].kill(), mend


def _stop(soak: Soak, chance: random.Random) -> Kind:
    name = chance.choice([*soak.servers, *soak.workers])
    begun: list[float] = []

    def begin() -> None:
        begun.append(time.monotonic())
        soak.there[name].stop()

    def mend() -> None:
        soak.there[name].go_on()
        soak.pauses.append(Pause(name, begun[0], time.monotonic()))

    return frozenset((name,)), f"SIGSTOP {name}", begin, mend


def _some_links(soak: Soak, chance: random.Random) -> tuple[frozenset[Any], str, list[Proxy]]:
    if chance.random() < 0.4:  # all links of one node
        name = chance.choice([*soak.servers, *soak.workers])
        pairs = [pair for pair in soak.links if name in pair]
        return frozenset((name, *pairs)), f"all links of {name}", [soak.links[p] for p in pairs]
    pair = chance.choice(list(soak.links))
    return frozenset((pair, *pair)), " - ".join(sorted(pair)), [soak.links[pair]]


def _each(proxies: list[Proxy], do: Callable[..., object], *arguments: Any) -> Do:
    """Do the same to each of some links."""

    def done() -> None:
        for proxy in proxies:
            do(proxy, *arguments)

    return done


def _cut(soak: Soak, chance: random.Random) -> Kind:
    targets, what, proxies = _some_links(soak, chance)
    return (
        targets,
        f"cut {what}",
        _each(proxies, Proxy.cut),
        _each(proxies, Proxy.heal),
    )


def _stall(soak: Soak, chance: random.Random) -> Kind:
    targets, what, proxies = _some_links(soak, chance)
    direction: Any = chance.choice(["both", "forth", "back"])
    return (
        targets,
        f"stall-{direction} {what}",
        _each(proxies, Proxy.stall, direction),
        _each(proxies, Proxy.heal),
    )


def _slow(soak: Soak, chance: random.Random) -> Kind:
    targets, what, proxies = _some_links(soak, chance)
    seconds = chance.choice([0.005, 0.05, 0.5])
    return (
        targets,
        f"delay-{seconds} {what}",
        _each(proxies, Proxy.delay, seconds),
        _each(proxies, Proxy.heal),
    )


FAULTS: list[Callable[[Soak, random.Random], Kind]] = [_kill, _kill, _stop, _cut, _stall, _slow]


# --- The command line -----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--servers", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--strangers", type=int, default=200, help="idle sockets at each door")
    parser.add_argument("--skew", type=float, default=0.4, help="seconds that clocks are wrong by")
    parser.add_argument("--bank", type=int, default=0, help="so many client nodes move money")
    parser.add_argument("--cheat", action="store_true", help="let one client write without a lock")
    given = parser.parse_args(arguments)
    seed = random.randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    wrong = 0
    for number, servers in enumerate(given.servers):
        with World(shown=SHOWN) as world:
            outcome = Soak(
                world,
                servers=servers,
                seed=seed + 1000 * number,
                seconds=60 * given.minutes / len(given.servers),
                strangers=given.strangers,
                skew=given.skew,
                cheats=given.cheat,
                bank=given.bank,
            ).run()
            print("\n".join(outcome.lines), flush=True)
        wrong += len(outcome.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
