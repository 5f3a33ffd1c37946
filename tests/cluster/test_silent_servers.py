"""One of three lock servers is stopped (SIGSTOP): it is connected, and says nothing. Nobody waits for it (decision 0015).

`net_ticktime` is far longer than the time that a program has. So whatever is answered here was not answered because the server
counted as lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, NAMES, Servers, hear, process, running, tell
from tests.helpers import eventually

NET_TICKTIME = 10 * LIMIT

BEGIN = """
import sys, threading, locks
locks.start()
with locks.transaction() as tx:
    tx.write_lock(("first", sys.argv[1]))
def elsewhere(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]
def timed_out(function):
    try:
        function()
    except locks.LockTimeout as error:
        return str(error)
print("ready", flush=True)
sys.stdin.readline()
"""
WORK = {
    "a try on a free lock, and on one that is held": """
assert locks.Lock(("try",)).acquire(blocking=False)
assert not elsewhere(lambda: locks.Lock(("try",)).acquire(blocking=False))
assert locks.RWLock(("rw",)).read_lock().acquire(blocking=False)
""",
    "a new lock, which is fenced": """
with locks.transaction() as tx:
    assert tx.write_lock(("new",)) > 0
    assert tx.read_lock(("new", 1)) > 0
""",
    "short time limits": """
with locks.transaction() as tx:
    tx.write_lock(("short",), timeout=5)
    def other():
        with locks.transaction() as other:
            other.write_lock(("short",), timeout=0.1)
    assert "held by MainThread" in elsewhere(lambda: timed_out(other))
""",
    "a try for what needs all servers": """
assert not locks.Semaphore(("licences",), 2).acquire(blocking=False)
""",
    "asyncio": """
import asyncio, locks.aio
async def main():
    async with locks.aio.transaction() as tx:
        await asyncio.wait_for(tx.write_lock(("aio",)), 10)
    assert await locks.aio.Lock(("aio try",)).acquire(blocking=False)
asyncio.run(main())
""",
    "questions": """
from locks.facts import gather
with locks.Lock(("asked",)):
    assert len(locks.holders(("asked",), timeout=None)) == 1
    assert locks.Lock(("asked",)).locked()
    found = gather.waits(timeout=300)
    assert [name for name, _ in found.silent] == [sys.argv[1]], found.silent
    assert len(gather.lock_servers(timeout=300).facts) == 2
    seen = threading.Event()
    locks.watch(("asked",), watcher=lambda view: seen.set())
    assert seen.wait(30)
""",
    "many locks at once": """
with locks.transaction() as tx:
    tx.lock_all(write=[("many", i) for i in range(20)], read=[("read", i) for i in range(20)])
""",
}
END = """
locks.stop()
print("done")
"""
FRESH = """
import locks
locks.start()
assert locks.Lock(("fresh try",)).acquire(blocking=False)
with locks.transaction() as tx:
    assert tx.write_lock(("fresh",)) > 0
locks.stop()
print("done")
"""
WAITS = """
import sys, locks
with locks.transaction() as tx:
    print("ready", flush=True)
    sys.stdin.readline()
    tx.write_lock(("handed on",))
    print("has it", flush=True)
    sys.stdin.readline()
print("done")
"""
CANDIDATE = """
import sys, threading, locks, locks_leader
locks.start()
print("ready", flush=True)
sys.stdin.readline()
ref = locks_leader.start(locks_leader.Behaviour, resource="job")
pause = threading.Event()
before = None
while True:
    while locks_leader.info(ref).leader in (None, before):
        pause.wait(0.01)
    before = locks_leader.info(ref).leader
    print(locks_leader.info(ref).role, flush=True)
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Three lock servers, of which a stopped one counts as there for longer than each test may last."""
    with World() as world:
        yield Servers(world, net_ticktime=NET_TICKTIME)


@contextmanager
def stopped(servers: Servers) -> Iterator[None]:
    """While the first server is stopped; at the end it still is, and goes on."""
    server = servers.processes[0]
    server.stop()
    try:
        yield
        stat = Path(f"/proc/{server.process.pid}/stat").read_text()
        assert stat.rpartition(")")[2].split()[0] == "T", "it has gone on meanwhile"
    finally:
        server.go_on()


@pytest.fixture(autouse=True)
def patient_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs, too, take a server that is silent for lost only when all is over."""
    monkeypatch.setenv("LOCKS_NET_TICKTIME", str(NET_TICKTIME))


@pytest.mark.slow
def test_nobody_waits_for_a_server_that_is_stopped(servers: Servers) -> None:
    """Each of these is the first that a program does after a server was stopped; a fresh program, too."""
    codes = [BEGIN + code + END for code in WORK.values()]
    with running(servers, *codes, arguments=NAMES[:1]) as programs, stopped(servers):
        for program in programs:
            tell(program)
        for what, program in zip(WORK, programs, strict=True):
            assert hear(program) == "done", what
        assert servers.run(FRESH) == "done\n"


def test_a_lock_is_handed_on_while_a_server_is_stopped(servers: Servers) -> None:
    """Also to a program that waited for it before, and has asked nobody for anything since."""
    with running(servers, WAITS, WAITS) as (holder, waiter):
        tell(holder)
        assert hear(holder) == "has it"
        tell(waiter)
        waits = "import locks\nwhile not locks.queue(('handed on',)).waiting: pass"
        assert servers.run(waits) == ""
        with stopped(servers):
            tell(holder)
            assert hear(holder) == "done"
            assert hear(waiter) == "has it"
            tell(waiter)
            assert hear(waiter) == "done"


def test_an_election_does_without_a_server_that_is_stopped(servers: Servers) -> None:
    """One of the candidates leads, and the next one when that is killed; the others follow."""
    with running(servers, *[CANDIDATE] * 3) as programs, stopped(servers):
        for program in programs:
            tell(program)
        roles = [hear(program) for program in programs]
        assert sorted(roles) == ["following", "following", "leader"]
        leader = programs[roles.index("leader")]
        leader.kill()
        others = [program for program in programs if program is not leader]
        assert sorted(hear(program) for program in others) == ["following", "leader"]


@pytest.mark.slow
def test_commands_name_the_server_that_is_stopped(servers: Servers) -> None:
    """They say what the others know, and who has not answered."""
    eventually(lambda: process(servers, "status").status == 0)  # all know what is done once
    with stopped(servers):
        for words in (["status"], ["ps"], ["graph"], ["deadlocks"], ["leaders"], ["groups"]):
            done = process(servers, *words, "--timeout", str(NET_TICKTIME))
            assert done.status == 0, (words, done.error)
            assert NAMES[0] in done.error + done.out, words
