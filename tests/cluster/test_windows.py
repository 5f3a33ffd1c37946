"""Without what Windows lacks (`tests/windows.py` lists it): one program, clients of lock servers, and errors that say what is missing."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import locks
from tests.cluster.harness import World
from tests.cluster.servers import NAMES, Servers
from tests.helpers import ROOT
from tests.warm import Program, run_program
from tests.windows import GONE, MODULES

BEGIN = """
import sys, threading
assert sys.platform == "win32"
import locks, locks_leader
"""
FIRST = "import locks.testing"  # before compiled modules, where these are tested
TAKEN = """
import importlib, os, socket, signal
for module, name in {names!r}:
    assert not hasattr(importlib.import_module(module), name), (module, name)
for name in {modules!r}:
    try:
        importlib.import_module(name)
    except ImportError:
        continue
    raise AssertionError(name)
"""
ALONE = """
import asyncio
from locks import aio, groups, mvcc, ownership

both = threading.Barrier(2)

def transfer(source, target):
    runs = []
    def work(tx):
        tx.write_lock(("accounts", source))
        if not runs:
            runs.append(1)
            both.wait()
        tx.write_lock(("accounts", target))
    locks.run_transaction(work, timeout=60)

threads = [threading.Thread(target=transfer, args=pair) for pair in (("ann", "bob"), ("bob", "ann"))]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("a deadlock is resolved")

async def fails():
    return await aio.Lock(("b", "c")).acquire(timeout=0)

async def main():
    async with aio.Lock(("b",), timeout=60):
        assert not await asyncio.create_task(fails())

asyncio.run(main())
with locks.Owner("request") as owner, locks.Semaphore(("s",), 2, timeout=60):
    with owner.acting(), locks.RLock(("r",)), locks.RWLock(("w",)).read_lock():
        assert locks.holders(("r",))[0].client == "request"
assert locks_leader.Election("report").run(lambda leadership: leadership.term, timeout=60)
backlog = ownership.Backlog(["ann", "bob"])
done = []
with ownership.Ownership("accounts", groups=64) as mine:
    mine.run(backlog, lambda task, token: done.append(task))
assert sorted(done) == ["ann", "bob"]

class Member(locks.actors.GeventActor):
    pass

member = Member.start()
groups.join("members", member)
assert groups.members("members") == [member]
member.stop()
mvcc.LockTable()
locks.stop()
print("all is released")
"""
SIMULATED = """
from locks.testing import simulate

def transfer(source, target):
    def work(tx):
        tx.write_lock(("accounts", source))
        tx.write_lock(("accounts", target))
    locks.run_transaction(work)

def scenario(simulation):
    simulation.client(transfer, "ann", "bob")
    simulation.client(transfer, "bob", "ann")
    simulation.run()

print(simulate(scenario, 10, expect=("deadlock",)).schedules)
"""
PATCHED = """
from gevent import monkey
monkey.patch_all()
"""
CLIENT = """
with locks.transaction(timeout=60) as tx:
    print(tx.write_lock(("report",)), flush=True)
    sys.stdin.readline()
print(len(locks.statistics().name) > 0, locks_leader.Election("report").run(lambda leadership: leadership.term, timeout=60) > 0)
"""
OTHER = """
print(locks.Lock(("report",)).acquire(timeout=0), flush=True)
with locks.Lock(("report",), timeout=60):
    print("held")
"""
MEETS = """
import pykka

class Echo(pykka.ThreadingActor):
    def on_receive(self, message):
        return message

node = locks.start(name=sys.argv[1])
echo = Echo.start()
node.register("echo", echo)
print("ready", flush=True)
sys.stdin.readline()
assert "first" not in sys.argv or node.connect(sys.argv[2], timeout=60)
print(node.remote("echo", sys.argv[2]).ask("hello", timeout=60), flush=True)
sys.stdin.readline()
echo.stop()
"""
OF_UNIX = {
    "locks/program/folder.py": "LocalServer refuses to be made",
    "locks/program/local.py": "the same",
    "locks/program/local_server.py": "the same",
    "locks/otp/admission/credentials.py": "only for sockets of the Unix domain",
    "locks/cli/screen.py": "locks top says that it can't draw",
}
"""Files that are not used there."""
GUARDED = {
    ("locks/cli/child.py", "pthread_sigmask"),
    *(("locks/cli/child.py", name) for name in ("O_NOCTTY", "tcgetpgrp", "getpgrp")),
    ("locks/engines/ray.py", "SIGURG"),
    ("locks/engines/ray.py", "pthread_kill"),
    ("locks/runtime/forked.py", "register_at_fork"),
    ("locks/otp/admission/door.py", "AF_UNIX"),
    ("locks/otp/admission/door.py", "resource"),
    ("locks/otp/distribution.py", "clock_gettime"),
    ("locks/otp/links/stream.py", "AF_UNIX"),
    ("locks/otp/tunnel/tunnels.py", "socketpair"),
    ("locks/cli/node.py", "SIGHUP"),
    ("locks/otp/admission/cookies.py", "geteuid"),
    ("locks/program/serving.py", "resource"),
    ("locks/runtime/native.py", "pthread_kill"),
}
"""Uses that ask first whether it is there, or come after something that was refused."""
REFUSED = """
from argparse import Namespace
from locks.cli import top

for call, argument in ((locks.start, "local"), (locks.start, "local:project"), (top._Live, Namespace())):
    try:
        call(argument) if call is top._Live else call(servers=argument)
    except locks.errors.OperatingError as error:
        print(error)
"""


def command(folder: Path, code: str, *arguments: str) -> list[str]:
    """The command that runs a program without what Windows lacks."""
    program = folder / "program.py"
    program.write_text(code, "utf-8")
    return [sys.executable, "-m", "tests.windows", str(program), *arguments]


def run(folder: Path, code: str) -> str:
    """Run a program without what Windows lacks; return what it prints."""
    done = run_program(command(folder, code))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_windows_lacks_is_not_there(tmp_path: Path) -> None:
    """Nothing that is listed can be used by the programs of these tests, whatever `locks` loads."""
    names = [(module.__name__, name) for module, them in GONE.items() for name in them.split()]
    taken = TAKEN.format(names=names, modules=MODULES)
    assert run(tmp_path, FIRST + BEGIN + "import locks.program.meeting" + taken) == ""


def uses(text: str) -> set[str]:
    """What a module uses of what Windows lacks."""
    gone = {module.__name__: set(names.split()) for module, names in GONE.items()}
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(ast.Name(module), name) if name in gone.get(module, ()):
                found.add(name)
            case ast.ImportFrom(module=str(module)):
                found |= gone.get(module, set()) & {each.name for each in node.names}
                found |= {module} & set(MODULES)
            case ast.Import():
                found |= {each.name for each in node.names} & set(MODULES)
    return found


@pytest.mark.explore
def test_every_use_of_what_windows_lacks_is_known() -> None:
    """Nothing that is shipped uses it, but in files that are not used there, and where it is asked for first."""
    assert uses("import os, fcntl\nfrom signal import SIGHUP\nos.fork()") == {
        "fcntl",
        "SIGHUP",
        "fork",
    }
    root = Path(locks.__file__).parents[1]
    shipped = [root / "locks_pytest.py"]
    for package in ("locks", "locks_leader", "locks_lab"):
        shipped += sorted((root / package).rglob("*.py"))
    names = {path.relative_to(root).as_posix(): uses(path.read_text("utf-8")) for path in shipped}
    assert names.keys() >= OF_UNIX.keys()
    found = {(path, name) for path, them in names.items() for name in them if path not in OF_UNIX}
    assert found == GUARDED


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", PATCHED], ids=["threads", "patched"])
def test_one_program(before: str, tmp_path: Path) -> None:
    """Within one program everything works: transactions, deadlocks, asyncio, elections, ownership, groups."""
    assert run(tmp_path, before + BEGIN + ALONE) == "a deadlock is resolved\nall is released\n"


def test_simulations(tmp_path: Path) -> None:
    """So does `locks.testing`."""
    assert run(tmp_path, FIRST + BEGIN + SIMULATED) == "10\n"


def test_what_is_missing_is_refused_by_name(tmp_path: Path) -> None:
    """`servers="local"` says that Unix domain sockets are missing, `locks top` that termios is, and both what to do instead."""
    *of_servers, of_top = run(tmp_path, BEGIN + REFUSED).splitlines()
    assert "has no termios; use `locks top --once`" in of_top
    assert len(of_servers) == 2
    for line in of_servers:
        assert line.startswith('servers="local" needs Unix domain sockets')
        assert 'servers=["server@127.0.0.1:9100"]' in line


def started(servers: Servers, folder: Path, code: str, *arguments: str) -> Program:
    """Start a program that knows the servers."""
    return Program(command(folder, BEGIN + code, *arguments), env=servers.environment())


def go_on(process: Program) -> None:
    """Let a program that waits for a line go on."""
    process.stdin.write("\n")
    process.stdin.flush()


def line(process: Program) -> str:
    """The next line that a program prints; what it complains of, if there is none."""
    return process.stdout.readline() or process.stderr.read()


def test_client_of_servers(world: World, tmp_path: Path) -> None:
    """A program has a lock of servers, and an ordinary one finds it held, and has it after it; both elect."""
    servers = Servers(world)
    with started(servers, tmp_path, CLIENT) as holder:
        assert line(holder).strip().isdecimal()
        with servers.program("import locks\n" + OTHER) as other:
            assert line(other) == "False\n"
            go_on(holder)
            assert line(other) == "held\n"
        assert line(holder) == "True True\n"
    assert holder.returncode == 0


def test_tunnel_between_clients(world: World, tmp_path: Path) -> None:
    """Two such programs talk by way of a server: the ends of the tunnel are sockets of loopback."""
    servers = Servers(world, NAMES[:1])
    names = ("x@127.0.0.1", "y@127.0.0.1")
    folders = [tmp_path / name for name in "xy"]
    for folder in folders:
        folder.mkdir()
    with (
        started(servers, folders[0], MEETS, *names, "first") as one,
        started(servers, folders[1], MEETS, *reversed(names)) as other,
    ):
        for each in (one, other):
            assert line(each) == "ready\n"
        for each in (one, other):
            go_on(each)
            assert line(each) == "hello\n"
        for each in (one, other):
            go_on(each)
    assert one.returncode == other.returncode == 0


def test_command_of_servers(world: World, tmp_path: Path) -> None:
    """`locks run` runs a command under a lock, and returns its exit status."""
    servers = Servers(world, NAMES[:1])
    done = run_program(
        [
            *(sys.executable, "-m", "tests.windows", "-m", "locks", "run", "nightly", "--"),
            *(sys.executable, "-c", "import sys; print('ran'); sys.exit(7)"),
        ],
        env=servers.environment(),
    )
    assert (done.returncode, done.stdout) == (7, "ran\n"), done.stderr


UNIT = sorted((ROOT / "tests" / "unit").glob("test_*.py"))
PURE = {
    **{f"unit, part {n + 1} of 8": UNIT[n::8] for n in range(8)},
    "others": [
        ROOT / "tests" / name
        for name in ("conformance", "api/test_testing.py", "model/test_rules.py")
    ],
}


@pytest.mark.explore
@pytest.mark.parametrize("tests", PURE.values(), ids=PURE)
def test_tests_of_pure_parts(tests: list[Path]) -> None:
    """The tests of the pure parts pass there."""
    done = run_program(
        [
            *(sys.executable, "-m", "tests.windows", "-m", "pytest", "-q", "--capture=sys"),
            *("-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not explore", *map(str, tests)),
        ]
    )
    assert done.returncode == 0, done.stdout + done.stderr
