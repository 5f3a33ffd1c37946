"""Programs of one machine find each other by `servers="local"`, and share a lock server that they start themselves."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import locks
from locks.net.hello import Refused
from locks.net.stream import Credentials, check_user, credentials_of
from locks.program.folder import Folder, check_owner, folder_of
from locks.program.local import LocalServer, environment_of_server, python, servers_by_word
from tests.cluster.servers import LIMIT, Machine, hear, is_there, tell
from tests.helpers import eventually
from tests.warm import run_program

ONCE = """
import sys, locks
locks.start(servers=sys.argv[1])
try:
    with locks.transaction(timeout=float(sys.argv[2])) as tx:
        print(tx.write_lock(("printer",)))
except locks.LockTimeout:
    print("not now")
"""
HOLDER = """
import sys, locks
with locks.transaction(timeout=60) as tx:
    print(tx.write_lock(("printer",)), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine, with nothing on it at first."""
    with Machine() as found:
        yield found


def test_programs_meet_and_domains_do_not(machine: Machine) -> None:
    """One word in the environment: a lock excludes other programs of the domain, and no others; its folder is private."""
    holder = machine.program(HOLDER)
    first = int(hear(holder))
    assert machine.run(ONCE, "local", 0.2) == "not now\n"
    assert int(machine.run(ONCE, "local:other", 0.2))
    assert machine.server() != machine.server("other")
    tell(holder)
    assert int(machine.run(ONCE, "local:default", LIMIT)) > first
    folder = machine.folder().path
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}
    names = ("cookie", "log", "running", "socket", "starting")
    assert modes == {**dict.fromkeys(names, 0o600), "socket": 0o700}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


SEVERAL = """
import os, pathlib, sys, locks
place = pathlib.Path(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    locks.start(servers=f"local:{line.strip()}")
    with locks.transaction(timeout=60) as tx:
        token = tx.write_lock(("it",))
        os.close(os.open(place / "it", os.O_CREAT | os.O_EXCL))
        os.unlink(place / "it")
    locks.stop()
    print(token, flush=True)
"""


def at_the_same_moment(machine: Machine, rounds: int) -> None:
    """In each round 8 processes come at the same moment, and nothing is there."""
    place = machine.runtime
    programs = [machine.program(SEVERAL, place) for _ in range(8)]
    [hear(program) for program in programs]
    for number in range(rounds):
        domain = f"d{number}"
        for program in programs:
            tell(program, domain)
        tokens = list(map(int, [hear(program) for program in programs]))
        assert len(set(tokens)) == 8
        assert machine.log(domain).count("listens") == 1, machine.log(domain)
    for program in programs:
        assert program.communicate(timeout=LIMIT) == ("", "")


@pytest.mark.slow
def test_of_eight_processes_one_starts_the_lock_server(machine: Machine) -> None:
    """No matter which: there is one, nobody sees an error, and one has the lock at a time."""
    at_the_same_moment(machine, 2)


LOSER = """
import sys, time, locks
with locks.Lock(("warm", "up")):
    pass
try:
    with locks.transaction(timeout=60) as tx:
        print(tx.write_lock(("printer",)), flush=True)
        assert tx.lost.wait(60)
        told = time.monotonic()
        tx.ensure_held()
except locks.LockLost as lost:
    while True:
        try:
            with locks.transaction(timeout=60) as tx:
                token = tx.write_lock(("printer",))
            break
        except locks.CannotServe:
            time.sleep(0.005)
    print(token, time.monotonic() - told, *lost.nodes, flush=True)
"""


def kill_server(machine: Machine) -> int:
    """Kill the lock server; return its process."""
    pid = machine.server()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_killed_lock_server_is_replaced(machine: Machine) -> None:
    """Its holders are told, another one takes the place of its socket, and gives greater tokens."""
    holder = machine.program(LOSER)
    before = int(hear(holder))
    killed = kill_server(machine)
    after, _, node = hear(holder).split()
    assert node == "default@local"
    assert int(after) > before
    assert machine.server() != killed
    out, error = holder.communicate(timeout=LIMIT)
    assert out == ""
    assert "lost printer" in error
    assert len(error.splitlines()) == 1


def test_it_ends_when_nobody_needs_it_and_nothing_of_it_is_left() -> None:
    """After a while without anybody; who comes just then has another one at once."""
    with Machine(idle=0.2) as machine:
        assert int(machine.run(ONCE, "local", LIMIT))
        eventually(lambda: "no program was connected" in machine.log())
        eventually(lambda: machine.server() is None)
        assert not machine.folder().socket.exists()
        assert int(machine.run(ONCE, "local", LIMIT))
        assert machine.log().count("listens") == 2


DAEMON = """
import os, subprocess, sys, threading, locks
locks.start()
print(os.getsid(0), threading.active_count(), flush=True)
print(subprocess.run(["ps", "-o", "stat=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout.split(), flush=True)
sys.stdin.readline()
"""


def test_it_has_nothing_to_do_with_who_has_started_it() -> None:
    """Not its terminal, its folder, its files, its signals, its environment; and it leaves no zombie there."""
    with Machine() as machine:
        machine.environment["LOCKS_NAME"] = "mine@127.0.0.1"
        machine.environment["LOCKS_CONFIG"] = "/nowhere"
        del machine.environment["LOCKS_CONFIG"]
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        program = machine.program(DAEMON)
        session, _ = hear(program).split()
        (only_ps,) = eval(hear(program))
        assert "Z" not in only_ps
        pid = machine.server()
        assert pid is not None
        assert os.getsid(pid) != int(session)
        of_server = Path(f"/proc/{pid}")
        files = set()
        for each in (of_server / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since
                files.add(os.readlink(each))
        assert files
        assert not [each for each in files if each.startswith(("pipe:", "/dev/pts", "/dev/tty"))]
        assert (of_server / "cwd").resolve() == Path("/")
        assert b"LOCKS_" not in (of_server / "environ").read_bytes()
        os.close(reading)
        os.close(writing)
        program.kill()
        program.communicate()
        assert machine.server() == pid


LIMITED = """
import os, pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
(here / "argparse.py").write_text("raise SystemExit('this is not the one')")
sys.path.append(b"of bytes")
import locks
locks.start(servers="local")
print("started", flush=True)
sys.stdin.readline()
"""


UNPRIVILEGED = """
import resource
set_limit = resource.setrlimit
def setrlimit(limit, values):
    if values[1] == resource.RLIM_INFINITY != resource.getrlimit(limit)[1]:
        raise ValueError("not allowed to raise maximum limit")
    set_limit(limit, values)
resource.setrlimit = setrlimit
setrlimit(resource.RLIMIT_CPU, (600, 600))
from locks.program.local_server import shed_limits
shed_limits()
"""


def limits_of(pid: int) -> dict[str, object]:
    """What a process may use."""
    return {
        "processor time": resource.prlimit(pid, resource.RLIMIT_CPU)[0],
        "memory": resource.prlimit(pid, resource.RLIMIT_AS)[0],
        "processors": len(os.sched_getaffinity(pid)),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="reads the limits of another process")
def test_it_has_no_limits_of_the_program_that_has_started_it(tmp_path: Path) -> None:
    """Nor the modules beside that program."""
    (tmp_path / "program.py").write_text(LIMITED)
    with Machine() as machine:
        command = 'ulimit -S -t 600 -v 4000000; exec taskset -c 0 "$@"'
        with subprocess.Popen(
            ["sh", "-c", command, "sh", sys.executable, str(tmp_path / "program.py")],
            env=machine.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "started\n"
            pid = machine.server()
            assert pid is not None
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            assert limits_of(pid) == {
                "processor time": resource.RLIM_INFINITY,
                "memory": hard,
                "processors": len(os.sched_getaffinity(0)),
            }
            program.communicate("end\n", timeout=LIMIT)


def test_a_limit_of_processor_time_that_stays_is_refused() -> None:
    """It would end the server of all programs in the middle of its work."""
    with Machine() as machine:
        assert "a limit of 600 s of processor time" in machine.run(UNPRIVILEGED)
        assert machine.server() is None


def test_a_frozen_program_is_not_started_as_an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one whose name begins like Python's, nor one whose file is called so; and the error says what to do."""
    monkeypatch.setattr(sys, "executable", "/somewhere/python-report")
    assert python() != sys.executable
    for name in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, name, "/nowhere")
    with pytest.raises(locks.errors.OperatingError, match="locks run --servers local"):
        python()
    monkeypatch.undo()
    there = sys.executable
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    for name in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, name, "/nowhere")
    with pytest.raises(locks.errors.OperatingError, match=re.escape(there)):
        python()


FORKS = """
import os, warnings, locks
warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of forks where there are threads
with locks.transaction(timeout=60) as tx:
    tx.write_lock(("printer",))
    pid = os.fork()
    if pid == 0:
        with locks.transaction(timeout=0.2) as other:
            try:
                other.write_lock(("printer",))
            except locks.LockTimeout:
                print("not now", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
print("end")
"""


def test_a_forked_child_meets_its_parent(machine: Machine) -> None:
    """Its locks are those of the machine, as the parent's are."""
    assert machine.run(FORKS) == "not now\nend\n"


def test_who_clears_the_folder_away_ends_the_lock_server() -> None:
    """There would be two otherwise. Programs that go on meet in a new folder, with those that come."""
    with Machine() as machine:
        holder = machine.program(LOSER)
        before = int(hear(holder))
        pid = machine.server()
        assert pid is not None
        shutil.rmtree(machine.folder().path)
        after, *_ = hear(holder).split()
        assert int(after) > before
        assert int(machine.run(ONCE, "local", LIMIT)) > int(after)
        eventually(lambda: not is_there(pid))


# --- The folder -----------------------------------------------------------------------------------


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A runtime folder, with a short path."""
    with Machine() as machine:
        yield machine.runtime


def test_a_folder_that_is_not_the_users_alone_is_refused(runtime: Path) -> None:
    """Others can enter it; it is a link; it is a file; it is another user's; its path is too long for a socket."""
    folder = Folder(runtime / "locks" / "default")
    folder.make()
    folder.path.chmod(0o750)
    with pytest.raises(
        locks.errors.OperatingError, match=r"is open to other users \(mode 750\); chmod 700"
    ):
        folder.make()
    folder.path.rmdir()
    folder.path.symlink_to(runtime)
    with pytest.raises(locks.errors.OperatingError, match="is a symbolic link"):
        folder.make()
    folder.path.unlink()
    folder.path.touch()
    with pytest.raises(locks.errors.OperatingError, match="is not a folder"):
        folder.make()
    status = os.stat(runtime)
    with pytest.raises(locks.errors.OperatingError, match=f"belongs to user {status.st_uid}, but"):
        check_owner(runtime, status, status.st_uid + 1)
    with pytest.raises(locks.errors.OperatingError, match="for a socket: the path has"):
        Folder(runtime / ("x" * 90) / "locks" / "default").make()


def test_where_the_folder_is(runtime: Path) -> None:
    """In the user's runtime folder, if it is one and the user's; otherwise among temporary files."""
    where = {"XDG_RUNTIME_DIR": str(runtime)}
    assert folder_of("mine", where) == runtime / "locks" / "mine"
    where["XDG_RUNTIME_DIR"] = str(runtime / "none")
    assert folder_of("mine", where).parent.name == f"locks-{os.geteuid()}"


def test_the_system_says_who_has_connected() -> None:
    """Programs of other users are refused, whatever they know."""
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert credentials_of(one) == Credentials(os.getpid(), os.geteuid())
    check_user(Credentials(1, os.geteuid()))
    other = os.geteuid() + 4711
    with pytest.raises(Refused, match=f"runs as user {other}"):
        check_user(Credentials(1, other))


STRANGER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(sys.argv[1])
    print(len(sock.recv(100)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_sent_away() -> None:
    """Even one for whom somebody has opened the folder."""
    with Machine() as machine:
        assert int(machine.run(ONCE, "local", LIMIT))
        folder = machine.folder()
        for path in (machine.runtime, folder.path.parent, folder.path, folder.socket):
            path.chmod(0o777)
        try:
            assert machine.run(STRANGER, folder.socket) == "0\n"
            eventually(lambda: "runs as user 65534" in machine.log())
        finally:
            for path in (folder.path.parent, folder.path):
                path.chmod(0o700)


# --- What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["local:", "local:../up", "local:a/b", "local:" + "x" * 33, "local: "]
)
def test_a_domain_has_a_simple_name(text: str) -> None:
    """It is the name of a folder."""
    with pytest.raises(locks.errors.InvalidOption, match="has a wrong domain: use 1 to 32 letters"):
        servers_by_word(text)


def test_what_goes_with_it() -> None:
    """Nothing that is for other machines."""
    for given in ({"cookie": "x" * 20}, {"peers": ["a@127.0.0.1:1"]}, {"listen": 9100}):
        with pytest.raises(locks.errors.InvalidOption, match='combined with servers="local"'):
            locks.start(servers="local", **given)
    with pytest.raises(locks.errors.InvalidOption, match="the lock server has it"):
        locks.start("default@local", servers="local")
    assert servers_by_word("local") == LocalServer("default") != servers_by_word("local:other")


def test_the_command_line_knows_it(machine: Machine) -> None:
    """`locks config` shows it, and `locks node` says that there is nothing to start."""
    command = [sys.executable, "-m", "locks"]
    shown = run_program([*command, "config"], env=machine.environment, check=True)
    folder = machine.folder().path
    assert f"servers local:default ({folder}) from LOCKS_SERVERS" in " ".join(shown.stdout.split())
    refused = run_program(
        [
            *command,
            "node",
            "--name",
            "a@127.0.0.1",
            "--cookie-file",
            machine.folder().path / "cookie",
        ],
        env=machine.environment,
    )
    assert refused.returncode == 2
    assert "the first program that needs the lock server of a machine starts it" in refused.stderr


def test_nothing_of_the_environment_changes_how_it_behaves() -> None:
    """It finds the modules of who starts it, from another folder."""
    given = {"LOCKS_SERVERS": "local", "PYTHONINSPECT": "1", "PYTHONHOME": "/p", "LANG": "C"}
    path: list[Any] = ["", "/lib", b"/of/bytes", "rel"]
    assert environment_of_server(given, path) == {
        "PYTHONHOME": "/p",
        "LANG": "C",
        "LOCK_SERVER_PATH": f"/lib:{Path('rel').absolute()}",
        "PYTHONSAFEPATH": "1",
    }
