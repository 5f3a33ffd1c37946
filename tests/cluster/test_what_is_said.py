"""What a client is told that did something wrong, or whose servers do: the whole text, as a newcomer reads it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import locks
from locks.cli.printing import IN_OPTIONS, in_options
from locks.core.agent.requests import cannot_serve
from locks.net.network import Network
from locks.program.folder import Folder
from tests.cluster.conftest import Certify
from tests.cluster.harness import COOKIE, World
from tests.cluster.servers import NAMES, Servers, process
from tests.cluster.servers import locks as command
from tests.cluster.test_server_metrics import status_of
from tests.cluster.test_servers import HOLDER, once
from tests.helpers import eventually, free_port, without_settings
from tests.warm import run_program

A, B, C = NAMES
ALL = ", ".join(NAMES)


def said(text: str) -> str:
    """What a program prints, but for what is another one each time; without what is logged."""
    text = re.sub(r"client-\d+-[0-9a-f]+@\S+?(?=[ ,;):]|$)", "CLIENT", text.splitlines()[0])
    text = re.sub(r"pid \d+", "pid N", re.sub(r"agent-\d+@", "agent-N@", text))
    return re.sub(r"since .*? UTC, from 127.0.0.1:\d+", "since T, from X", text)


def check_refused(text: str, reason: str) -> None:
    """A majority of the servers has said why, once for all that have; nobody waits for the others."""
    head, why = text.split(". ", 1)
    assert re.fullmatch(
        "CannotServe can't lock accounts/ann: [abc@1270., ]+ do not serve this program", head
    )
    refusing: list[str] = []
    for each in why.split(". "):  # a name that is taken is so since another time at each server
        names, said_why = each.split(": ", 1)
        together = names.replace(" and ", ", ").split(", ")
        assert said_why == reason.format(name=together[0])
        refusing += together
    assert len(refusing) >= 2
    assert set(refusing) <= {*NAMES}


@pytest.mark.parametrize("timeout", [0, 0.2])
def test_who_has_it(processes: Servers, tmp_path: Path, timeout: float) -> None:
    """A wait that ran out, and a try: by name, with the line where it began, its program and its process."""
    program = tmp_path / "batch.py"
    program.write_text(HOLDER)
    environment = processes.environment()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, program], env=environment, stdin=pipe, stdout=pipe
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        text = said(processes.run(once(timeout=timeout)))
        holder.kill()
    what = "timed out after 0.2 s waiting for write accounts/ann,"
    if timeout == 0:
        what = "could not get the write lock on accounts/ann without waiting:"
    assert (
        text
        == f"LockTimeout {what} held by MainThread at batch.py:3 (batch.py, pid N) (agent-N@CLIENT)"
    )


def test_other_servers(processes: Servers) -> None:
    """Both lists are there, and why they have to be the same."""
    text = said(processes.run(once(), processes.addresses[:1]))
    assert text == (
        f"CannotServe can't lock accounts/ann: {A} does not serve this program. {A} has the servers {ALL} "
        f"and require='majority', but CLIENT was started with the servers {A} and require='all'. "
        "Start all programs with the same: otherwise two programs could hold the same lock"
    )


def test_another_cookie(processes: Servers) -> None:
    """It is the cookie, and whose."""
    start = "import locks\nlocks.start(cookie='another_cookie_of_16')\n"
    text = said(processes.run(once().replace("import locks\n", start)))
    check_refused(
        text, "it refused the connection: {name} has another cookie; all nodes need the same one"
    )


def test_another_port(processes: Servers) -> None:
    """Where it was looked for, and that nobody is there."""
    port = free_port()
    text = said(processes.run(once(timeout=5), [f"{A}:{port}"]))
    assert text == (
        f"CannotServe can't lock accounts/ann: {A} is not running (running: CLIENT); use other nodes, or "
        f"await_nodes=True to wait for these. No answer from {A} at 127.0.0.1:{port}"
    )


def test_the_port_of_another_server(processes: Servers) -> None:
    """Who is there instead."""
    port = processes.addresses[1].rpartition(":")[2]
    text = said(processes.run(once(timeout=5), [f"{A}:{port}"]))
    assert text == (
        f"CannotServe can't lock accounts/ann: {A} does not serve this program. {A}: it refused the connection: found {B} "
        f"there instead of {A}; the name or the address is wrong"
    )


def test_a_port_in_nodes(processes: Servers) -> None:
    """Names of nodes have none; it is said where ports belong."""
    address = processes.addresses[0]
    text = said(processes.run(once(more=f", nodes=['{address}']")))
    assert text == (
        f"InvalidOption nodes={address} has a port; write only the name, {A}. The address belongs in servers= "
        "or peers= of locks.start"
    )


def test_a_name_that_is_taken(processes: Servers) -> None:
    """The second program is told since when and from where the first one is connected, by each server."""
    start = "import locks\nlocks.start('me@127.0.0.1')\n"
    first = processes.program(HOLDER.replace("import sys, locks\n", f"import sys\n{start}"))
    try:
        assert first.stdout is not None
        assert first.stdout.readline()
        text = said(processes.run(once(timeout=5).replace("import locks\n", start)))
    finally:
        first.kill()
        first.communicate()
    check_refused(
        text,
        "it refused the connection: another program has been connected as me@127.0.0.1 since T, from X; give each program a "
        "unique name",
    )


FORKED = """
import os, locks
{start}
with locks.transaction() as tx:
    tx.write_lock(("x",))
    if os.fork() == 0:
        try:
            {use}
        except locks.LocksError as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize(
    ("start", "use", "text"),
    [
        ("", 'tx.write_lock(("y",))', "TransactionEnded can't use transaction agent-N@CLIENT: it belongs to the parent process; begin a new one here"),
        (
            "locks.start('x@127.0.0.1')",
            "locks.holders(('x',))",
            "MisuseError can't use node x@127.0.0.1 here: it belongs to the parent process; call locks.start(...) here, "
            "with another name, or without a name as a client of servers=[...]",
        ),
    ],
    ids=["transaction", "name"],
)  # fmt: skip
def test_in_a_forked_child(processes: Servers, start: str, use: str, text: str) -> None:
    """What belongs to the parent says so, and so does a name that the parent has."""
    assert said(processes.run(FORKED.format(start=start, use=use))) == text


def test_a_lock_server_that_is_told_to_keep_to_itself() -> None:
    """It is said what `here` means, and what to do instead."""
    done = run_program(
        [sys.executable, "-m", "locks", "node", "--name", A, "--cookie-file", "none"],
        env={**os.environ, "LOCKS_SERVERS": "here"},
    )
    assert done.returncode == 2
    assert done.stderr == (
        'locks node: servers = "here" is for programs with private locks, not for a lock server, which other '
        "programs share: list all servers as name@host:port, or list none here and all of them in the programs\n"
    )


# --- Nothing that works for one program alone is green ------------------------------------------------

ALONE = 'no lock servers configured: {}. Set LOCKS_SERVERS=local or call locks.start(servers="local"), or name servers=[...] on several machines; if this is the only program, set LOCKS_SERVERS=here or call locks.start(servers=locks.HERE)'
LEADS = "each program that takes part in 'job' would lead"
SHARED_THINGS = {
    "run": "locks_leader.Election('job').run(lambda leading: print('led'))",
    "start": "locks_leader.Election('job', on_elected=print).start()",
    "decorator": "locks_leader.Election('job')(lambda leading: print('led'))()",
    "aio": "from locks_leader import aio; asyncio.run(aio.Election('job').run(lambda leading: asyncio.sleep(0)))",
    "behaviour": "locks_leader.start(locks_leader.Behaviour, resource='job')",
    "ownership": "locks_leader.Ownership('job').join()",
}


def alone(code: str, folder: Path, **environment: str) -> str:
    """What a program without servers prints."""
    text = f"import asyncio, locks, locks_leader\ntry:\n    {code}\n    print('done')\nexcept locks.LocksError as error:\n    print(type(error).__name__, error)\nlocks.stop()"
    done = run_program(
        [sys.executable, "-c", text], env=without_settings() | environment, cwd=folder
    )
    return done.stdout.strip()


@pytest.mark.parametrize("what", SHARED_THINGS)
def test_without_servers(what: str, tmp_path: Path) -> None:
    """What is for several programs is refused in one that is alone, unless it says so."""
    said_alone = alone(SHARED_THINGS[what], tmp_path)
    subject = "('locks.ownership', 'job')" if what == "ownership" else "'job'"
    leads = LEADS.replace("'job'", subject)
    assert said_alone == f"MisuseError {ALONE.format(leads)}"
    # Who is told that it leads may print that later than the program its last line.
    assert "done" in alone(SHARED_THINGS[what], tmp_path, LOCKS_SERVERS="here").splitlines()
    meant = f"locks.start(servers=locks.HERE); {SHARED_THINGS[what]}"
    assert "done" in alone(meant, tmp_path).splitlines()


def test_without_servers_after_a_lock(tmp_path: Path) -> None:
    """A node that runs already can be said to be alone on purpose."""
    after = f"locks.Lock(('a',)).acquire(); locks.start(servers=locks.HERE); {SHARED_THINGS['run']}"
    assert "done" in alone(after, tmp_path).splitlines()


WAITS = """
import locks, locks_leader, time
def lead(leading):
    print("leads", flush=True)
    input()
try:
    locks_leader.Election("job").run(lead, timeout={timeout})
except locks.LocksError as error:
    print(type(error).__name__, error)
"""


def test_an_election_that_waits_for_servers_says_so(processes: Servers) -> None:
    """Within two seconds, in the log, with each server's reason; the timeout says the same."""
    why = "0 of 1 lock servers serve this program; 1 is needed. a@127.0.0.1: can't be reached at 127.0.0.1:1: [Errno 111] Connection refused"
    lines = processes.run(WAITS.format(timeout=2), [f"{A}:1"]).splitlines()
    assert lines == [
        f"LeaderTimeout timed out after 2 s waiting to be elected in 'job': {why}",
        f"waiting to be elected in 'job': {why}",
    ]


def test_an_election_with_another_list_or_cookie(processes: Servers) -> None:
    """The reason is there once for all servers."""
    text = said(processes.run(WAITS.format(timeout=2), processes.addresses[:2]))
    assert text == (
        f"LeaderTimeout timed out after 2 s waiting to be elected in 'job': 0 of 2 lock servers serve this program; 2 are needed. {A} and {B} "
        f"have the servers {ALL}, but CLIENT was started with the servers {A}, {B}. "
        "Start all programs with the same: otherwise two programs could hold the same lock"
    )
    start = "import locks\nlocks.start(cookie='another_cookie_of_16')\n"
    text = said(processes.run(start + WAITS.format(timeout=2)))
    assert text == (
        f"LeaderTimeout timed out after 2 s waiting to be elected in 'job': 0 of 3 lock servers serve this program; 2 are needed. {A}, {B} and "
        f"{C}: it refused the connection: {A} has another cookie; all nodes need the same one"
    )


def test_an_election_that_another_program_leads(processes: Servers) -> None:
    """It is said who."""
    leader = processes.program(WAITS.format(timeout=30))
    try:
        assert leader.stdout.readline() == "leads\n"
        text = said(processes.run(WAITS.format(timeout=1)))
    finally:
        leader.kill()
        leader.communicate()
    assert (
        text
        == "LeaderTimeout timed out after 1 s waiting to be elected in 'job': candidate (-c, pid N) (agent-N@CLIENT) leads"
    )


def test_a_status_that_another_list_has(processes: Servers) -> None:
    """It is what a program with these settings gets: no lock."""
    servers = ["--servers", ",".join(processes.addresses[:2])]
    done = command(processes, "status", "--json", *servers)
    told = json.loads(done.out)
    assert (done.status, told["enough"], told["once"], told["answered"]) == (1, False, False, 2)
    assert list(told["refusing"]) == [A, B]
    assert (
        "2 of 2 lock servers answer, but 2 of these will not serve this program; 2 are needed: locks can NOT be taken."
        in told["error"]
    )
    assert f"{A} and {B} have the servers {ALL}, but" in told["error"]


def test_what_nobody_can_do_once() -> None:
    """Two of three have begun without a memory: status, /readyz and metrics say so, and what to do."""
    why = "begun without a memory"
    with World() as world:
        ports = dict(zip(NAMES, [free_port() for _ in NAMES], strict=True))

        class Metered(Servers):
            def options(self, name: str) -> list[str]:
                return [f"--metrics=127.0.0.1:{ports[name]}"]

        def page(name: str, path: str) -> tuple[int, str]:
            return status_of(f"http://127.0.0.1:{ports[name]}/{path}")

        servers = Metered(world)
        eventually(lambda: command(servers, "status").status == 0)
        eventually(lambda: all(page(name, "readyz")[0] == 200 for name in NAMES))
        for index in (0, 1):
            servers.processes[index].kill()
        for index in (0, 1):
            servers.start_again(index)
        done = command(servers, "status")
        assert done.status == 1
        assert (
            f"Nothing can be done once (locks.once): {A} and {B} have {why}, and the others have not told what is done"
            in done.out
        )
        assert "restart all of them to begin anew" in done.out
        assert "locks can be taken" in done.out
        told = json.loads(command(servers, "status", "--json").out)
        assert (told["enough"], told["once"], told["forgetful"]) == (True, False, [A, B])
        eventually(lambda: "2 are needed; a@127.0.0.1 has begun" in page(A, "readyz")[1])
        assert page(A, "readyz")[0] == 503
        assert page(C, "readyz")[0] == 200
        assert "locks_memory_ready 0.0" in page(B, "metrics")[1]
        assert "locks_memory_ready 1.0" in page(C, "metrics")[1]
        for index in range(3):
            servers.restart(index)
        eventually(lambda: command(servers, "status").status == 0)
        eventually(lambda: page(A, "readyz")[0] == 200)


# --- Servers ------------------------------------------------------------------------------------------


def node(*arguments: str, cwd: Path) -> str:
    """What a lock server prints that does not start."""
    command = [sys.executable, "-m", "locks", "node", *arguments]
    done = run_program(command, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


@pytest.fixture
def cookie(tmp_path: Path) -> str:
    """A file with a cookie."""
    file = tmp_path / "cookie"
    file.touch(0o600)
    file.write_text("a_cookie_of_16_or_more")
    return f"--cookie-file={file}"


@pytest.mark.parametrize("more", [[], ["--servers=a@127.0.0.1:9100"]], ids=["alone", "listed"])
def test_a_port_in_the_name_of_a_server(more: list[str], cookie: str, tmp_path: Path) -> None:
    """It is the name, and where the address belongs."""
    assert node("--name", "a@127.0.0.1:9100", cookie, *more, cwd=tmp_path) == (
        "locks node: the node's name a@127.0.0.1:9100 has a port; the name is a@127.0.0.1; the address is another option, "
        "--listen or listen=: 127.0.0.1:9100\n"
    )


def test_a_server_with_the_certificate_of_another_host(
    certify: Certify, cookie: str, tmp_path: Path
) -> None:
    """It does not start: all others would refuse it."""
    tls = certify("elsewhere", "10.0.0.7")
    files = [str(each) for each in (tls.certificate, tls.key, tls.ca)]
    assert node("--name", "a@127.0.0.1", cookie, "--tls", *files, cwd=tmp_path) == (
        f"locks node: the certificate {tls.certificate} is for 10.0.0.7, but this node is a@127.0.0.1, so all other nodes would refuse it: "
        "make one with `locks certificates 127.0.0.1`, or name the node after a host that it is for\n"
    )


def test_a_server_with_a_random_port(cookie: str, tmp_path: Path) -> None:
    """It is said, and how to choose one."""
    command = [sys.executable, "-m", "locks", "node", "--name", "a@127.0.0.1", cookie]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        at = f"127.0.0.1:{json.loads(server.stdout.readline())['port']}"
        server.terminate()
        assert server.stderr.readline() == (
            f"locks node: a@127.0.0.1 listens at {at}, a free port that is another one at the next start; choose one with --listen {at}\n"
        )


# --- Sentences ----------------------------------------------------------------------------------------


def test_servers_that_are_down_while_a_program_waits_for_them(processes: Servers) -> None:
    """Nobody holds the lock: servers are missing."""
    down = [f"{A}:1", f"{B}:1"]
    assert said(processes.run(AWAITS, down)) == (
        f"LockTimeout timed out after 0.3 s waiting for write a: too few lock servers are up, no answer from {A} and {B}"
    )


AWAITS = """
import locks
agent, _ = locks.original.begin_transaction(await_nodes=True)
try:
    agent_held = locks.original.lock(agent, ("a",), timeout=0.3)
except locks.LocksError as error:
    print(type(error).__name__, error)
"""


def test_how_many_servers_are_needed(processes: Servers) -> None:
    """One is, two are."""
    done = command(processes, "status", "--servers", processes.addresses[0])
    assert "; 1 is needed: locks can NOT be taken." in done.out
    assert "; 2 are needed: locks can be taken." in command(processes, "status").out


def test_where_a_program_of_this_machine_is() -> None:
    """It has no port."""
    link = SimpleNamespace(address=("process 9710 of this machine", 0))
    network: Any = SimpleNamespace(links={A: link})
    assert Network.address_of(network, A) == "process 9710 of this machine"


def test_a_path_that_is_too_long_for_a_socket(tmp_path: Path) -> None:
    """It is said how long it may be."""
    folder = Folder(tmp_path / ("x" * 120))
    with pytest.raises(
        locks.errors.OperatingError, match=r"bytes with the socket's name, more than 10\d\. Set "
    ):
        folder.make()


def test_a_semaphore_that_the_caller_has(tmp_path: Path) -> None:
    """It is no Lock, and an RLock is no help."""
    text = alone(
        "s = locks.Semaphore(('s',), 2); s.acquire(); s._acquire(None, True, __import__('locks.runtime.leaving').runtime.leaving.Hold(s))",
        tmp_path,
    )
    assert text.startswith(
        "MisuseError can't acquire s*2: the caller already holds a unit of it, and each client of a Semaphore holds at most one. If another"
    )
    assert "locks.Semaphore(..., owner=" in text


def test_settings_that_start_refuses(tmp_path: Path) -> None:
    """`locks config` refuses them, too; and shows the rest."""
    command = [sys.executable, "-m", "locks", "config"]
    known = without_settings()
    missing = tmp_path / "none"
    settings = {"LOCKS_SERVERS": "a@127.0.0.1:9100", "LOCKS_COOKIE_FILE": str(missing)}
    done = run_program(command, env=known | settings, cwd=tmp_path)
    assert done.returncode == 2
    assert "a@127.0.0.1:9100    from LOCKS_SERVERS" in done.stdout
    assert done.stderr.startswith("locks config: can't read the cookie:")
    done = run_program(command, env=known | {"LOCKS_SERVERS": "a@127.0.0.1:9100"}, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "locks config: a client of lock servers needs a cookie, a secret that all nodes share: pass a file with --cookie-file, or set "
        "LOCKS_COOKIE_FILE; there is no default\n"
    )
    settings = {"LOCKS_SERVERS": "local", "LOCKS_REQUIRE": "foo"}
    done = run_program(command, env=known | settings, cwd=tmp_path)
    assert (done.returncode, "unknown requirement 'foo'" in done.stderr) == (2, True)


WRONG = [
    (["run", "--servers", "a@127.0.0.1:1", "x", "--", "true"], 125, "locks run: can't lock x: a@127.0.0.1 is not running (running: CLIENT); start them, or name the right servers with --servers. No answer from a@127.0.0.1 at 127.0.0.1:1"),
    (["elect", "--timeout", "0.1", "--servers", "a@127.0.0.1:1", "x", "--", "true"], 124, "locks elect: timed out after 0.1 s waiting to be elected in 'x': 0 of 1 lock servers serve this program; 1 is needed. a@127.0.0.1: can't be reached at 127.0.0.1:1: [Errno 111] Connection refused"),
    (["why", "x", "--servers", "a@127.0.0.1:1"], 3, "no answer from a@127.0.0.1: can't be reached at 127.0.0.1:1: [Errno 111] Connection refused"),
    (["status", "--servers", "a"], 2, "locks status: lock server 'a' is not of the form \"name@host:port\", such as a@10.0.0.1:9100"),
    (["run", "--servers", "a@10.0.0.1:1", "x", "--", "true"], 125, "locks run: a node that connects to 10.0.0.1 is open to the network: use TLS (--tls, or LOCKS_TLS_CERTIFICATE and so on; `locks certificates` makes them), or set LOCKS_ALLOW_PLAINTEXT=1 if the network is yours alone"),
    (["ps", "--servers", "a@127.0.0.1:1", "--tls", "c", "k", "ca"], 2, "locks ps: can't set up TLS with c and k: there is no c, k, ca. A certificate, its key, and the certificate of the CA must be PEM files"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "status", "text"), WRONG, ids=lambda value: str(value)[:40])
def test_a_command_says_what_helps_those_who_run_it(
    processes: Servers, arguments: list[str], status: int, text: str
) -> None:
    """It speaks of options, not of the arguments of functions; and claims nothing of servers that it has not reached."""
    done = process(processes, *arguments)
    assert done.status == status
    assert said(done.error) == text
    if arguments[0] == "why":
        assert done.out == ""


def test_a_command_without_a_cookie(tmp_path: Path) -> None:
    """It says which option has one."""
    done = run_program(
        [sys.executable, "-m", "locks", "status", "--servers", "a@127.0.0.1:1"], cwd=tmp_path
    )
    assert done.stderr == (
        "locks status: a client of lock servers needs a cookie, a secret that all nodes share: pass a file "
        "with --cookie-file, or set LOCKS_COOKIE_FILE; there is no default\n"
    )


def test_what_is_said_otherwise_in_commands() -> None:
    """Each text that commands replace is one of an error that is raised, and no error is left with advice for programs."""
    given: list[dict[str, Any]] = [
        {"cookie": None, "listen": 9100},
        {"cookie": COOKIE, "peers": ["b@192.0.2.1:9100"]},
    ]
    texts = [str(cannot_serve(("a",), [A], [B]))]
    for options in given:
        with pytest.raises(locks.errors.InvalidOption) as error:
            locks.start(A, **options)
        texts.append(str(error.value))
    assert [each for each in IN_OPTIONS if not any(each in text for text in texts)] == []
    for text in texts:
        assert re.search(r"\w=(True|\.\.\.)|start\(|locks\.", text), text
        assert not re.search(r"\w=(True|\.\.\.)|start\(|locks\.", in_options(text)), text
