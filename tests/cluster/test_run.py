"""`locks run`: a command under a lock, with real processes and real lock servers."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, Servers, locks
from tests.helpers import eventually
from tests.warm import Program


def begin(servers: Servers, *arguments: str, **environment: str) -> Program:
    """Begin `locks run` with some arguments."""
    return Program(
        [sys.executable, "-m", "locks", "run", *arguments], env=servers.environment() | environment
    )


def run(servers: Servers, *arguments: str) -> tuple[int, str, str]:
    """Run it to its end: its exit status, and what it has printed."""
    program = begin(servers, *arguments)
    out, error = program.communicate(timeout=LIMIT)
    return program.returncode, out, error


@contextlib.contextmanager
def running(servers: Servers, *arguments: str) -> Iterator[Program]:
    """While it runs; its first line is read."""
    program = begin(servers, *arguments)
    try:
        assert program.stdout.readline() == "ready\n"
        yield program
    finally:
        program.kill()
        program.communicate(timeout=LIMIT)


def python(code: str) -> list[str]:
    """A command that runs a few lines."""
    return [sys.executable, "-c", textwrap.dedent(code)]


READY = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.mark.slow
def test_commands_exclude_each_other(processes: Servers, tmp_path: Path) -> None:
    """Six commands that count up at the same time: nothing is lost, and each has a larger token than the one before."""
    book = tmp_path / "book"
    book.write_text("")
    code = f"""
    import os, time
    lines = open({str(book)!r}).read()
    time.sleep(0.05)
    open({str(book)!r}, "w").write(lines + os.environ["LOCKS_TOKEN"] + "\\n")
    """
    programs = [begin(processes, "book", "--", *python(code)) for _ in range(6)]
    assert [program.wait(LIMIT) for program in programs] == [0] * 6
    for program in programs:
        program.communicate()
    tokens = [int(line) for line in book.read_text().splitlines()]
    assert len(tokens) == 6
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["./nothing-here"], 127),
        ([os.curdir], 126),
        (["./" + 300 * "x"], 126),  # too long for the file system, and as a label
        (["/line\nbreak"], 127),
        (["true"], 0),
    ],
)
def test_the_exit_status_is_that_of_the_command(
    processes: Servers, command: list[str], status: int
) -> None:
    """Also when a signal has ended it, and when it is none."""
    assert run(processes, "status", "--", *command)[0] == status


def test_it_has_input_and_output(processes: Servers) -> None:
    """The command has those of `locks run`; a reader has no token."""
    program = begin(processes, "--read", "data", "--", "sh", "-c", "cat; env | grep -c LOCKS_TOKEN")
    assert program.communicate("one\ntwo\n", timeout=LIMIT) == ("one\ntwo\n0\n", "")


def test_who_waits_in_vain(processes: Servers) -> None:
    """Readers share; a writer that waits no longer than it may is told who has the lock, and runs nothing."""
    with running(processes, "--read", "a/b", "--", *python(READY)):
        assert run(processes, "--read", "a/b", "--", "echo", "beside") == (0, "beside\n", "")
        status, out, error = run(processes, "--timeout", "0.1", "a", "--", "echo", "never")
        assert (status, out) == (124, "")
        assert error.startswith("locks run: timed out after ")
        assert "locks run" in error.split("held by", 1)[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "--kill-after", "nan", "--", "true"], "--kill-after nan is not a number of seconds"),
        (["(1", "--", "true"], "is not a Python tuple"),
        (["a//b", "--", "true"], "has an empty element"),
        (["--servers", "here", "a", "--", "true"], "no lock servers configured"),
        (["--servers", "x@127.0.0.1:1", "--timeout", "1", "a", "--", "true"], "x@127.0.0.1"),
    ],
)
def test_what_cannot_be_locked(processes: Servers, arguments: list[str], said: str) -> None:
    """One sentence, and a status of its own."""
    status, out, error = run(processes, *arguments)
    assert (status, out) == (125, "")
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_signals_are_passed_on(processes: Servers, name: str) -> None:
    """The command gets them, and `locks run` goes on until it has ended."""
    code = f"""
    import signal, sys, time
    signal.signal(signal.{name}, lambda *_: sys.exit(5))
    print("ready", flush=True)
    while True:
        time.sleep(0.05)  # a signal that comes just before one sleep is seen after it
    """
    with running(processes, "signals", "--", *python(code)) as program:
        program.send_signal(getattr(signal, name))
        assert program.wait(LIMIT) == 5


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_a_signal_while_it_waits(processes: Servers, name: str) -> None:
    """It ends at once, runs nothing, and waits no more for the lock."""
    with running(processes, "busy", "--", *python(READY)) as holder:
        waits = begin(processes, "busy", "--label", f"waits {name}", "--", "echo", "never")
        eventually(lambda: f"waits {name}" in locks(processes, "ps", "busy").out)
        waits.send_signal(getattr(signal, name))
        assert waits.communicate(timeout=LIMIT) == ("", "")
        assert waits.returncode == 128 + getattr(signal, name)
        eventually(lambda: " waits " not in locks(processes, "ps", "busy").out)
        assert holder.poll() is None


def test_signals_while_it_leaves(processes: Servers) -> None:
    """Who is told to end again and again ends as if it were told once."""
    with running(processes, "busy", "--", *python(READY)):
        program = begin(processes, "--label", "impatient", "busy", "--", "echo", "never")
        eventually(lambda: "impatient" in locks(processes, "ps").out)
        while program.poll() is None:
            program.send_signal(signal.SIGTERM)
        assert program.communicate(timeout=LIMIT) == ("", "")
        assert program.returncode == 143


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_lock_that_is_lost(stubborn: bool) -> None:
    """The command is asked to end, and killed if it does not; nobody else can have the lock by then."""
    code = f"""
    import signal, time
    if {stubborn}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        time.sleep(0.05)  # a signal that comes just before one sleep is seen after it
    """
    with World() as world:
        servers = Servers(world)
        with running(servers, "--kill-after", "0.1", "lost", "--", *python(code)) as program:
            for server in servers.processes[:2]:
                server.kill()
            assert program.wait(LIMIT) == 123
            assert "locks run: " in program.stderr.read()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_the_command_ends_with_it(processes: Servers) -> None:
    """`locks run` is killed: nobody has the lock for the command any more, and it is ended."""
    code = "import os, time; print('ready', flush=True); print(os.getpid(), flush=True); time.sleep(600)"
    with running(processes, "orphan", "--", *python(code)) as program:
        pid = int(program.stdout.readline())
        program.kill()
        program.wait()
        eventually(lambda: not Path(f"/proc/{pid}").exists())
