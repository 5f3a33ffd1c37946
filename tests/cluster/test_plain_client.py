"""The client of the examples that does not import `locks` excludes programs with it, and is excluded by them."""

from __future__ import annotations

import ast
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("msgpack")

from examples.plain_client.client import Client
from tests.cluster.harness import ROOT, World
from tests.cluster.servers import LIMIT, Servers, running, said, tell
from tests.helpers import eventually
from tests.repo.lines import count
from tests.warm import run_program

EXAMPLE = ROOT / "examples" / "plain_client"
HOLDS = """
import sys, locks
with locks.Lock(("accounts", "ann")):
    print("ready", flush=True)
    sys.stdin.readline()
print("released")
"""
EXCLUDED = 'import locks; print(locks.Lock(("accounts", "ann")).acquire(timeout=1))'
ADDS = """
import sys, pathlib, locks
file = pathlib.Path(sys.argv[1])
lock = locks.Lock(("counter",))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    with lock:
        file.write_text(str(int(file.read_text()) + 1))
print("done")
"""


def client_of(servers: Servers) -> Client:
    """A plain client of these servers."""
    addresses = {}
    for address in servers.addresses:
        name, _, port = address.rpartition(":")
        addresses[name] = ("127.0.0.1", int(port))
    return Client(addresses, servers.world.cookie_file.read_text())


def test_it_is_plain_and_short() -> None:
    """It imports nothing of this project, and has 150 lines at most."""
    path = EXAMPLE / "client.py"
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert imported - sys.stdlib_module_names == {"msgpack"}
    assert count(path) <= 150


@pytest.mark.slow
def test_it_waits_and_excludes(world: World) -> None:
    """It waits for a program's lock, holds it against the program, and loses it with a majority of the servers."""
    servers = Servers(world)
    client = client_of(servers)
    with running(servers, HOLDS) as (program,):
        assert not client.acquire("accounts", "ann", timeout=0.3)
        tell(program)
        assert client.acquire("accounts", "ann", timeout=LIMIT)
        assert "released" in said(program)
    eventually(lambda: client.token)
    first = client.token
    assert servers.run(EXCLUDED) == "False\n"
    assert client.held
    client.release()
    with running(servers, HOLDS) as (program,):
        tell(program)
        assert "released" in said(program)
    assert client.acquire("accounts", "ann", timeout=LIMIT)
    eventually(lambda: client.token)
    assert client.token > first
    # It has it already with two of the three, and would lose it with one of these.
    eventually(lambda: all(link.state == "granted" for link in client.links))
    for index, held in ((0, True), (1, False)):
        servers.processes[index].process.kill()
        eventually(lambda left=2 - index: len(client.links) == left)
        eventually(lambda held=held: client.held is held)


@pytest.mark.slow
def test_nothing_is_lost_among_many(world: World, tmp_path: Path) -> None:
    """Two plain clients and two programs add to a number: each addition counts."""
    servers = Servers(world)
    file = tmp_path / "counter"
    file.write_text("0")

    def add(client: Client) -> None:
        for _ in range(20):
            assert client.acquire("counter", timeout=LIMIT)
            file.write_text(str(int(file.read_text()) + 1))
            client.release()

    clients = [client_of(servers) for _ in range(2)]
    with running(servers, ADDS, ADDS, arguments=[str(file)]) as programs:
        with ThreadPoolExecutor() as pool:
            for program in programs:
                tell(program)
            list(pool.map(add, clients))
        assert all("done" in said(program) for program in programs)
    assert file.read_text() == "80"


@pytest.mark.slow
def test_demonstration() -> None:
    """The example says what its text promises."""
    done = run_program([sys.executable, "-m", "examples.plain_client"], timeout=LIMIT, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [
        line.rsplit(": ", 1)[-1] for line in lines if line.startswith(("this", "it", "a s"))
    ] == [*("False", "True", "True", "True", "False")]
    assert "timed out after 0.3 s waiting for write accounts/ann, held by plain-" in done.stdout
