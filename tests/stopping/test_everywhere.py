"""`stop` beside each call: all kinds of callers, private locks, lock servers and the one of the machine, forks, the interpreter's end.

`beside` is the program. `make test` and `make slow` try some calls by some callers; with `LOCKS_EXPLORE=1` each call meets a hundred ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.cluster.servers import Machine, Servers
from tests.helpers import EXPLORE, ROOT, SEED

PATCHED = ("threads", "greenlets", "gevent actors", "threading actors")
PLAIN = ("threads", "gevent actors", "threading actors", "asyncio", "trio")
KINDS = [*((kind, False) for kind in PLAIN), *((kind, True) for kind in PATCHED)]
IDS = [f"{kind}, patched" if patched else kind for kind, patched in KINDS]
LIMIT = 3600 if EXPLORE else 120  # seconds that a program has
CYCLES = 100 if EXPLORE else 3
EVERY = 1 if EXPLORE else 6
ENDS = 60  # seconds in which a short program has ended


def run(
    environment: Mapping[str, str], *command: str, limit: float = ENDS, logs: bool = False
) -> str:
    """Run a program, which prints nothing to standard error; if it logs, no traceback."""
    done = subprocess.run(
        [sys.executable, *command],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    printed = "Traceback" in done.stderr if logs else bool(done.stderr)
    assert (done.returncode, printed) == (0, False), done.stderr[-5000:]
    return done.stdout


def beside(environment: Mapping[str, str], kind: str, patched: bool, number: int = 0) -> None:
    """Stop the node beside the calls."""
    if kind == "trio":
        pytest.importorskip("trio")
    command = ["-m", "tests.stopping.beside", "--kind", kind, f"--cycles={CYCLES}"]
    more = [f"--seed={SEED + number}", f"--every={EVERY}", *(["--patched"] if patched else [])]
    lines = run(environment, *command, *more, limit=LIMIT, logs=True).splitlines()
    said: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert said, "it has played no call"
    assert not [each for each in said if each["hangs"] or each["wrong"] or each["unexpected"]]


def alone() -> dict[str, str]:
    """The environment of a program with private locks."""
    return {**os.environ, "LOCKS_SERVERS": "here"}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "patched"), KINDS, ids=IDS)
def test_with_private_locks(kind: str, patched: bool) -> None:
    """Each call ends as `calls.CALLS` says."""
    beside(alone(), kind, patched, KINDS.index((kind, patched)))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "patched"), KINDS, ids=IDS)
def test_with_lock_servers(processes: Servers, kind: str, patched: bool) -> None:
    """The same, over three servers."""
    beside(processes.environment(), kind, patched, KINDS.index((kind, patched)))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "patched"), KINDS[:: 1 if EXPLORE else 4])
def test_with_the_server_of_the_machine(machine: Machine, kind: str, patched: bool) -> None:
    """The same, with `servers="local"`."""
    beside(machine.environment, kind, patched, KINDS.index((kind, patched)))


FORKS = """
import faulthandler, os, random, sys, threading, time
import locks, locks_leader

refused = locks.errors.NodeNotRunning
chance, over = random.Random(int(sys.argv[1])), False

def has(name):
    with locks.Lock((name, os.getpid()), timeout=20):
        pass

def stops():
    while not over:
        try:
            locks_leader.Election(f"e{os.getpid()}").start()
            has("a")
            locks.stop()
            locks.start()
        except locks.LocksError:
            pass

def locking():
    while not over:
        try:
            has("b")
        except locks.LocksError:
            pass

threads = [threading.Thread(target=each, daemon=True) for each in (stops, locking)]
for each in threads:
    each.start()
for _ in range(int(sys.argv[2])):
    time.sleep(chance.random() * 0.01)
    if not (pid := os.fork()):
        faulthandler.dump_traceback_later(20, exit=True)
        for _ in range(2):
            has("child")
            locks.stop()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"the child ended with the status {status}"
over = True
for each in threads:
    each.join(20)
    assert not each.is_alive()
"""
ENDS_BESIDE = """
import random, sys, threading, time
import locks, locks_leader

locks.start()

def stops():
    while True:
        try:
            locks_leader.Election("e").start()
            with locks.Lock(("a",)):
                locks.stop()
        except locks.LocksError:
            pass

def waits():
    while True:
        try:
            with locks.Owner("one"), locks.Lock(("w",)):
                with locks.Owner("two"), locks.Lock(("w",), timeout=100):
                    pass
        except locks.LocksError:
            pass

chance = random.Random(int(sys.argv[1]))
for each in (stops, waits):
    threading.Thread(target=each, daemon=True).start()
time.sleep(chance.random() * 0.05)
if chance.random() < 0.5:
    locks.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["here", "servers"])
def test_a_child_forked_in_the_middle_of_stop_begins_its_own_node(
    where: str, processes: Servers
) -> None:
    """Its locks work, it stops, and its parent goes on."""
    environment = alone() if where == "here" else processes.environment()
    run(environment, "-c", FORKS, str(SEED), "500" if EXPLORE else "10", limit=LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["here", "servers"])
def test_the_interpreter_ends_beside_stop_and_a_wait(where: str, processes: Servers) -> None:
    """At once, and without a word."""
    environment = alone() if where == "here" else processes.environment()
    for number in range(100 if EXPLORE else 2):
        run(environment, "-c", ENDS_BESIDE, str(SEED + number))


START = """
import socket, threading, time
import locks
from locks.program.default import running_node

hole = socket.create_server(("127.0.0.1", 0))  # takes connections, and never says anything
told = []

def start():
    try:
        locks.start(servers=[f"a@127.0.0.1:{hole.getsockname()[1]}"], cookie="c" * 20)
    except locks.errors.NodeNotRunning as error:
        told.append(str(error))

thread = threading.Thread(target=start)
thread.start()
while running_node() is None:
    time.sleep(0.001)
locks.stop()
begun = time.monotonic()
thread.join()
assert time.monotonic() - begun < 3, "it has waited for servers"
assert "was stopped" in told[0]
"""


def test_a_start_that_waits_for_servers_ends_with_stop() -> None:
    """It raises that its node was stopped, at once."""
    run(os.environ, "-c", START)


LEFT = """
import sys

if "--patched" in sys.argv:
    from gevent import monkey

    monkey.patch_all()

import gc, logging, os, threading, time
import gevent, pykka
from gevent._hub_local import get_hub_if_exists
import locks
from tests.stopping.calls import CALLS

logging.getLogger("locks").setLevel(logging.CRITICAL)
missing = {"servers"} if os.environ["LOCKS_SERVERS"] == "here" else set()
missing |= {"thread"} if "--patched" in sys.argv else set()
calls = [call for call in CALLS.values() if call.needs not in missing]

def caught(call):
    try:
        call.do()
    except (locks.LocksError, pykka.ActorDeadError):
        pass

def cycle():
    locks.start()
    for call in calls:
        if not call.waits:
            caught(call)
    threads = [threading.Thread(target=caught, args=(call,)) for call in calls if call.waits]
    for each in threads:
        each.start()
    time.sleep(0.02)
    while any(each.is_alive() for each in threads):
        locks.stop()
        time.sleep(0.005)
    locks.stop()

def counted():
    end = time.monotonic() + 10
    while any(t.name == "locks-home" for t in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.01)
    gc.collect()
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * 4
    objects = gc.get_objects()
    greenlets = sum(isinstance(each, gevent.Greenlet) and not each.dead for each in objects)
    hub = get_hub_if_exists()
    timers = 0 if hub is None else len(hub.__dict__.get("_locks_ends", ()))
    left = len(pykka.ActorRegistry.get_all())
    return len(objects), memory, threading.active_count(), len(os.listdir("/dev/fd")), greenlets, timers, left

cycles = int(sys.argv[1])
for _ in range(5 + cycles // 4):  # the memory rises by some MB once
    cycle()
before = counted()
for _ in range(cycles):
    cycle()
after = counted()
print(*((now - then) / cycles for now, then in zip(after, before)))
"""


def leaves_nothing(environment: Mapping[str, str], cycles: int, *more: str) -> None:
    """After many cycles of start, everything, stop: objects, memory, threads, file handles, greenlets, timers, actors."""
    # With an arena for each thread, what is free in each would be counted.
    environment = {**environment, "MALLOC_ARENA_MAX": "1"}
    said = run(environment, "-c", LEFT, str(cycles), *more, limit=LIMIT * 5, logs=True)
    objects, memory, *others = map(float, said.split())
    assert not any(others), others
    assert objects < 2 + 150 / cycles, objects  # what is loaded or kept once does not grow
    assert cycles < 200 or memory < 15, f"{memory} KiB a cycle"


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--patched",)])
def test_nothing_of_a_node_is_left(more: tuple[str, ...]) -> None:
    """Of calls that wait, too, and in the hub of a patched program, which lasts."""
    leaves_nothing(alone(), 200 if EXPLORE else 10, *more)


@pytest.mark.explore
@pytest.mark.parametrize("more", [(), ("--patched",)])
def test_nothing_of_a_node_is_left_over_servers(processes: Servers, more: tuple[str, ...]) -> None:
    """The same, over three servers."""
    leaves_nothing(processes.environment(), 200, *more)
