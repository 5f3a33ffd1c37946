"""Ten situations at night, with three servers and ten programs: each is found and mended by the commands of the page, in three at most.

The page is `docs/night.md`. This prints what an operator sees, and how long each situation took:

    python -m tests.cluster.test_night
"""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.cluster.commands import locks, running
from tests.cluster.harness import ROOT, World
from tests.cluster.servers import LIMIT, NAMES, Servers
from tests.helpers import eventually

PAGE = ROOT / "docs" / "night.md"
MOST = 3  # commands for a situation
HOLDER = """
import sys, locks
sys.argv[0] = {program!r}
tx = locks.original.begin_transaction([({wanted!r}, "write")], label={label!r})
print("ready", flush=True)
sys.stdin.readline()
"""
WAITER = """
import sys, locks
sys.argv[0] = {program!r}
print("ready", flush=True)
with locks.transaction(label={label!r}) as tx:
    tx.write_lock({wanted!r})
print("done", flush=True)
"""
STORM = """
import sys, threading, locks
sys.argv[0] = "shop.py"
barrier = threading.Barrier(2)
def work(*order):
    while True:
        barrier.wait()
        try:
            with locks.transaction(label="order") as tx:
                tx.write_lock(("stock", order[0]))
                barrier.wait()
                tx.write_lock(("stock", order[1]))
        except locks.DeadlockAborted:
            pass
threads = [threading.Thread(target=work, args=order) for order in ((1, 2), (2, 1))]
for each in threads: each.start()
print("ready", flush=True)
for each in threads: each.join()
"""
CANDIDATE = """
import sys, time, locks_leader
sys.argv[0] = "chief.py"
election = locks_leader.Election("chief", label={label!r})
election.start()
while {waits} and election.leadership is None: time.sleep(0.01)
print("ready", flush=True)
sys.stdin.readline()
"""
FORGED = "x\n2026-11-26 03:00:00 WARNING locks.nodes forged \x1b[31m"
QUIET = [
    HOLDER.format(program=f"quiet{number}.py", label=f"quiet {number}", wanted=("quiet", number))
    for number in range(6)
]


class Keeping(Servers):
    """Servers that keep what is done in a file."""

    def options(self, name: str) -> list[str]:
        """The file of each."""
        return [f"--state={self.world.folder / name}.state"]


class Night:
    """An operator, who runs commands and reads what they print.

    Args:
        servers: The servers.
        situation: What is planted.

    Attributes:
        transcript: The commands, each with what it printed.
    """

    def __init__(self, servers: Servers, situation: str) -> None:
        self.servers = servers
        self.situation = situation
        self.transcript: list[str] = []
        self.seconds = 0.0

    def run(self, *arguments: str) -> str:
        """A command of `locks`."""
        begun = time.monotonic()
        _, out, error = locks(self.servers, *arguments)
        self.seconds += time.monotonic() - begun
        quoted = [f'"{each}"' if " " in each else each for each in arguments]
        self.transcript.append(f"$ locks {' '.join(quoted)}\n{out}{error}")
        return out + error

    def act(self, command: str, do: Callable[[], object]) -> None:
        """Another command."""
        begun = time.monotonic()
        do()
        self.seconds += time.monotonic() - begun
        self.transcript.append(f"$ {command}\n")


def kill(night: Night, pid: str, number: signal.Signals = signal.SIGKILL) -> None:
    """The operator ends a program by the number that a command has named."""
    night.act(f"kill -{number.name[3:]} {pid}", lambda: os.kill(int(pid), number))


def leaked_lock(night: Night) -> None:
    """A program has forgotten a lock, and another one waits for it."""
    holder = HOLDER.format(program="report.py", label="monthly report", wanted=("accounts",))
    waiter = WAITER.format(program="payroll.py", label="salaries", wanted=("accounts", "ann"))
    with running(night.servers, holder, waiter) as (_, waits):
        until(night, "ps", "salaries")
        said = night.run("why", "accounts/ann")
        assert "monthly report (report.py, pid " in said
        night.run("break", found(r"locks break (\S+)", said), "--reason", "leaked, ticket 17")
        assert waits.stdout is not None
        assert waits.stdout.readline() == "done\n"


def stopped_holder(night: Night) -> None:
    """A program is stopped while it holds a lock."""
    holder = HOLDER.format(program="import.py", label="import", wanted=("ledger",))
    waiter = WAITER.format(program="audit.py", label="audit", wanted=("ledger", 1))
    with running(night.servers, holder, waiter) as (holds, waits):
        until(night, "ps", "audit.py")
        holds.send_signal(signal.SIGSTOP)
        said = night.run("why", "ledger/1")
        agent = found(r"locks break (\S+)", said)
        pid = found(r"import\.py, pid (\d+)", said)
        assert pid == str(holds.pid)
        broken = night.run("break", agent, "--reason", "stopped, ticket 18", "--timeout", "2")
        assert "suspended" in broken
        kill(night, pid)
        assert waits.stdout is not None
        assert waits.stdout.readline() == "done\n"


def deadlock_storm(night: Night) -> None:
    """A program locks in two orders, and runs into deadlocks all the time."""
    with running(night.servers, STORM) as (storm,):
        until(night, "deadlocks", "stock")
        said = night.run("deadlocks")
        pid = found(r"shop\.py, pid (\d+)", said)
        assert pid == str(storm.pid)
        kill(night, pid)
        storm.wait(LIMIT)
        assert "stock" not in night.run("ps")


def slow_leader(night: Night) -> None:
    """The leader is stopped; another candidate waits."""
    first, second = (
        CANDIDATE.format(label=label, waits=label == "first") for label in ("first", "second")
    )
    with running(night.servers, first, second) as (leads, _):
        until(night, "leaders", "second")
        leads.send_signal(signal.SIGSTOP)
        said = night.run("leaders", "chief")
        pid = found(r"leads +- .* first +chief\.py +(\d+)", said)
        assert pid == str(leads.pid)
        kill(night, pid)
        eventually(lambda: locks(night.servers, "leaders", "chief").status == 0, LIMIT)
        assert re.search(r"leads .* second ", night.run("leaders", "chief"))


def lost_server(night: Night) -> None:
    """A server was killed."""
    night.servers.processes[2].kill()
    said = night.run("status")
    assert "2 of 3 lock servers answer" in said
    port = night.servers.addresses[2].rpartition(":")[2]
    assert f"no answer from {NAMES[2]}: can't be reached at 127.0.0.1:{port}" in said
    night.act(f"systemctl restart locks  # {NAMES[2]}", lambda: night.servers.start_again(2))
    until(night, "status", "3 of 3 lock servers answer")
    assert "3 of 3 lock servers answer" in night.run("status")


def wrong_cookie(night: Night) -> None:
    """A program has another cookie than the servers."""
    file = night.servers.world.cookie_file
    right = file.read_text()
    file.write_text("another-cookie-than-the-servers")
    try:
        said = night.run("status")
    finally:
        night.act("scp 10.0.0.1:/etc/locks/cookie cookie", lambda: file.write_text(right))
    assert said.count("has another cookie") >= len(NAMES)
    assert "3 of 3 lock servers answer" in night.run("status")


def full_disk(night: Night) -> None:
    """The disk of a server is full."""
    limit = resource.RLIMIT_FSIZE
    before = resource.getrlimit(limit)
    pid = night.servers.processes[0].process.pid
    resource.prlimit(pid, limit, (1, before[1]))
    once = "import locks\nwith locks.once(('job', 1)): pass"
    night.servers.run(once)
    until(night, "status", "can't write its state file")
    said = night.run("status")
    assert re.search(rf"{NAMES[0]} can't write its state file.*disk", said)
    night.act("rm /var/log/old.log", lambda: resource.prlimit(pid, limit, before))
    night.servers.run(once.replace("1", "2"))
    until_not(night, "status", "can't write")
    assert "can't write" not in night.run("status")


def forged_name(night: Night) -> None:
    """A program has a name that is to look like a line of the log."""
    code = HOLDER.format(program="forger.py", label=FORGED, wanted=("forged",))
    with running(night.servers, code.replace(", label=", ", label=None) #")) as (plain,):
        plain.kill()
    thread = f"""
import sys, threading, locks
sys.argv[0] = "forger.py"
def work():
    tx = locks.original.begin_transaction([(("forged",), "write")])
    print("ready", flush=True)
    sys.stdin.readline()
thread = threading.Thread(name={FORGED!r}, target=work)
thread.start()
thread.join()
"""
    with running(night.servers, thread) as (forger,):
        said = night.run("ps", "--program", "forger.py")
        assert "\x1b" not in said
        assert not any(line.startswith("2026-11-26 03:00:00") for line in said.splitlines())
        pid = found(r"forger\.py +(\d+)", said)
        assert pid == str(forger.pid)
        kill(night, pid)
    for server in night.servers.processes:
        assert "\n2026-11-26 03:00:00" not in server.errors()


def restart_by_the_book(night: Night) -> None:
    """A server is to be restarted while programs hold locks."""
    said = night.run("status", "--before-restart", NAMES[0])
    assert "can be restarted" in said
    night.act(f"systemctl restart locks  # {NAMES[0]}", lambda: night.servers.restart(0))
    until(night, "status", "3 of 3 lock servers answer")
    assert "3 of 3 lock servers answer" in night.run("status")


def key_change(night: Night) -> None:
    """The cookie is changed, and no lock is lost."""
    file = night.servers.world.cookie_file
    old = file.read_text()

    def spread(text: str) -> None:
        file.write_text(text)
        for server in night.servers.processes:
            before = server.errors().count("has read its files again")
            server.signal(signal.SIGHUP)
            eventually(
                lambda server=server, before=before: (  # type: ignore[misc]
                    server.errors().count("has read its files again") > before
                ),
                LIMIT,
            )

    new = "a-new-cookie-of-this-night"
    night.act("for each in ...; do scp both ...; done", lambda: spread(f"{new}\n{old}"))
    night.act("for each in ...; do scp new ...; done", lambda: spread(new))
    assert "3 of 3 lock servers answer" in night.run("status")


SITUATIONS: Sequence[Callable[[Night], None]] = (
    *(leaked_lock, stopped_holder, deadlock_storm, slow_leader, lost_server),
    *(wrong_cookie, full_disk, forged_name, restart_by_the_book, key_change),
)


def found(pattern: str, text: str) -> str:
    """What a command has named."""
    match = re.search(pattern, text)
    assert match is not None, text
    return match[1]


def until(night: Night, command: str, text: str) -> None:
    """Wait until a command would say something: the situation is there, or is over."""
    eventually(lambda: text in locks(night.servers, command).out, LIMIT)


def until_not(night: Night, command: str, text: str) -> None:
    """Wait until it would no longer say it."""
    eventually(lambda: text not in locks(night.servers, command).out, LIMIT)


@contextmanager
def site() -> Iterator[Servers]:
    """The servers, and six programs that have nothing to do with what happens; with those of a situation there are up to ten."""
    with World() as world:
        servers = Keeping(
            world,
            net_ticktime=30,
            arguments=["--log-level=locks.nodes=INFO", "--log-level=locks=WARNING"],
        )
        with running(servers, *QUIET) as quiet:
            yield servers
            for program in quiet:
                assert program.poll() is None


@pytest.mark.explore
def test_the_night() -> None:
    """Each situation is found and mended in three commands, and the page has the first of them; nobody else loses a lock."""
    page = PAGE.read_text("utf-8")
    with site() as servers:
        for situation in SITUATIONS:
            night = Night(servers, situation.__name__)
            situation(night)
            assert len(night.transcript) <= MOST, night.transcript
            for command in re.findall(r"^\$ (locks \S+)", "".join(night.transcript), re.M):
                assert command in page, command
        left = locks(servers, "ps", "--held").out
        assert all(f"quiet {number}" in left for number in range(6)), left


if __name__ == "__main__":
    with site() as servers:
        for situation in SITUATIONS:
            night = Night(servers, situation.__name__)
            try:
                situation(night)
            except AssertionError as error:
                print("FAILED", error)
            print(
                f"=== {situation.__name__}: {len(night.transcript)} commands, {night.seconds:.1f} s"
            )
            print("".join(night.transcript), flush=True)
