"""Programs that share servers: the first thing that one tries is locked for all of them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import locks
from locks.net.messages import BadMessage
from locks.node.peers.agreement import Agreement, _question, _servers
from locks.node.ports import Servers as Known
from locks.ranges import replace
from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, NAMES, Servers
from tests.helpers import eventually
from tests.warm import run_program

HOLDER = """
import sys, locks
with locks.transaction(timeout=60) as tx:
    print(tx.write_lock(("accounts", "ann")), flush=True)
    sys.stdin.readline()
    with locks.Lock(("other",)) as lock:
        print(lock.token(), lock.locked(), len(locks.holders(("other",))), flush=True)
        sys.stdin.readline()
"""
ONCE = """
import locks
try:
    with locks.transaction(timeout={timeout}) as tx:
        tx.{call}(("accounts", "ann"){more})
        print("held")
except locks.LocksError as error:
    print(type(error).__name__, error)
"""


def once(call: str = "write_lock", more: str = "", timeout: float = 60) -> str:
    """A program that takes one lock."""
    return ONCE.format(call=call, more=more, timeout=timeout)


def test_the_obvious_program_locks_for_all(processes: Servers) -> None:
    """A lock of which nobody said where excludes other programs; `Lock` and questions are about the servers, too."""
    holder = processes.program(HOLDER)
    try:
        first = int(holder.stdout.readline())
        assert "LockTimeout" in processes.run(once(timeout=0.2))
        assert processes.run(once(more=", nodes=locks.HERE")) == "held\n"
        print(file=holder.stdin, flush=True)
        token, locked, held = holder.stdout.readline().split()
        assert int(token)
        assert (locked, held) == ("True", "1")
        print(file=holder.stdin, flush=True)
        holder.wait(timeout=LIMIT)
        after = processes.run(
            "import locks\nwith locks.transaction() as tx: print(tx.write_lock(('accounts','ann')))"
        )
        assert int(after) > first
    finally:
        holder.communicate(timeout=LIMIT)


FORKED = """
import os, sys, warnings, locks
warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of forks where there are threads
with locks.transaction(timeout=60) as tx:
    first = tx.write_lock(("accounts", "ann"))
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            with locks.transaction() as own:
                own.write_lock(("accounts", "ann"), timeout=0.2)
            text = "both have it"
        except locks.LockTimeout as error:
            (holder,) = error.holders
            text = f"held by {holder.client.rpartition(' ')[2]}"
        except BaseException as error:
            text = repr(error)
        os.write(write, text.encode())
        os._exit(0)
    os.wait()
    print(os.read(read, 1000).decode() == f"held by {os.getpid()})")
"""


def test_a_forked_child_is_a_client_of_its_own(processes: Servers) -> None:
    """It starts with what its parent was started with, under another name, and sees the parent's locks."""
    assert processes.run(FORKED) == "True\n"


WATCHES = """
import os, locks, time
told = {}
locks.watch(("a",), watcher=lambda view: told.setdefault(view.node, view))
while len(told) < 2:
    time.sleep(0.01)
print(*sorted(told), flush=True)
while len(told) < 3:
    time.sleep(0.01)
print(*sorted(told))
"""


def test_what_is_watched_while_a_server_is_down(world: World) -> None:
    """Is watched on the other ones, and on that one when it is back: a majority is enough to look, too."""
    servers = Servers(world)
    port = servers.processes[0].address[1]
    servers.processes[0].kill()
    program = servers.program(WATCHES)
    try:
        assert program.stdout.readline() == f"{NAMES[1]} {NAMES[2]}\n"
        given = [f"--servers={','.join(servers.addresses)}"]
        world.server(NAMES[0], port=port, arguments=given)
        assert program.stdout.readline() == " ".join(NAMES) + "\n"
    finally:
        program.kill()
        program.communicate(timeout=LIMIT)


STAYS = """
import sys, time, locks

def on(node):
    try:
        return locks.holders(("report",), node=node)
    except locks.errors.NodeNotRunning:  # not yet connected again
        return ()

with locks.transaction(timeout=60) as tx:
    token = tx.write_lock(("report",))
    while not all(map(on, sys.argv[1:])):  # two suffice to have it, but then neither of them may go
        time.sleep(0.01)
    print("has it", flush=True)
    for line in sys.stdin:
        while not on(line.strip()):
            time.sleep(0.01)
        tx.ensure_held()
        print("has it on", line.strip(), flush=True)
    print(tx.token(("report",)) >= token)
"""


def test_a_lost_server_is_a_warning_at_the_others(world: World) -> None:
    """And that it is back. A program that loses it goes on with the others, and says nothing; a server that stops warns of nothing."""
    servers = Servers(world, net_ticktime=60)
    holder = servers.program(STAYS, arguments=NAMES)
    assert holder.stdout.readline() == "has it\n"
    servers.processes[0].kill()
    lost = f"lost the connection with server {NAMES[0]}"
    eventually(lambda: all(lost in each.errors() for each in servers.processes[1:]))
    servers.start_again(0)
    back = f"is connected with server {NAMES[0]} again"
    eventually(lambda: all(back in each.errors() for each in servers.processes[1:]))
    holder.kill()
    _, error = holder.communicate()
    assert error == ""
    servers.processes[1].process.terminate()
    assert servers.processes[1].process.wait(LIMIT) == 0
    assert servers.processes[1].errors().count("lost the connection") == 1


def test_the_configuration_is_shown(processes: Servers, tmp_path: Path) -> None:
    """`locks config` says what is used, and from where; the environment comes before the file."""
    (tmp_path / "locks.toml").write_text('name = "x@127.0.0.1"\nservers = ["y@127.0.0.1:9"]\n')
    cookie = tmp_path / "cookie"
    cookie.write_text("c" * 32)
    cookie.chmod(0o600)
    environment = {
        **os.environ,
        "LOCKS_SERVERS": processes.addresses[0],
        "LOCKS_COOKIE_FILE": str(cookie),
    }
    done = run_program(
        [sys.executable, "-m", "locks", "config", "--json"], cwd=tmp_path, env=environment
    )
    assert json.loads(done.stdout) == {
        "name": {"value": "x@127.0.0.1", "source": "locks.toml"},
        "servers": {"value": processes.addresses[:1], "source": "LOCKS_SERVERS"},
        "cookie_file": {"value": str(cookie), "source": "LOCKS_COOKIE_FILE"},
    }


def test_a_local_lock_among_others_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A node that meets others, and was not told where to lock, says that its locks are its own, and what to do."""
    try:
        node = locks.start("x@127.0.0.1", cookie="x" * 16)
        for _ in range(2):
            with locks.transaction() as tx:
                tx.write_lock(("a",))
        node.executor.call(bool)
        text = "x@127.0.0.1 takes locks in its own lock table"
        assert caplog.text.count(text) == 1
        assert "servers=[...]" in caplog.text
        assert "locks.HERE" in caplog.text
    finally:
        locks.stop()


# --- Agreement ----------------------------------------------------------------------------------

THREE = Known(NAMES, "majority")
TWO = Known(NAMES[:2], "majority")


def test_the_first_program_tells_a_server_what_it_is_one_of() -> None:
    """A server that was told nothing keeps to what the first one says, while somebody says so."""
    agreement = Agreement(None)
    assert agreement.take_scope("x@h", THREE) is None
    assert agreement.take_scope("y@h", TWO) == THREE
    assert agreement.take_scope("z@h", THREE) is None
    agreement.lost("x@h")
    assert agreement.take_scope("y@h", TWO) == THREE
    agreement.lost("z@h")
    assert agreement.take_scope("y@h", TWO) is None
    assert (
        agreement.take_scope("y@h", THREE) is None
    )  # it was the only one, and is another program now


def test_a_server_that_was_told_agrees_with_that_alone() -> None:
    """Also on how many are needed."""
    agreement = Agreement(THREE)
    assert agreement.take_scope("x@h", TWO) == THREE
    assert agreement.take_scope("x@h", Known(NAMES, "all")) == THREE
    assert agreement.take_scope("x@h", THREE) is None


@pytest.mark.parametrize(
    "names",
    [("nothing",), ("b@h", "a@h"), ("a@h", "a@h")],
)
def test_what_is_said_of_servers_is_checked(names: tuple[str, ...]) -> None:
    """Names of nodes, in their order."""
    good = _question(THREE)
    assert _servers(good) == THREE
    with pytest.raises(BadMessage):
        _servers(replace(good, nodes=names))


def test_what_is_said_of_copies_is_checked() -> None:
    """Fewer than there are servers, or 0."""
    good = _question(THREE)
    assert _servers(replace(good, copies=2)) == THREE._replace(copies=2)
    with pytest.raises(BadMessage):
        _servers(replace(good, copies=3))
