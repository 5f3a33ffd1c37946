"""Once for each lock id, with real processes: `locks run --once`, `locks.once`, servers that are killed and restarted."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.servers import LIMIT, NAMES, Servers, hear, locks, remember, tell
from tests.cluster.test_run import READY, begin, python, run
from tests.helpers import SEED, eventually
from tests.warm import run_program


def test_three_starts_one_after_the_other(servers: Servers) -> None:
    """The first one runs; the others are told by whom, and have a status of their own, or 0 on request."""
    assert run(servers, "--once", "nightly", "--", "echo", "ran") == (0, "ran\n", "")
    status, out, error = run(servers, "--once", "nightly", "--", "echo", "ran")
    assert (status, out) == (122, "")
    assert error.startswith("locks run: nightly is already done: by locks run echo (")
    status, out, _ = run(servers, "--once", "--ok-if-done", "nightly", "--", "echo", "ran")
    assert (status, out) == (0, "")
    assert run(servers, "--once", "nightly/2", "--", "echo", "another")[:2] == (0, "another\n")
    assert run(servers, "nightly", "--", "echo", "a lock")[:2] == (0, "a lock\n")


def test_a_command_that_fails_or_is_killed_runs_again(servers: Servers) -> None:
    """Its status is that of the command; the next one has a larger token, and is the last."""
    token = ["sh", "-c", "echo $LOCKS_TOKEN; exit $0"]
    status, first, _ = run(servers, "--once", "job", "--", *token, "7")
    assert status == 7
    killed = begin(servers, "--once", "job", "--", *python(READY))
    assert killed.stdout.readline() == "ready\n"
    killed.kill()
    killed.communicate()
    status, second, _ = run(servers, "--once", "job", "--", *token, "0")
    assert status == 0
    assert int(first) < int(second)
    assert run(servers, "--once", "job", "--", *token, "0")[:2] == (122, "")


def test_who_waits_for_the_runner_is_told_that_it_is_done(servers: Servers) -> None:
    """It waits, and runs nothing; with a time limit, it waits no longer."""
    first = begin(servers, "--once", "job", "--", *python("print('ready', flush=True); input()"))
    assert first.stdout.readline() == "ready\n"
    assert run(servers, "--once", "--timeout", "0", "job", "--", "echo", "never")[0] == 124
    second = begin(servers, "--once", "--label", "second", "job", "--", "echo", "never")
    eventually(lambda: "second" in locks(servers, "ps", "job").out, limit=LIMIT)
    first.communicate("over\n", timeout=LIMIT)
    assert first.returncode == 0
    out, _ = second.communicate(timeout=LIMIT)
    assert (second.returncode, out) == (122, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--once", "--read", "a", "--", "true"], "exclude each other"),
        (["--once", "--once-for", "soon", "a", "--", "true"], "--once-for soon is not a time"),
        (["--once", "--once-for", "0s", "a", "--", "true"], "remember=0.0 is wrong"),
        (["--ok-if-done", "a", "--", "true"], "need --once"),
    ],
)
def test_options_that_do_not_fit(arguments: list[str], said: str) -> None:
    """One sentence, and a status of its own."""
    command = [sys.executable, "-m", "locks", "run", "--servers", "local", *arguments]
    done = run_program(command)
    assert (done.returncode, done.stdout) == (125, "")
    assert said in done.stderr


@pytest.mark.slow
def test_servers_that_have_lost_their_memory_say_so(servers: Servers) -> None:
    """Two of three restart at once: nothing is run, and the error says why. When all begin anew, so does the work."""
    eventually(lambda: remember(servers), limit=LIMIT)
    for index in (0, 1):
        servers.processes[index].kill()
    for index in (0, 1):
        servers.start_again(index)
    status, out, error = run(servers, "--once", "--timeout", "5", "job", "--", "echo", "never")
    assert (status, out) == (125, "")
    assert "have begun without a memory" in error
    assert "begun without a memory" in locks(servers, "status").out
    for index in range(3):
        servers.restart(index)
    eventually(lambda: remember(servers), limit=LIMIT)
    assert run(servers, "--once", "job", "--", "true")[0] == 0


BETWEEN = """
import locks, sys
from locks.shapes.once import MarkAsker

ask = MarkAsker._ask

def ask_later(self, servers, mark=None):
    if mark is not None and not hasattr(MarkAsker, "said"):
        MarkAsker.said = True
        print("has read", flush=True)
        sys.stdin.readline()
    return ask(self, servers, mark)

MarkAsker._ask = ask_later
try:
    with locks.once(("job",)):
        pass
except locks.LocksError as error:
    print(type(error).__name__, error.__cause__ or "", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("done", [True, False])
def test_grants_are_over_between_reading_and_setting(servers: Servers, done: bool) -> None:
    """Who has found a mark reads it again, and is told that the work is done. Who has done the work is told at once that it may run again."""
    eventually(lambda: remember(servers), limit=LIMIT)
    if done:
        assert run(servers, "--once", "job", "--", "true")[0] == 0
    servers.processes[2].kill()
    program = servers.program(BETWEEN)
    assert program.stdout.readline() == "has read\n"
    servers.start_again(2)
    eventually(lambda: remember(servers), limit=LIMIT)
    servers.restart(0)
    eventually(lambda: remember(servers), limit=LIMIT)
    out, _ = program.communicate("\n", timeout=LIMIT)
    over = (
        "NotMarked the grants under which job was begun are over at {}, so too few are left: these servers were restarted, or "
        "lost the connection with this program\n"
    )
    assert out in ({"AlreadyDone \n"} if done else {over.format(name) for name in NAMES})


WORKS = """
import locks, sys
with locks.once(("job",)) as run:
    print("begins", flush=True)
    for line in sys.stdin:
        grants = run._asker._agent.machine.grants(run.lock_id)
        print(grants == run._asker._grants and len(grants) == 3, flush=True)
"""


@pytest.mark.slow
def test_each_server_is_restarted_in_turn_while_somebody_works(servers: Servers) -> None:
    """The lock is held throughout, so the work counts as done. A server is restarted when the program has noted the grant of the last one."""
    eventually(lambda: remember(servers), limit=LIMIT)
    program = servers.program(WORKS)
    assert program.stdout.readline() == "begins\n"

    def has_noted_all() -> bool:
        tell(program)
        return hear(program) == "True"

    for index in (0, 1, 2, 0):
        eventually(has_noted_all, limit=LIMIT)
        servers.restart(index)
        eventually(lambda: remember(servers), limit=LIMIT)
    eventually(has_noted_all, limit=LIMIT)
    assert program.communicate("", timeout=LIMIT) == ("", "")
    assert run(servers, "--once", "job", "--", "echo", "never")[:2] == (122, "")


def test_programs_of_one_machine(tmp_path: Path) -> None:
    """The lock server of the machine stays as long as it must remember something, although no program is connected."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "LOCKS_LOCAL_IDLE": "0.2"}
    tmp_path.chmod(0o700)

    def start() -> int:
        command = [sys.executable, "-m", "locks", "run", "--servers", "local", "--once"]
        command += ["--once-for", "1h", "nightly", "--", "true"]
        return run_program(command, env=environment).returncode

    assert [start() for _ in range(3)] == [0, 122, 122]
    shutil.rmtree(tmp_path / "locks")  # which ends the lock server


# --- Storms -------------------------------------------------------------------------------------

MANY = (
    5 * LIMIT
)  # seconds that the last ones of a storm have: each may wait for a lock, for what is read, and for what is set

STARTER = """
import json, os, random, signal, sys, time
import locks

def job(book, number, seed):
    rng = random.Random(seed)
    try:
        with locks.once(("storm",), timeout=20, label=f"start {number}") as run:
            os.write(book, f"begin {number} {run.token}\\n".encode())
            time.sleep(rng.random() * 0.3)
            if rng.random() < 0.8:
                raise ValueError
            run.ensure_held()
            os.write(book, f"end {number} {run.token}\\n".encode())
        said = "ran"
    except ValueError:
        said = "failed"
    except locks.AlreadyDone as error:
        said = f"done {error.token}"
    except locks.errors.NotMarked:
        said = "unmarked"
    except locks.LocksError as error:
        said = type(error).__name__
    os.write(book, f"over {number} {said}\\n".encode())

book = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for line in sys.stdin:
    number, seed = map(int, line.split())
    pid = os.fork()
    if not pid:
        job(book, number, seed)
        os._exit(0)
    print(pid, flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


def storm(servers: Servers, book: Path, starts: int, seed: int) -> Counter[str]:
    """Start the same work again and again, while runners and servers are killed; return what became of the starts.

    Raises:
        AssertionError: It was run after a success, or was left out.
    """
    rng = random.Random(seed)
    eventually(lambda: remember(servers), limit=LIMIT)
    program = servers.program(STARTER, arguments=[str(book)])
    pids: list[int] = []
    for number in range(starts):
        tell(program, f"{number} {rng.randrange(1 << 30)}")
        pids.append(int(hear(program)))
        time.sleep(rng.random() * 0.1)
        if rng.random() < 0.2:
            victim = rng.choice(pids[-8:])
            if Path(f"/proc/{victim}").exists():
                os.kill(victim, signal.SIGKILL)
        if number % max(4, starts // 6) == 2:
            index = rng.randrange(3)
            servers.processes[index].kill()
            if rng.random() < 0.5:
                time.sleep(rng.random() * 0.5)
            servers.start_again(index)
            eventually(lambda: remember(servers), limit=LIMIT)
    program.stdin.close()
    program.stdin = None
    program.communicate(timeout=MANY)
    last = servers.program(STARTER, arguments=[str(book)])
    last.communicate("".join(f"{starts + number} {number}\n" for number in range(8)), timeout=MANY)
    return judged(book.read_text().splitlines())


def judged(lines: list[str]) -> Counter[str]:
    """What became of the starts, by their book."""
    told: Counter[str] = Counter()
    done = ""  # the token of the run that has succeeded, as far as anybody was told
    tokens = [int(line.split()[2]) for line in lines if line.startswith("begin")]
    assert tokens == sorted(set(tokens)), "a later run has no larger token"
    ended: dict[str, str] = {}
    began: dict[str, str] = {}
    for line in lines:
        what, number, *rest = line.split()
        if what == "begin":
            assert not done, f"start {number} ran after the work was done: {lines}"
            began[number] = rest[0]
        elif what == "end":
            ended[number] = rest[0]
        else:
            told[rest[0]] += 1
            if rest[0] in ("ran", "done"):
                token = began[number] if rest[0] == "ran" else rest[1]
                assert done in ("", token), f"two runs have succeeded: {lines}"
                assert token in ended.values(), f"work counts as done that was not done: {lines}"
                done = token
    assert done, f"the work was left out: {lines}"
    return told


@pytest.mark.slow
def test_a_storm_of_starts(servers: Servers, tmp_path: Path) -> None:
    """Starts at random moments, with runners and servers killed: nothing runs after a success, and the work is not left out."""
    told = storm(servers, tmp_path / "book", 10, SEED)
    assert told["done"] > 0


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["begin 1 5", "end 1 5", "over 1 ran", "begin 2 6"], "after the work was done"),
        (["begin 1 5", "over 1 ran"], "that was not done"),
        (["begin 1 5", "over 1 failed"], "left out"),
        (["begin 2 6", "begin 1 5"], "larger token"),
    ],
)
def test_the_judge_of_storms(lines: list[str], wrong: str) -> None:
    """It catches what must not be."""
    with pytest.raises(AssertionError, match=wrong):
        judged(lines)
