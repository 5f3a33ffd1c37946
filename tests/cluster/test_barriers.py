"""`Barrier` of programs that share servers: killed parties, who disagrees, a server that is lost."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, Servers
from tests.helpers import EXPLORE, SEED, eventually

NOTICED = 1.0  # seconds within which the death of a program is noticed
PARTY = """
import sys, locks
barrier = locks.Barrier(("start",), {parties}{more}, label="{name}")
for line in sys.stdin:
    if line.strip() == "who":
        print(*[each.client.split()[0] for each in barrier.waiting()], flush=True)
        continue
    try:
        print(barrier.wait(float(line)), flush=True)
    except locks.LocksError as error:
        print(type(error).__name__, error, flush=True)
"""
STORM = """
import os, random, sys, time, locks
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
def say(*what):
    os.write(log, (" ".join(map(str, (time.monotonic(), sys.argv[2], *what))) + "\\n").encode())
barrier = locks.Barrier(("storm",), 3)
rng = random.Random(sys.argv[2])
while True:
    say("comes")
    try:
        said = barrier.wait(None if rng.random() < 0.8 else rng.expovariate(20))
        say("passes", said)
    except locks.LocksError as error:
        say("gives-up", type(error).__name__)
"""

Start = Callable[..., "Program"]


class Program:
    """A program that comes to a barrier each time that it is told so."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, what: object) -> None:
        """Tell it to come, and how long to wait; or to say who waits there."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def said(self) -> str:
        """What it says next."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        if not said and self.process.poll() is not None:
            assert self.process.stderr is not None
            pytest.fail(self.process.stderr.read())
        return said

    def until_there(self, *names: str) -> None:
        """Wait until it sees just these waiting."""
        deadline = time.monotonic() + LIMIT
        said = ""
        while said.split() != list(names):
            assert time.monotonic() < deadline, said
            self.tell("who")
            said = self.said()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """The lock servers."""
    with World() as world:
        yield Servers(world)


@pytest.fixture
def start(servers: Servers) -> Iterator[Start]:
    """Start a program; all of them are killed at the end."""
    programs = []

    def begin(name: str, parties: int = 3, more: str = "", by: Servers = servers) -> Program:
        code = PARTY.format(parties=parties, more=more, name=name)
        programs.append(by.program(code))
        return Program(programs[-1])

    yield begin
    for program in programs:
        program.kill()
        program.communicate(timeout=LIMIT)


def test_programs_meet_and_killed_ones_do_not_count(start: Start) -> None:
    """The first one is killed, and another one; their places are free, and who comes then passes with the rest."""
    first, second, third, fourth, looks = map(
        start, ("first", "second", "third", "fourth", "looks")
    )
    elsewhere = start("elsewhere", 2, ", nodes=['c@127.0.0.1', 'b@127.0.0.1']")
    other = start("other", 2)
    first.tell(LIMIT)
    looks.until_there("first")
    second.tell(LIMIT)
    looks.until_there("first", "second")
    first.process.kill()
    looks.until_there("second")
    third.tell(LIMIT)
    looks.until_there("second", "third")
    third.process.kill()
    looks.until_there("second")
    looks.tell(0.1)
    assert looks.said().startswith("LockTimeout timed out after ")
    other.tell(1)
    assert "the clients that wait there use 3" in other.said()
    elsewhere.tell(0)
    assert elsewhere.said().startswith("LockTimeout timed out after ")
    fourth.tell(LIMIT)
    looks.until_there("second", "fourth")
    looks.tell(0)
    assert [program.said() for program in (second, fourth, looks)] == ["0", "1", "2"]
    for program in (second, fourth, looks):
        program.tell(LIMIT)
    assert sorted(program.said() for program in (second, fourth, looks)) == ["0", "1", "2"]


def test_the_server_is_lost() -> None:
    """Who waits there is told that it is not known whether others have passed; who comes then, that nobody serves."""
    with World() as world, contextlib.ExitStack() as stack:
        servers = Servers(world, ["a@127.0.0.1"], net_ticktime=20)
        programs = []
        for name in ("one", "two"):
            process = servers.program(PARTY.format(parties=3, more="", name=name))
            stack.callback(process.communicate)
            stack.callback(process.kill)
            programs.append(Program(process))
        one, two = programs
        one.tell(LIMIT)
        two.until_there("one")
        two.tell(LIMIT)
        while len((seen := servers.run(LOOK)).split()) < 2:
            assert "Error" not in seen
        servers.processes[0].kill()
        for program in programs:
            assert program.said().startswith("BrokenBarrier barrier start is broken")
            program.tell(0.1)
            assert program.said().startswith("CannotServe")


@pytest.mark.explore
def test_a_host_that_hangs() -> None:
    """The last one comes, and goes when its time is over and a moment more; the host, awake again, waits for another one."""
    with World() as world, contextlib.ExitStack() as stack:
        servers = Servers(world, ["a@127.0.0.1"], net_ticktime=60)
        programs = []
        for name in ("host", "other", "third"):
            process = servers.program(PARTY.format(parties=2, more="", name=name))
            stack.callback(process.communicate)
            stack.callback(process.kill)
            programs.append(Program(process))
        host, other, third = programs
        host.tell(LIMIT)
        other.until_there("host")
        host.process.send_signal(signal.SIGSTOP)
        other.tell(0.1)
        assert other.said().startswith("LockTimeout timed out after ")
        other.until_there("host")
        host.process.send_signal(signal.SIGCONT)
        third.tell(LIMIT)
        assert sorted([host.said(), third.said()]) == ["0", "1"]


LOOK = """
import locks
print(*[each.client.split()[0] for each in locks.Barrier(("start",), 3).waiting()])
"""


def entries(log: Path) -> list[tuple[float, int, str]]:
    """What the programs have said: when, which of them, and what."""
    found = []
    for line in log.read_text().splitlines():
        at, who, what, *_ = line.split()
        found.append((float(at), int(who), what))
    return sorted(found)


def passes(log: Path) -> Counter[int]:
    """How often each of the programs has passed."""
    return Counter(who for _, who, what in entries(log) if what == "passes")


def check(log: Path, killed: dict[int, float], parties: int) -> int:
    """For each who has passed: were so many there at one moment of its wait? Returns how many have."""
    came: dict[int, float] = {}
    waits: list[tuple[float, float, bool]] = []
    for at, who, what in entries(log):
        if what == "comes":
            came[who] = at
        else:
            waits.append((came.pop(who), at, what == "passes"))
    waits += [(at, killed[who] + NOTICED, False) for who, at in came.items()]
    waits.sort()
    for begin, end, passed in waits:
        if passed:
            there = [each for each in waits if each[0] <= end and each[1] >= begin]
            most = max(
                sum(first <= moment <= last for first, last, _ in there)
                for moment, _, _ in there
                if begin <= moment
            )
            assert most >= parties, f"{most} were there between {begin} and {end}"
    return sum(passed for _, _, passed in waits)


@pytest.mark.explore
def test_storm(servers: Servers, tmp_path: Path) -> None:
    """Programs come again and again, some give up, some are killed: each who passes has met enough others."""
    rng = random.Random(SEED)
    log = tmp_path / "log"
    log.touch()
    number = 0
    programs: dict[int, subprocess.Popen[str]] = {}
    killed: dict[int, float] = {}
    end = time.monotonic() + (120 if EXPLORE else 10)
    try:
        while time.monotonic() < end:
            while len(programs) < 5:
                programs[number] = subprocess.Popen(
                    [sys.executable, "-c", STORM, str(log), str(number)],
                    env=servers.environment(),
                    text=True,
                )
                number += 1
            time.sleep(rng.expovariate(1))  # the storm's own pace
            victim = rng.choice(list(programs))
            program = programs.pop(victim)
            program.kill()
            program.wait()
            killed[victim] = time.monotonic()
        before = passes(log)  # now nobody dies any more, and all of them go on
        eventually(lambda: all(passes(log)[who] > before[who] for who in programs))
    finally:
        for victim, program in programs.items():
            program.kill()
            program.wait()
            killed[victim] = time.monotonic()
    print(f"{check(log, killed, 3):,} passes of {number} programs")
