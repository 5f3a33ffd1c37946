"""Servers that are found: by DNS, by Erlang's port mapper, and by a source of one's own. Real processes on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.cluster.harness import Server, World
from tests.cluster.nameserver import Nameserver, hosts, services
from tests.cluster.servers import LIMIT
from tests.helpers import eventually, free_port
from tests.otp.erlang import port_mapper
from tests.warm import Program, run_program

NAME = "locks.test"
SERVICE = "_locks._tcp.locks.test"
HOLDER = """
import sys, locks
with locks.transaction(timeout=30) as tx:
    print(tx.write_lock(("a",)), flush=True)
    sys.stdin.readline()
    print(tx.token(("a",)), flush=True)
"""
LOSER = """
import sys, time, locks
try:
    with locks.transaction(timeout=30) as tx:
        print(tx.write_lock(("a",)), flush=True)
        tx.lost.wait(30)
except locks.LockLost:
    print("lost", flush=True)
while True:
    try:
        with locks.transaction(timeout=30) as tx:
            print(tx.write_lock(("a",)), flush=True)
            break
    except locks.errors.OperatingError as error:
        print(error, file=sys.stderr)
        time.sleep(0.1)
"""
ONCE = """
import locks
try:
    with locks.transaction(timeout={timeout}) as tx:
        print(tx.write_lock(("a",)))
except locks.LocksError as error:
    print(type(error).__name__, error)
"""

PATCHED = "from gevent import monkey\nmonkey.patch_all()\n"
PATIENT = "import locks.program.default as default\ndefault.CONNECTED_WITHIN = {}\n"


class Found:
    """Lock servers, each at an address of its own, that DNS names.

    Attributes:
        dns: The nameserver.
        where: What `servers=` is.
        port: Where each of them listens.
    """

    def __init__(self, world: World, dns: Nameserver, **options: object) -> None:
        self.world = world
        self.dns = dns
        self.port = free_port()
        self.where = dns.url(f"{NAME}:{self.port}", size=3, interval=0.1, **options)

    def name(self, *numbers: int) -> None:
        """Let DNS name the servers at these addresses."""
        self.dns.zone = hosts(NAME, *(f"127.0.0.{number}" for number in numbers))

    def serve(self, number: int) -> Server:
        """Start one."""
        host = f"127.0.0.{number}"
        given = [f"--listen={host}:{self.port}", f"--servers={self.where}"]
        return self.world.server(f"locks@{host}", arguments=given)

    def program(self, code: str) -> Program:
        """Start a program that knows them from its environment."""
        return program(code, self.world, self.where)

    def run(self, code: str) -> str:
        """Run one to its end; return what it prints."""
        out, error = self.program(code).communicate(timeout=LIMIT)
        return out + error


def program(code: str, world: World, where: str) -> Program:
    """Start a program of a few lines that finds its servers."""
    return Program(
        [sys.executable, "-c", code],
        env={**os.environ, "LOCKS_SERVERS": where, "LOCKS_COOKIE_FILE": str(world.cookie_file)},
    )


def line(stream: IO[str] | None) -> str:
    """The next line of a program."""
    assert stream is not None
    return stream.readline().rstrip()


@pytest.fixture
def found() -> Iterator[Found]:
    """No servers yet."""
    with Nameserver() as dns, World() as world:
        yield Found(world, dns)


@pytest.mark.slow
def test_servers_are_found(found: Found) -> None:
    """Programs with `dns://` in their environment exclude each other; also one that is patched by gevent."""
    found.name(2, 3, 4)
    servers = [found.serve(number) for number in (2, 3, 4)]
    assert [server.address for server in servers] == [
        (f"127.0.0.{number}", found.port) for number in (2, 3, 4)
    ]
    first = int(found.run(ONCE.format(timeout=30)))
    assert int(found.run(PATCHED + ONCE.format(timeout=30))) > first
    holder = found.program(HOLDER)
    try:
        assert int(line(holder.stdout)) > first
        assert found.run(ONCE.format(timeout=0.3)).startswith("LockTimeout")
    finally:
        holder.kill()
        holder.communicate(timeout=LIMIT)


@pytest.mark.explore
def test_ipv6(found: Found) -> None:
    """A server at an address of IPv6 has that in its name; it listens where DNS says."""
    found.where = found.dns.url(f"{NAME}:{found.port}", size=1, records="AAAA")
    found.dns.zone = hosts(NAME, "::1")
    given = [f"--listen=[::1]:{found.port}", f"--servers={found.where}"]
    assert found.world.server("locks@::1", arguments=given).address == ("::1", found.port)
    assert int(found.run(ONCE.format(timeout=30)))


@pytest.mark.slow
def test_a_server_grants_nothing_before_all_have_met(found: Found) -> None:
    """Two of three are a majority, but the third one may be one of others. When it was there once, it may go."""
    found.name(2, 3, 4)
    for number in (2, 3):
        assert found.serve(number).address
    said = found.run(PATIENT.format(3) + ONCE.format(timeout=1))
    assert said.startswith("CannotServe")
    assert "locks@127.0.0.2 grants no locks yet: it waits for locks@127.0.0.4 to confirm" in said
    third = found.serve(4)
    assert int(found.run(ONCE.format(timeout=30)))
    third.kill()
    assert int(found.run(ONCE.format(timeout=30)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    [pytest.param("", id="plain"), pytest.param(PATCHED, marks=pytest.mark.explore, id="patched")],
)
def test_other_servers(found: Found, before: str) -> None:
    """When DNS names others, servers end, holders are told, and the same program goes on with the new ones."""
    found.name(2, 3, 4)
    servers = [found.serve(number) for number in (2, 3, 4)]
    holder = found.program(before + LOSER)
    try:
        token = int(line(holder.stdout))
        found.name(4, 5, 6)
        for server in servers:
            assert server.process.wait(LIMIT) == 1
            assert "names locks@127.0.0.4, locks@127.0.0.5, locks@127.0.0.6 now" in server.errors()
        assert line(holder.stdout) == "lost"
        for number in (4, 5, 6):
            assert found.serve(number).address
        assert int(line(holder.stdout)) > token
        assert "has ended: its servers were" in holder.communicate(timeout=LIMIT)[1]
    finally:
        holder.kill()
        holder.communicate(timeout=LIMIT)


@pytest.mark.explore
def test_fewer_or_more_change_nothing(found: Found) -> None:
    """A set that is not complete is nobody's; servers that DNS does not name for a while go on."""
    found.name(2, 3, 4)
    servers = [found.serve(number) for number in (2, 3, 4)]
    token = int(found.run(ONCE.format(timeout=30)))
    holder = found.program(HOLDER)
    try:
        assert int(line(holder.stdout)) > token
        for numbers in ((4,), (4, 5), (2, 3, 4, 5)):
            found.name(*numbers)
            asked = found.dns.asked.total()
            eventually(lambda asked=asked: found.dns.asked.total() > asked + 20)  # type: ignore[misc]
        assert "has 4 servers instead of 3" in servers[0].errors()
        found.dns.silent = True
        assert [server.process.poll() for server in servers] == [None] * 3
        found.dns.silent = False
        found.name(2, 3, 4)
        assert found.run(ONCE.format(timeout=0.3)).startswith("LockTimeout")  # it is held still
    finally:
        holder.kill()
        holder.communicate(timeout=LIMIT)


@pytest.mark.explore
def test_a_server_waits_until_it_is_named(found: Found) -> None:
    """It says so, and starts when it is; until then programs are told what DNS says."""
    found.name(2, 3)
    servers = [found.serve(number) for number in (2, 3, 4)]
    said = found.run(PATIENT.format(0.5) + ONCE.format(timeout=1))
    assert said.startswith("OperatingError timed out after ")
    assert "searching for the servers with dns://" in said
    assert "found 2 of 3: locks@127.0.0.2, locks@127.0.0.3" in said
    eventually(lambda: "locks@127.0.0.4 waits until it is found" in servers[2].errors())
    found.name(2, 3, 4)
    assert int(found.run(ONCE.format(timeout=30)))


def test_a_server_moves(found: Found) -> None:
    """The names of SRV records stay when a server comes back elsewhere: its programs find it there."""
    names = [f"l-{number}.{NAME}" for number in range(3)]

    def zone(*numbers: int) -> str:
        each = zip(names, numbers, strict=True)
        return "\n".join(
            [
                services(SERVICE, *((name, found.port) for name in names)),
                *(hosts(name, f"127.0.0.{number}") for name, number in each),
            ]
        )

    found.where = found.dns.url(SERVICE, size=3, interval=0.1)
    found.dns.zone = zone(2, 3, 4)

    def serve(name: str, number: int) -> Server:
        given = [f"--listen=127.0.0.{number}:{found.port}", f"--servers={found.where}"]
        return found.world.server(f"locks@{name}", arguments=given)

    servers = [serve(name, number) for name, number in zip(names, (2, 3, 4), strict=True)]
    for server in servers:
        assert server.address
    holder = found.program(
        f"""
import sys, time, locks
node = locks.start()
assert node.await_nodes({[server.name for server in servers]}, timeout=30)
with locks.transaction(timeout=30) as tx:
    token = tx.write_lock(("a",))
    while len(locks.lock_info(tx.agent)[0].granted) < 3:  # the third server is asked in the background
        time.sleep(0.01)
    print(token, flush=True)
    sys.stdin.readline()
    print(node.await_nodes([{servers[0].name!r}], timeout=30))
    print(tx.token(("a",)), flush=True)
"""
    )
    try:
        token = line(holder.stdout)
        servers[0].kill()
        found.dns.zone = zone(5, 3, 4)
        assert serve(names[0], 5).address
        assert holder.communicate("\n", timeout=LIMIT)[0].split() == ["True", token]
    finally:
        holder.kill()
        holder.communicate(timeout=LIMIT)


SERVES = """
import os, sys, time, locks
locks.start("locks@127.0.0.2", listen="127.0.0.2:{port}")
while True:
    try:
        with locks.transaction(timeout=10) as tx:
            print(tx.write_lock(("a",)), *locks.start().scope.nodes, flush=True)
            sys.stdin.readline()
    except locks.errors.OperatingError as error:
        time.sleep(0.1)
"""


@pytest.mark.explore
def test_a_program_that_is_a_server_itself(found: Found) -> None:
    """It takes locks when all have met, and when others are named, its node ends and the next one has these."""
    found.name(2, 3, 4)
    process = found.program(SERVES.format(port=found.port))
    try:
        for number in (3, 4):
            assert found.serve(number).address
        token, *names = line(process.stdout).split()
        assert names == ["locks@127.0.0.2", "locks@127.0.0.3", "locks@127.0.0.4"]
        found.name(2, 5, 6)
        for server in found.world.processes:
            assert server.process.wait(LIMIT) == 1
        for number in (5, 6):
            assert found.serve(number).address
        print(file=process.stdin, flush=True)
        later, *names = line(process.stdout).split()
        assert names == ["locks@127.0.0.2", "locks@127.0.0.5", "locks@127.0.0.6"]
        assert int(later) > int(token)
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


# --- What is said in the environment ------------------------------------------------------------


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m locks`, or `python -c`."""
    return run_program([sys.executable, *arguments], env={**os.environ, **environment})


def test_the_configuration_shows_it() -> None:
    """As it was said."""
    where = "dns://locks.test:9100?size=3"
    done = command("-m", "locks", "config", "--json", LOCKS_SERVERS=where)
    said = json.loads(done.stdout)
    assert said["servers"] == {"value": where, "source": "LOCKS_SERVERS"}


@pytest.mark.parametrize(
    ("what", "where", "says"),
    [
        ("config", "dns://locks.test?size=3", "A records have no port; add the port"),
        ("config", "dmz://locks.test:9100?size=3", "is not a list of servers"),
        ("node", "dns://locks.test:9100", "the number of servers is missing"),
    ],
)
def test_what_is_wrong_is_refused(what: str, where: str, says: str, tmp_path: Path) -> None:
    """By `locks config` and `locks node` alike; the error names it."""
    cookie = tmp_path / "cookie"
    cookie.touch(0o600)
    more = ["--name=a@127.0.0.1", f"--cookie-file={cookie}"] if what == "node" else []
    done = command("-m", "locks", what, *more, LOCKS_SERVERS=where)
    assert done.returncode == 2
    assert f"servers='{where}'" in done.stderr
    assert says in done.stderr


def test_without_dnspython() -> None:
    """Only who uses it needs it; the error says what to install."""
    code = "import sys; sys.modules['dns'] = None\nimport locks\n"
    assert command("-c", code + "locks.start()").stderr == ""
    done = command("-c", code + "locks.start(servers='dns://a:1?size=3', cookie='x' * 16)")
    assert "InvalidOption: servers='dns://a:1?size=3' needs dnspython: pip install" in done.stderr


# --- Erlang's port mapper -----------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("epmd") is None, reason="no `epmd` on PATH (Debian: erlang-base)")
def test_servers_by_the_port_mapper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers without ports register, and are found there; also one that comes back at another port."""
    names = [f"{letter}@127.0.0.1" for letter in "abc"]
    given = ["--epmd", f"--servers={','.join(names)}"]
    with port_mapper() as mapper, World() as world:
        monkeypatch.setenv("ERL_EPMD_PORT", str(mapper))
        monkeypatch.setenv("LOCKS_EPMD", "yes")
        servers = [world.server(name, arguments=given) for name in names]
        assert all(server.address for server in servers)
        for server in servers[:2]:
            process = program(ONCE.format(timeout=30), world, ",".join(names))
            assert int(process.communicate(timeout=LIMIT)[0])
            server.kill()
            assert world.server(server.name, arguments=given).address
