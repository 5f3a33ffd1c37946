"""Programs of many processes, as their managers run them: the recipes of the page, and what goes wrong with processes."""

from __future__ import annotations

import ast
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.managed import (
    EXAMPLES,
    Managed,
    answers,
    managed,
    numbers,
    post,
    recipes,
    run,
    web,
)
from tests.cluster.servers import LIMIT, Machine, Servers
from tests.helpers import eventually, needs
from tests.warm import run_program

needs("gunicorn", "uvicorn", "uvicorn_worker", "flask", "starlette", "celery", "apscheduler")

CLIENTS, EACH = 4, 10
ALL = list(range(1, CLIENTS * EACH + 1))

# The program has used a lock when its manager forks.
EAGER = """
import locks
with locks.transaction(timeout=30) as tx:
    tx.write_lock(("elsewhere",))
from {module} import app
"""
HOLD = """
def hold_it(*_):
    with locks.transaction(timeout=30) as tx:
        tx.write_lock(("invoices",))
        with open("held", "a") as held:
            print(os.getpid(), file=held)
        while not os.path.exists("release"):
            time.sleep(0.01)
    return "released"
"""
HOLDING_WEB = f"""
import os, time, locks
from web import app
{HOLD}
app.post("/hold")(hold_it)
"""


# --- The recipes ----------------------------------------------------------------------------------------


ELSEWHERE = {"python cron.py"}  # has a test of its own


def cases(*managers: str, quick: str) -> list[object]:
    """The page's commands of these managers; all but one take part in `make explore` only."""
    commands = [command for command in recipes(*managers) if command not in ELSEWHERE]
    assert quick in commands
    return [
        pytest.param(command, marks=() if command == quick else pytest.mark.explore)
        for command in commands
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", cases("gunicorn", "uvicorn", "uwsgi", quick="gunicorn --preload -w 3 web:app")
)
def test_web_servers(processes: Servers, tmp_path: Path, command: str) -> None:
    """No request of four clients gets the number of another one, though the program has used a lock before its manager forks."""
    if command.startswith("uwsgi") and not Path(sys.executable).with_name("uwsgi").exists():
        pytest.skip("uWSGI is not installed")
    if not command.startswith("uwsgi") or "--lazy-apps" in command:  # others are refused, see below
        module = "api" if "api:app" in command else "web"
        (tmp_path / "eager.py").write_text(EAGER.format(module=module))
        command = command.replace(f"{module}:app", "eager:app")
    with web(command, tmp_path, processes.environment()) as (_, url):
        got = answers(f"{url}/invoices", CLIENTS, EACH)
    assert sorted(int(str(number)) for number in got) == ALL
    assert numbers(tmp_path) == ALL


@pytest.mark.parametrize("command", cases("python", quick="python actors.py"))
def test_programs(processes: Servers, tmp_path: Path, command: str) -> None:
    """Eight processes, or eight actors that all take their first lock at the same time: each invoice has its number."""
    check_program(command, tmp_path, processes.environment())


def check_program(command: str, folder: Path, environment: dict[str, str]) -> None:
    """Run a program that says nothing, and see that each invoice has its number."""
    with managed(command, folder, environment) as program:
        assert program.process.wait(LIMIT) == 0
    assert program.log == ""
    assert numbers(folder) == ALL


@pytest.mark.explore
@pytest.mark.parametrize("command", sorted(set(recipes("python")) - ELSEWHERE))
def test_programs_of_one_machine(tmp_path: Path, command: str) -> None:
    """Likewise."""
    with Machine() as machine:
        check_program(command, tmp_path, machine.environment)


@pytest.mark.slow
def test_cron(processes: Servers, tmp_path: Path) -> None:
    """One of three programs does the job; when it is killed, another one goes on, in a later term."""
    book = tmp_path / "invoices.txt"

    def lines() -> list[tuple[int, int]]:
        text = book.read_text() if book.exists() else ""
        return [(int(line.split()[2]), int(line.split()[5])) for line in text.splitlines()]

    with (
        managed("python cron.py", tmp_path, processes.environment()) as one,
        managed("python cron.py", tmp_path, processes.environment()) as two,
        managed("python cron.py", tmp_path, processes.environment()) as three,
    ):
        made = {program.process.pid: program.process for program in (one, two, three)}
        done: list[tuple[int, int]] = []
        while made:
            known = len(done)
            eventually(lambda known=known: len(lines()) > known + 2)  # type: ignore[misc]
            leader, term = lines()[-1]
            killed = made.pop(leader)
            killed.kill()
            killed.wait()
            assert set(lines()[len(done) :]) == {(leader, term)}
            assert all(term > before for _, before in done)
            done = lines()
    assert len({leader for leader, _ in done}) == 3
    assert numbers(tmp_path) == list(range(1, len(done) + 1))


def test_all_recipes_are_run() -> None:
    """The page has none that these tests leave out."""
    managers = {command.split()[0] for command in recipes()}
    assert managers == {"gunicorn", "uvicorn", "uwsgi", "celery", "python", "export", "mkdir"}
    assert set(recipes("celery")) == {
        WORKER,
        "celery -A tasks call tasks.write_invoice",
    }


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path: Path) -> None:
    """A newcomer writes at most twenty lines."""
    text = path.read_text()
    head = ast.parse(text).body[0].end_lineno
    assert len([line for line in text.splitlines()[head:] if line.strip()]) <= 20


# --- Celery -------------------------------------------------------------------------------------------

WORKER = "celery -A tasks worker --concurrency 4"


@contextmanager
def celery(processes: Servers, folder: Path) -> Iterator[Managed]:
    """Celery's worker at work."""
    (folder / "queue").mkdir()
    with managed(WORKER, folder, processes.environment()) as worker:
        try:
            yield worker
        finally:
            worker.kill()  # it takes seconds to end by itself


# By another folder: Kombu's files are not written at once, and a worker that reads half of one ends.
SENDER = """
import os, sys, tasks
os.makedirs("outbox", exist_ok=True)
tasks.app.conf.broker_transport_options["data_folder_out"] = "outbox"
for name in sys.argv[1:]:
    tasks.app.send_task(name)
for name in sorted(os.listdir("outbox")):
    os.rename(f"outbox/{name}", f"queue/{name}")
"""


def send(processes: Servers, folder: Path, *tasks: str) -> None:
    """Send tasks, as another program does."""
    run([sys.executable, "-c", SENDER, *tasks], folder, processes.environment())


@pytest.mark.slow
def test_celery(processes: Servers, tmp_path: Path) -> None:
    """Tasks in four processes: each invoice has its number."""
    with celery(processes, tmp_path):
        send(processes, tmp_path, *["tasks.write_invoice"] * 40)
        eventually(lambda: len(numbers(tmp_path)) == 40, LIMIT)
    assert numbers(tmp_path) == ALL


def held_by(folder: Path, number: int = 1) -> int:
    """Wait until a process has the lock, the so many-th one; which one it is."""
    held = folder / "held"
    eventually(lambda: held.exists() and len(held.read_text().splitlines()) >= number)
    return int(held.read_text().splitlines()[-1])


# --- Workers come and go ----------------------------------------------------------------------------------


@contextmanager
def holding(
    processes: Servers, folder: Path, command: str
) -> Iterator[tuple[Managed, str, Callable[[str], Future[str | None]]]]:
    """A web server where a request has the lock, until the file `release` is there; gives a function that posts."""
    (folder / "holding.py").write_text(HOLDING_WEB)
    with (
        web(f"{command} holding:app", folder, processes.environment()) as (server, url),
        ThreadPoolExecutor() as pool,
    ):

        def ask(path: str) -> Future[str | None]:
            return pool.submit(post, f"{url}/{path}")

        try:
            yield server, url, ask
        finally:
            (folder / "release").touch()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["gunicorn --preload -w 2"])
def test_a_worker_is_killed(processes: Servers, tmp_path: Path, command: str) -> None:
    """SIGKILL of a worker whose request has the lock: a request at another worker has it at once."""
    with holding(processes, tmp_path, command) as (_, _, ask):
        hold = ask("hold")
        first = held_by(tmp_path)
        os.kill(first, signal.SIGKILL)
        assert hold.result(LIMIT) is None
        assert eventually(lambda: ask("invoices").result(LIMIT)) == "1\n"
        assert str(first) not in (tmp_path / "invoices.txt").read_text()


# --- What is refused, and what is said -------------------------------------------------------------------


@pytest.mark.explore
def test_a_fork_that_python_was_not_told_of(processes: Servers, tmp_path: Path) -> None:
    """uWSGI forks without a word: a worker does not use its parent's node, and says what to do."""
    if not Path(sys.executable).with_name("uwsgi").exists():
        pytest.skip("uWSGI is not installed")
    (tmp_path / "eager.py").write_text(EAGER.format(module="web"))
    command = "uwsgi --http :8000 --master --die-on-term --processes 2 --enable-threads --module eager:app"
    with web(command, tmp_path, processes.environment()) as (server, url):
        assert post(f"{url}/invoices") == "500"
        assert "with --lazy-apps, uWSGI loads the program after the fork" in server.log


ALONE = """
import sys, multiprocessing, os, locks

def work():
    locks.Lock(("a",)).acquire()
    locks.stop()

if __name__ == "__main__":
    if sys.argv[1] == "os.fork":
        pid = os.fork()
        if not pid:
            work()
            os._exit(0)
        os.waitpid(pid, 0)
    else:
        process = multiprocessing.get_context(sys.argv[1]).Process(target=work)
        process.start()
        process.join()
"""


@pytest.mark.parametrize(
    "method",
    [
        "os.fork",
        *(
            pytest.param(each, marks=pytest.mark.explore)
            for each in ("fork", "forkserver", "spawn")
        ),
    ],
)
def test_processes_without_servers_are_refused(tmp_path: Path, method: str) -> None:
    """No process would see the other's locks, also if their parent has used none; who wants that says so."""
    (tmp_path / "alone.py").write_text(ALONE)
    command = [sys.executable, "alone.py", method]
    assert "of the same program, and no process would see the locks of the others" in run(
        command, tmp_path, dict(os.environ)
    )
    assert run(command, tmp_path, os.environ | {"LOCKS_SERVERS": "here"}) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("gunicorn -w 2 web:app", True),
        ("gunicorn --preload -w 2 web:app", True),
        ("gunicorn -w 1 web:app", False),
        ("gunicorn --preload -w 1 web:app", False),
        pytest.param("uvicorn --workers 2 api:app", True, marks=pytest.mark.explore),
        pytest.param("uvicorn --reload api:app", False, marks=pytest.mark.explore),
        ("uvicorn api:app", False),
    ],
)
def test_servers_of_many_workers(tmp_path: Path, command: str, refused: bool) -> None:
    """Workers whose locks nobody else would see are refused; the only one of its program is served."""
    with web(command, tmp_path, dict(os.environ)) as (_, url):
        assert post(f"{url}/invoices") == ("500" if refused else "1\n")


XDIST = """
import locks, pytest

@pytest.mark.parametrize("number", range(2))
def test_it(number):
    with locks.Lock(("a",)):
        pass
"""


@pytest.mark.explore
def test_workers_of_xdist(tmp_path: Path) -> None:
    """Tests that are run by several workers share no locks: that is said, or refused."""
    (tmp_path / "test_it.py").write_text(XDIST)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *("-p", "no:hypothesispytest", "-p", "no:anyio"),
        "-p",
        "no:cacheprovider",
        "-n",
        "2",
        "test_it.py",
    ]
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = [
        run_program(command, cwd=tmp_path, env=environment | more).stdout
        for more in ({}, {"LOCKS_SERVERS": "here"})
    ]
    assert "one of the workers of pytest-xdist" in done[0]
    assert "2 failed" in done[0]
    assert "2 passed" in done[1]
