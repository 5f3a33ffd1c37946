"""A soak: all mechanisms, mixed, under faults, for as long as you like.

    python -m tests.cluster.soak --minutes 20 --seed 4711

Real processes on loopback: lock servers, and programs (`Client.toil` in `tests.cluster.worker`) that lock one or two of a few ids by
majority, in any order, and increase numbers in files that fence (`tests.cluster.ledger`), and stand in an election, whose leader does so
with its term. Each program does all else, too (`tests.cluster.mixed`): tasks of an event loop lock the same ids, and so do Conditions
within blocks of an RLock; owners and generators are in several threads; there are a semaphore, work that is done once, an ownership, and watches.
One program stops its node every few seconds beside all of that, and forks. First there are 3 servers and programs that are connected with each other, then 5, and client nodes. Meanwhile
processes are killed and restarted, or stopped for a while; links are cut, stalled in one direction or both, or slow;
clocks are wrong (by less than what decision 0005 assumes: the time from one start to another one's restart).
A node that knows the cookie and does its worst, strangers, and programs that come and go are there all the time
(`tests.cluster.misbehaviour`), and stay when everything else heals.

Of each half minute the last twelve seconds have no faults. Nobody is cut off or paused then, so nobody may take itself for a holder or an owner
beside another one.

At the end all is mended: each program must get each lock, each mechanism must go on, somebody must lead, and nothing may be left of what was.
Then what holders have put down is judged:

* *Tokens rise.* Whoever had a lock after another one had released it has a larger token, unless its grant was delayed on its way, and it found
  at its first look that it had lost the lock. No two have the same.
* *The resource is safe*: `Ledger` refuses who comes with a smaller token than one that was seen, and notices an increment that got lost.
* *Two holders.* A majority grants a lock to one at a time. A holder that was cut off or paused may take itself for the holder, at most
  `net_ticktime` longer than that, and than it was paused. Longer is wrong.
* *Owners.* `docs/ownership.md` promises that tokens rise from owner to owner, so that the resource can refuse outdated ones: each group has a
  `Ledger`. Two have tasks of one group at once only if one of them is cut off or paused and has not noticed: not without faults, and
  otherwise no longer than two holders (`net_ticktime` is when a node notices).
* *Nobody is stuck*: no wait takes a minute, unless the machine was too busy meanwhile.
* *Once*: no work is done twice, begun after it was done, or called done when it was not; servers keep state files.
* *Nothing grows*: file handles and threads of each process. What memory it has is printed, and what processor time it takes when there is nothing
  to do, before and after. The last server, the last program and the one that stops its node are never killed.

It prints the seed, and what was done when if anything is wrong, and returns 1. The seed gives the same faults, if not at the same moments.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.harness import Answer, Net, Process, Proxy, World
from tests.cluster.ledger import Broken, Ledger
from tests.cluster.mixed import COMES, GROUPS, KINDS
from tests.helpers import eventually

TICKTIME = 3.0  # seconds
WORKERS = 4
CLIENTS = 2  # of each worker
IDS = 4
WARM_UP = 2.0  # seconds before the first fault
AT_A_TIME = 3  # faults
HEALING = 60.0  # seconds after which somebody is stuck
CALM = 10.0  # seconds of work after healing, at most
ROUND, FAULTS_OF_IT = 30.0, 18.0  # seconds
IDLE = 5.0  # seconds of nothing to do, at most
ALL = "all of them"
CROWDED = 4.0 * (os.cpu_count() or 1)  # that want a processor; and
LATE = 0.5  # seconds by which a sleep may be too long; then the machine counts as paused
EVERY = 5.0  # seconds between two measurements
LONGEST = 5  # processes whose growth is judged
MORE = 25  # handles or threads by which a process may differ
LAST = 60  # lines of what was done that are printed
SHOWN = 10  # lines of what a process has written to standard error
SLACK = 3.0  # seconds; for processes that wait for a processor, and for how often silence is judged


# --- What must be true --------------------------------------------------------------------------


class Hold(NamedTuple):
    """One lock that was held.

    Attributes:
        lock_id: Which one.
        owner: Who held it.
        process: The name of its node.
        token: The fencing token.
        asked: When it was asked for.
        had: When it was there.
        sure: When the holder was told last that it is still there.
        gone: When it was released.
    """

    lock_id: int | str
    owner: str
    process: str
    token: int
    asked: float
    had: float
    sure: float
    gone: float


class Pause(NamedTuple):
    """A process that was stopped, from when until when; `ALL`: the machine was too busy for any."""

    process: str
    begin: float
    end: float


class Calm(NamedTuple):
    """A time without faults, and long enough after them: nobody is cut off or paused who has not noticed."""

    begin: float
    end: float


def violations(holds: Iterable[Hold], pauses: Sequence[Pause], calms: Sequence[Calm] = ()) -> Iterator[str]:  # fmt: skip
    """What is wrong, in words."""

    def allowed(process: str, begin: float, end: float) -> float:
        """Seconds from `begin` to `end` in which a process may not have noticed that it has lost a lock."""
        if any(calm.begin < end < calm.end for calm in calms):
            return 0
        return TICKTIME + SLACK + _paused(process, begin, end, pauses)

    by_id: dict[int | str, list[Hold]] = {}
    for hold in holds:
        by_id.setdefault(hold.lock_id, []).append(hold)
    for lock_id, each in by_id.items():
        if str(lock_id).startswith("group"):
            yield from _late(lock_id, each, allowed)
            continue
        yield from _order(lock_id, each)
        for first, second, seconds in overlaps(each):
            most = allowed(first.process, second.had, first.sure)
            if seconds > most:
                yield (
                    f"id {lock_id}: {first.owner} was told that it holds the lock {seconds:.2f} s after "
                    f"{second.owner} had it (at {second.had:.2f}); {most:.2f} s are allowed"
                )


def _order(lock_id: int | str, holds: Sequence[Hold]) -> Iterator[str]:
    owners: dict[int, str] = {}
    largest: Hold | None = None  # of those that are released
    released = sorted(holds, key=lambda hold: hold.gone)
    at = 0
    for hold in sorted(holds, key=lambda hold: hold.had):
        while at < len(released) and released[at].gone < hold.had:
            if largest is None or released[at].token > largest.token:
                largest = released[at]
            at += 1
        # A grant that was delayed on its way may come when the lock is lost already. Then the holder finds that when it looks first.
        is_late = largest is not None and hold.asked < largest.had and hold.sure <= hold.had
        if largest is not None and hold.token <= largest.token and not is_late:
            yield (
                f"id {lock_id}: {hold.owner} had the lock at {hold.had:.2f} with token {hold.token}; "
                f"{largest.owner} had released it at {largest.gone:.2f} with token {largest.token}"
            )
        if owners.setdefault(hold.token, hold.owner) != hold.owner:
            yield f"id {lock_id}: {owners[hold.token]} and {hold.owner} had token {hold.token}"


def _paused(process: str, begin: float, end: float, pauses: Iterable[Pause]) -> float:
    """How long a process was stopped between two times."""
    return sum(
        max(0.0, min(end, pause.end) - max(begin, pause.begin))
        for pause in pauses
        if pause.process in (process, ALL)
    )


def _late(group: int | str, tasks: Iterable[Hold], allowed: Callable[[str, float, float], float]) -> Iterator[str]:  # fmt: skip
    """Tasks that an owner begins after its successor has begun: it may not know of it, but not for longer than a holder."""
    owners: dict[int, str] = {}
    newest: Hold | None = None  # the first task of the newest owner
    for task in sorted(tasks, key=lambda task: task.had):
        if owners.setdefault(task.token, task.owner) != task.owner:
            yield f"{group}: {owners[task.token]} and {task.owner} had token {task.token}"
        if newest is None or task.token > newest.token:
            newest = task
        elif task.token < newest.token:
            most = allowed(task.process, newest.had, task.had)
            if (late := task.had - newest.had) > most:
                yield (
                    f"{group}: {task.owner} began a task with token {task.token} {late:.2f} s after {newest.owner} had begun one "
                    f"with token {newest.token} (at {newest.had:.2f}); {most:.2f} s are allowed"
                )


def overlaps(holds: Iterable[Hold]) -> Iterator[tuple[Hold, Hold, float]]:
    """Pairs of which the second one had the lock while the first one was told that it has it."""
    longest: Hold | None = None
    for hold in sorted(holds, key=lambda hold: hold.had):
        if longest is not None and longest.sure > hold.had:
            yield longest, hold, min(longest.sure, hold.gone) - hold.had
        if longest is None or hold.sure > longest.sure:
            longest = hold


class Job(NamedTuple):
    """What became of work that is done once.

    Attributes:
        job: Which work.
        token: The token of the run.
        what: `begun`; then `done` or `failed`, or nothing if its program was killed, or could not tell the servers; `told`: another
            one was told that this run has done it.
        at: When that was known.
    """

    job: int
    token: int
    what: str
    at: float


def twice(jobs: Iterable[Job]) -> Iterator[str]:
    """What is wrong with work that is done once."""
    by_job: dict[int, list[Job]] = {}
    for each in sorted(jobs, key=lambda each: each.at):
        by_job.setdefault(each.job, []).append(each)
    for job, events in by_job.items():
        done: Job | None = None
        tokens = {kind: {e.token for e in events if e.what == kind} for kind in ("begun", "failed")}
        for each in events:
            if each.what in ("begun", "done") and done is not None:
                yield f"job {job}: done at {done.at:.2f} with token {done.token}, and then {each}"
            if each.what == "done":
                done = each
            if each.what == "told" and each.token in tokens["failed"]:
                yield f"job {job}: called done, but that run has failed: {each}"
            if each.what == "told" and each.token not in tokens["begun"]:
                yield f"job {job}: called done, but there was no such run: {each}"
            if each.what == "told" and done is not None and each.token != done.token:
                yield f"job {job}: done with token {done.token}, but {each}"


class Size(NamedTuple):
    """What a process has: KiB of memory, file handles, threads; and the seconds of processor time that it has taken."""

    memory: int
    files: int
    threads: int
    time: float


def size_of(pid: int) -> Size | None:
    """What a process has; `None` if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        found = dict(line.split(":", 1) for line in status.splitlines())
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        taken = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        return Size(int(found["VmRSS"].split()[0]), files, int(found["Threads"]), taken)
    except (OSError, KeyError):
        return None


# --- One world ----------------------------------------------------------------------------------


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


class Soak:
    """One world.

    Args:
        world: What ends its processes.
        servers: How many lock servers.
        seed: For all that is random.
        seconds: How long faults come.
        meshed: Whether the programs are connected with each other; otherwise they are client nodes.
        strangers: How many idle sockets are kept at each door.
        skew: How wrong clocks are, in seconds, at most.
        cheats: Whether one client writes without a lock, which must be found.
    """

    def __init__(
        self,
        world: World,
        *,
        servers: int,
        seed: int,
        seconds: float,
        meshed: bool,
        strangers: int,
        skew: float,
        cheats: bool = False,
    ) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.seed, self.seconds = seed, seconds
        self.meshed, self.cheats = meshed, cheats
        self.strangers = strangers
        self.disturbers: list[Process] = []
        self.folder = world.folder / "soak"
        self.folder.mkdir()
        self.servers = [f"s{n}@127.0.0.1" for n in range(1, servers + 1)]
        self.workers = [f"w{n}@127.0.0.1" for n in range(1, WORKERS + 1)]
        names = (*self.servers, *self.workers)
        self.skews = {name: round(self.chance.uniform(-skew, skew), 3) for name in names}
        self.begun = time.monotonic()
        self.done: list[str] = []
        self.pauses: list[Pause] = []
        self.answers: list[Answer] = []
        self.counts: Counter[str] = Counter()
        self.end = 0.0
        self.calms: list[Calm] = []
        self.sizes: dict[tuple[str, int], list[tuple[float, Size]]] = {}
        self.measured = 0.0

    def note(self, what: str) -> None:
        """Put down what is done."""
        self.done.append(f"{time.monotonic():.2f} (+{time.monotonic() - self.begun:.1f} s) {what}")

    def start(self) -> None:
        """Start all processes."""
        self.net = Net(
            self.world, self.servers, self.workers,
            net_ticktime=TICKTIME, meshed=self.meshed, skews=self.skews, patched=self.workers[1:2], named=True,
        )  # fmt: skip
        self.idle("before")
        at = [f"{name}=127.0.0.1:{self.net.there[name].address[1]}" for name in self.servers]
        given = [f"--idle={self.strangers}", "--half=20", f"--seed={self.seed}"]
        for kind in ("any", "strangers", "churn"):
            command = ["tests.cluster.misbehaviour", kind, *at, *given]
            self.disturbers.append(Process(f"{kind} (disturbs)", command))
        self.world.processes += self.disturbers

    def come(self) -> None:
        """Start the program that stops its node, with links of its own."""
        links = {name: self.world.proxy(self.net.there[name].address) for name in self.servers}
        self.net.links |= {frozenset((name, COMES)): link for name, link in links.items()}
        given = [str(self.folder), self.end, IDS, self.chance.randrange(10**9), *self.servers]
        settings = {
            "LOCKS_SERVERS": ",".join(link.peer(name) for name, link in links.items()),
            "LOCKS_COOKIE_FILE": str(self.world.cookie_file),
            "LOCKS_NET_TICKTIME": str(TICKTIME),
        }
        self.comes = Process(COMES, ["tests.cluster.mixed", *map(str, given)], 0, settings)
        self.world.processes.append(self.comes)

    def toil(self, name: str, until: float) -> None:
        """Let the clients of a worker work."""
        for number in range(CLIENTS):
            given: dict[str, Any] = {"folder": str(self.folder), "nodes": self.servers}
            given |= {"until": until, "ids": IDS, "seed": self.chance.randrange(10**9)}
            given["cheats"] = self.cheats and name == self.workers[0] and number == 0
            self.answers.append(self.net.there[name].ask("toil", client=f"c{number}", **given))

    def run(self) -> list[str]:
        """Soak it, mend it, and judge; returns what is wrong."""
        self.start()
        self.begun = time.monotonic()
        self.end = self.begun + self.seconds
        self.note(f"seed {self.seed}; clocks {self.skews}")
        for name in self.workers:
            self.begin_work(name)
        self.come()
        time.sleep(min(WARM_UP, self.seconds / 4))
        self.disturb()
        return self.judge(self.heal())

    def begin_work(self, name: str) -> None:
        """Let a worker work, and stand for election."""
        self.work(name, self.end)
        self.net.there[name].ask("lead", folder=str(self.folder), nodes=self.servers)

    def work(self, name: str, until: float) -> None:
        """Let a worker do all kinds of work."""
        self.toil(name, until)
        for kind in KINDS:
            if kind == "tasks" and name in self.workers[1:2]:
                continue  # gevent's patched programs have no event loops
            given: dict[str, Any] = {"folder": str(self.folder), "nodes": self.servers, "ids": IDS}
            given |= {"until": until, "seed": self.chance.randrange(10**9)}
            self.answers.append(self.net.there[name].ask("mix", client=kind, kind=kind, **given))

    # --- Faults

    def begin_fault(self, busy: set[Any]) -> Fault | None:
        """Begin a fault, if what it hits is not hit by another one."""
        targets, what, begin, mend = self.chance.choice(FAULTS)(self, self.chance)
        if busy & targets:
            return None
        long = self.chance.random() < 0.15
        seconds = self.chance.uniform(2, 8) if long else self.chance.uniform(0.1, 2)
        self.note(f"{what} for {seconds:.1f} s")
        self.counts[what.split()[0]] += 1
        begin()
        return Fault(what, targets, time.monotonic() + seconds, mend)

    def disturb(self) -> None:
        """Let faults come and go until the end, with calm times between."""
        active: list[Fault] = []
        mended = time.monotonic()
        while time.monotonic() < self.end or active:
            now = time.monotonic()
            self.measure()
            calm = now >= self.end or (now - self.begun) % ROUND > FAULTS_OF_IT
            for fault in [each for each in active if each.until <= now or calm]:
                active.remove(fault)
                self.note(f"mended: {fault.what}")
                fault.mend()
                mended = time.monotonic()
            if not calm and len(active) < AT_A_TIME:
                busy = {target for fault in active for target in fault.targets}
                begun = self.begin_fault(busy)
                active += [begun] if begun is not None else []
            seconds, before = self.chance.uniform(0.05, 0.5), time.monotonic()
            time.sleep(seconds)
            if time.monotonic() - before > seconds + LATE or os.getloadavg()[0] > CROWDED:
                mended = time.monotonic()
                self.note(f"the machine was too busy for {mended - now:.1f} s")
                self.pauses.append(Pause(ALL, now, mended))
            elif not active and before > mended + TICKTIME + SLACK:
                self.calms.append(Calm(before, time.monotonic()))

    def measure(self) -> None:
        """Note what each process has, every few seconds."""
        if (now := time.monotonic()) < self.measured + EVERY:
            return
        self.measured = now
        for name, process in {**self.net.there, COMES: self.comes}.items():
            if (size := size_of(process.process.pid)) is not None:
                self.sizes.setdefault((name, process.process.pid), []).append((now, size))

    def idle(self, when: str) -> None:
        """Print what the processes have, and what processor time they take, while there is nothing to do."""
        there = {name: each.process.pid for name, each in self.net.there.items()}
        seconds = min(IDLE, self.seconds / 4)
        time.sleep(seconds)  # servers close the sockets of strangers that have gone
        before = {name: size_of(pid) for name, pid in there.items()}
        time.sleep(seconds)
        for name, pid in there.items():
            if (first := before[name]) and (last := size_of(pid)):
                share = (last.time - first.time) / seconds
                print(f"  idle, {when}: {name} {share:.1%} of a processor, {last}", flush=True)

    def grown(self) -> Iterator[str]:
        """Print what the processes that lived longest have had; yields what has grown."""
        several = [each for each in self.sizes.items() if len(each[1]) > 3]
        for (name, pid), sizes in sorted(several, key=lambda each: -len(each[1]))[:LONGEST]:
            at = len(sizes) // 4  # strangers may come after the first measurement
            early, late = sizes[at : 2 * at], sizes[-at:]
            first, last = [
                Size(*[sorted(values)[len(values) // 2] for values in zip(*[s for _, s in some], strict=True)])
                for some in (early, late)
            ]  # fmt: skip
            print(f"  {name} ({pid}), {sizes[-1][0] - sizes[0][0]:.0f} s: {first} -> {last}")
            print("    KiB:", *(each.memory for _, each in sizes[:: max(1, len(sizes) // 12)]))
            if last.files > first.files + MORE or last.threads > first.threads + MORE:
                yield f"{name} has grown from {first} to {last}"

    def heal(self) -> list[str]:
        """All faults are over: see that everybody goes on; returns who is stuck."""
        self.note("all faults are over")
        stuck = []
        try:
            self.net.until_whole(HEALING)
        except AssertionError as error:
            stuck.append(f"not connected again: {error}")
        for answer in self.answers:
            try:
                self.counts.update(answer.get(2 * HEALING))
            except AssertionError as error:
                stuck.append(f"a client does not end: {error}")
            except BaseException as error:  # it was killed
                if not answer.future.cancelled():
                    stuck.append(f"a client ended with {error!r}")
        try:
            if code := self.comes.process.wait(2 * HEALING):
                stuck.append(f"{COMES} has ended with {code}")
            else:
                found = json.loads((self.folder / "counts").read_text()).items()
                self.counts.update({f"{what}, beside stop": count for what, count in found})
        except subprocess.TimeoutExpired:
            stuck.append(f"{COMES} does not end")
        left: list[str] = []

        def nothing_left() -> bool:
            looks = self.net.there[self.workers[0]]
            ids = [*(["soak", number] for number in range(IDS)), ["units"], ["job"]]
            for lock_id, name in itertools.product(ids, self.servers):
                given: dict[str, Any] = {"lock_id": lock_id, "node": name}
                left[:] = looks.do("requests", client="looks", **given)
                if left:
                    return False
            return True

        try:
            eventually(nothing_left, HEALING)
        except AssertionError:
            stuck.append(f"requests that are left: {left}")
        for name, number in itertools.product(self.workers, range(IDS)):
            worker = self.net.there[name]
            try:
                worker.do("begin", client="last", await_nodes=True)
                given = {"lock_id": ["soak", number], "nodes": self.servers, "require": "majority"}
                worker.do("lock", client="last", timeout=HEALING, **given)
                worker.do("end", client="last")
            except Exception as error:
                stuck.append(f"{name} does not get id {number}: {error!r}")
        return stuck

    def go_on(self) -> list[str]:
        """Let everybody work until all goes on; returns what does not."""
        groups = [Ledger(self.folder / f"group-{number}") for number in range(GROUPS)]
        before = [each.check() for each in groups]
        counts, end, still = Counter[str](), time.monotonic() + HEALING, ["nobody has worked"]
        while still and time.monotonic() < end:
            self.answers = []
            for name in self.workers:
                self.work(name, time.monotonic() + min(CALM, self.seconds / 2))
            for answer in self.answers:
                counts.update(answer.get(HEALING))
            still = [f"nobody does {kind}: {counts}" for kind in KINDS if not counts[kind]]
            after = [each.check() for each in groups]
            still += [f"group {n} has no owner" for n in range(GROUPS) if after[n] == before[n]]
        return still

    # --- What came of it

    def judge(self, wrong: list[str]) -> list[str]:
        """Check everything, and print how it went."""
        led, faulty = Ledger(self.folder / "led"), len(self.holds())
        try:
            before = led.check()
            eventually(lambda: led.check() > before, HEALING)
        except (AssertionError, Broken) as error:
            wrong.append(f"the election: {error}")
        wrong += self.go_on()
        for each in self.disturbers:
            each.kill()
        self.idle("after")
        holds = self.holds()
        if not 0 < faulty < len(holds):
            wrong.append("nobody has held a lock")
        busy = [pause.begin for pause in self.pauses if pause.process == ALL]
        for each in self.records():
            since = each.get("since", inf)
            if "broken" in each and not any(since < begin < since + HEALING for begin in busy):
                wrong.append(each["broken"])
        written = 0
        for path in itertools.chain(*map(self.folder.glob, ("ledger-*", "group-*"))):
            try:
                written += Ledger(path).check()
            except Broken as error:
                wrong.append(str(error))
        wrong += violations(holds, self.pauses, self.calms)
        wrong += twice(Job(**each) for each in self.records() if "job" in each)
        wrong += self.grown()
        for name, process in self.net.there.items():
            if (code := process.process.poll()) is not None:
                wrong.append(f"{name} has ended with {code}")
        print(
            f"{len(self.servers)} servers, seed {self.seed}, {self.seconds:.0f} s: {len(holds)} locks, {written} increments, "
            f"{len(wrong)} violations; {sum(end - begin for begin, end in self.calms):.0f} s were calm; {dict(sorted(self.counts.items()))}"
        )
        (self.folder / "faults").write_text("\n".join([*self.done, *map(repr, self.calms)]))
        if wrong:
            print(
                "  WRONG:", *wrong[:LAST], "  what was done when:", *self.done[-LAST:], sep="\n    "
            )
        return wrong

    def records(self) -> list[dict[str, Any]]:
        """What has been put down; one who was killed leaves half a line."""
        lines = [
            line
            for path in sorted(self.folder.glob("holds-*"))
            for line in path.read_text().splitlines(keepends=True)
        ]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def holds(self) -> list[Hold]:
        """What holders have put down."""
        return [Hold(**each) for each in self.records() if "lock_id" in each]


# --- Kinds of faults ------------------------------------------------------------------------------

Do = Callable[[], object]
Kind = tuple[frozenset[Any], str, Do, Do]


def _kill(soak: Soak, chance: random.Random) -> Kind:
    name = chance.choice([*soak.servers[:-1], *soak.workers[:-1]])

    def mend() -> None:
        soak.net.start(name)
        if name in soak.workers:
            soak.begin_work(name)

    return frozenset((name,)), f"SIGKILL {name}", lambda: soak.net.there[name].kill(), mend


def _restart(soak: Soak, chance: random.Random) -> Kind:
    name = chance.choice(soak.servers[:-1])

    def begin() -> None:
        soak.net.there[name].process.terminate()
        soak.net.there[name].process.wait(HEALING)

    return frozenset((name,)), f"SIGTERM {name}", begin, lambda: soak.net.start(name)


def _stop(soak: Soak, chance: random.Random) -> Kind:
    name = chance.choice([*soak.servers, *soak.workers])
    begun: list[float] = []

    def begin() -> None:
        begun.append(time.monotonic())
        soak.net.there[name].stop()

    def mend() -> None:
        soak.net.there[name].go_on()
        soak.pauses.append(Pause(name, begun[0], time.monotonic()))

    return frozenset((name,)), f"SIGSTOP {name}", begin, mend


def _on_links(what: str, do: Callable[[Proxy, random.Random], object]) -> Any:
    """A fault of one link, or of all links of a node."""

    def kind(soak: Soak, chance: random.Random) -> Kind:
        pairs, who = [chance.choice(list(soak.net.links))], ""
        if chance.random() < 0.4:
            who = chance.choice([*soak.servers, *soak.workers])
            pairs = [pair for pair in soak.net.links if who in pair]
        links, same = [soak.net.links[pair] for pair in pairs], chance.randrange(10**9)
        hit = frozenset((*pairs, *([who] if who else pairs[0])))
        name = f"{what} {f'all links of {who}' if who else ' - '.join(sorted(pairs[0]))}"
        return (
            hit,
            name,
            lambda: [do(link, random.Random(same)) for link in links],
            lambda: [link.heal() for link in links],
        )

    return kind


FAULTS: list[Callable[[Soak, random.Random], Kind]] = [
    *(_kill, _kill, _restart, _stop),
    _on_links("cut", lambda link, _: link.cut()),
    _on_links("stall", lambda link, same: link.stall(same.choice(["both", "forth", "back"]))),  # type: ignore[arg-type]
    _on_links("delay", lambda link, same: link.delay(same.choice([0.005, 0.05, 0.5]))),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--servers", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--strangers", type=int, default=200, help="idle sockets at each door")
    parser.add_argument("--skew", type=float, default=0.4, help="seconds that clocks are wrong by")
    parser.add_argument("--cheat", action="store_true", help="let one client write without a lock")
    parser.add_argument("--keep", help="a folder to which all that was put down is copied")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    os.environ["MALLOC_TRIM_THRESHOLD_"] = "131072"  # or glibc keeps what large messages took
    wrong = 0
    for number, servers in enumerate(given.servers):
        with World(shown=SHOWN) as world:
            soak = Soak(
                world,
                servers=servers,
                seed=given.seed + 1000 * number,
                seconds=60 * given.minutes / len(given.servers),
                meshed=number % 2 == 0,
                strangers=given.strangers,
                skew=given.skew,
                cheats=given.cheat,
            )
            wrong += len(soak.run())
            if given.keep:
                shutil.copytree(soak.folder, Path(given.keep, str(number)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
