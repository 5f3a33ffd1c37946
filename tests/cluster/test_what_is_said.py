"""What a client is told that did something wrong, or whose servers do: the whole text, as a newcomer reads it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import locks
from locks.cli.printing import IN_OPTIONS, in_options
from locks.core.agent.requests import cannot_serve
from tests.cluster.harness import COOKIE
from tests.cluster.servers import NAMES, Servers, process
from tests.cluster.test_servers import HOLDER, once
from tests.helpers import free_port
from tests.warm import run_program

A, B, C = NAMES
ALL = ", ".join(NAMES)


def said(text: str) -> str:
    """What a program prints, but for what is another one each time; without what is logged."""
    text = re.sub(r"client-\d+-[0-9a-f]+@\S+?(?=[ ,;):]|$)", "CLIENT", text.splitlines()[0])
    text = re.sub(r"pid \d+", "pid N", re.sub(r"agent-\d+@", "agent-N@", text))
    return re.sub(r"since .*? UTC, from 127.0.0.1:\d+", "since T, from X", text)


def check_refused(text: str, reason: str) -> None:
    """A majority of the servers has said why; nobody waits for the others."""
    head, *reasons = text.split(". ")
    assert re.fullmatch(
        "CannotServe can't lock accounts/ann: [abc@1270., ]+ do not serve this program", head
    )
    assert len(reasons) >= 2
    assert set(reasons) <= {f"{name}: {reason.format(name=name)}" for name in NAMES}


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
        f"CannotServe can't lock accounts/ann: {A} does not serve this program. {A}: {A} has the servers {ALL} "
        f"and require='majority', but CLIENT was started with the servers {A} and require='all'. "
        "Start all programs with the same: otherwise two programs could hold the same lock"
    )


def test_another_cookie(processes: Servers) -> None:
    """It is the cookie, and whose."""
    start = "import locks\nlocks.start(cookie='another_cookie_of_16')\n"
    text = said(processes.run(once().replace("import locks\n", start)))
    check_refused(
        text, "it answered not_allowed: {name} has another cookie; all nodes need the same one"
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
        f"CannotServe can't lock accounts/ann: {A} does not serve this program. {A}: found {B} there instead of {A}; the "
        "name or the address is wrong"
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
        "it answered not_allowed: another program has been connected as me@127.0.0.1 since T, from X; give each program a "
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


WRONG = [
    (["run", "--servers", "a@127.0.0.1:1", "x", "--", "true"], 125, "locks run: can't lock x: a@127.0.0.1 is not running (running: CLIENT); start them, or name the right servers with --servers. No answer from a@127.0.0.1 at 127.0.0.1:1"),
    (["elect", "--timeout", "0.1", "--servers", "a@127.0.0.1:1", "x", "--", "true"], 124, "locks elect: too few lock servers answer; waiting for them (see --servers)"),
    (["why", "x", "--servers", "a@127.0.0.1:1"], 3, "no answer from a@127.0.0.1: can't be reached at 127.0.0.1:1: [Errno 111] Connection refused"),
    (["status", "--servers", "a"], 2, "locks status: peer 'a' has the wrong form; use \"name@host:port\"; the port can be left out only with LOCKS_EPMD=1"),
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
        "locks status: a node that accepts connections needs a cookie, a secret that all its peers share: pass a file "
        "with --cookie-file, or set LOCKS_COOKIE_FILE; there is no default\n"
    )


def test_what_is_said_otherwise_in_commands() -> None:
    """Each text that commands replace is one of an error that is raised, and no error is left with advice for programs."""
    given: list[dict[str, Any]] = [
        {"cookie": None, "listen": 9100},
        {"cookie": COOKIE, "peers": ["b@192.0.2.1:9100"]},
        {"cookie": COOKIE, "peers": ["b@127.0.0.1"]},
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
