"""Programs that count together, one for each way of running: no step is lost, and what a killed one held is free at once.

The programs are in `counters/`, those that serve requests in `web/`.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.managed import Managed, managed, post
from tests.cluster.servers import Machine
from tests.engines.programs import Program
from tests.helpers import eventually, free_port
from tests.programs.counters.counting import ROUNDS, WORKERS

HERE = Path(__file__).parent
REFUSED = "can't have locks of its own"
LONG = 300.0  # seconds: pools start many processes


class Counter(NamedTuple):
    """A program.

    Attributes:
        needs: The packages that have to be installed.
        start: Starts it.
    """

    needs: str
    start: str


PROGRAMS = {
    "threads": Counter("threading", "python threads_counter.py"),
    "gevent": Counter("gevent", "python gevent_counter.py"),
    "asyncio": Counter("asyncio", "python asyncio_counter.py"),
    "trio": Counter("trio", "python trio_counter.py"),
}
POOLS = {
    "fork": Counter("multiprocessing", "python pools_counter.py fork"),
    "spawn": Counter("multiprocessing", "python pools_counter.py spawn"),
    "forkserver": Counter("multiprocessing", "python pools_counter.py forkserver"),
}
WEB = {
    "prefork": Counter("flask gunicorn", "gunicorn -w 2 -b :8000 flask_app:app"),
    "prefork, threads": Counter(
        "flask gunicorn", "gunicorn -w 2 -k gthread --threads 2 -b :8000 flask_app:app"
    ),
    "prefork, greenlets": Counter(
        "flask gunicorn", "gunicorn -w 2 -k gevent -b :8000 flask_app:app"
    ),
    "spawn, event loop": Counter(
        "starlette uvicorn", "uvicorn --workers 2 --port 8000 starlette_app:app"
    ),
    "spawn, threads of an event loop": Counter(
        "fastapi uvicorn", "uvicorn --workers 2 --port 8000 fastapi_app:app"
    ),
}


def prepare(program: Counter, folder: Path) -> None:
    """Copy the programs to a folder; skip the test if a package is missing."""
    for package in program.needs.split():
        pytest.importorskip(package, reason=f"not installed: pip install {package}")
    for path in (*HERE.glob("counters/*.py"), *HERE.glob("web/*.py")):
        shutil.copy(path, folder)
    (folder / "count").write_text("0")


class Requests:
    """Requests to a program that serves, each in a thread of its own."""

    def __init__(self, number: int, url: str) -> None:
        self.answers: list[str | None] = []
        self._threads = [threading.Thread(target=self._ask, args=(url,)) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    def _ask(self, url: str) -> None:
        self.answers.append(post(url))

    def join(self) -> list[str | None]:
        """All answers; `None` where the process has ended."""
        for thread in self._threads:
            thread.join()
        return self.answers


def serve(
    stack: ExitStack, program: Counter, folder: Path, environment: dict[str, str]
) -> tuple[Managed, str]:
    """Start a program that serves; also gives the address at which it counts."""
    port = f"{free_port()}"
    command = program.start.replace(" :8000", " 127.0.0.1:8000").replace("8000", port)
    made = stack.enter_context(managed(command, folder, environment))
    eventually(lambda: post(f"http://127.0.0.1:{port}/nothing") is not None)
    return made, f"http://127.0.0.1:{port}/count"


def notes_in(folder: Path) -> list[list[str]]:
    """What the programs in a folder have noted."""
    path = folder / "notes"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def check(folder: Path) -> int:
    """Check that after the killed one nobody counted while somebody else did; return how many times they did."""
    rest = iter(notes_in(folder)[1:])
    done = [(begun, ended) for begun, ended in zip(rest, rest, strict=True)]
    assert all(
        (begun[0], ended[0], begun[1]) == ("begin", "end", ended[1]) for begun, ended in done
    )
    assert (folder / "count").read_text() == f"{len(done)}"
    return len(done)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[] if each == "gevent" else pytest.mark.explore)
        for each in PROGRAMS | POOLS
    ],
)
def test_a_killed_program_lets_go(name: str, tmp_path: Path) -> None:
    """Of three programs the one that counts first is killed while it does; the others go on at once, and each step of theirs is there."""
    program = (PROGRAMS | POOLS)[name]
    prepare(program, tmp_path)
    with ExitStack() as stack:
        machine = stack.enter_context(Machine())
        observer = Program(machine.program, "import locks\n")
        observer.ready()
        running = [
            stack.enter_context(managed(program.start, tmp_path, machine.environment))
            for _ in range(3)
        ]
        eventually(lambda: observer.do("len(locks.queue(('counter',)).waiting)") == 8, LONG)
        (first,) = notes_in(tmp_path)
        os.killpg(os.getpgid(int(first[1])), signal.SIGKILL)
        eventually(lambda: len(notes_in(tmp_path)) == 2)
        (tmp_path / "go").touch()
        ended = [each.process.wait(LONG) for each in running]
        assert ended.count(0) == 2, running[0].log
    assert check(tmp_path) == 2 * len(WORKERS) * len(ROUNDS)


@pytest.mark.explore
@pytest.mark.parametrize("name", WEB)
def test_a_killed_process_of_a_web_program_lets_go(name: str, tmp_path: Path) -> None:
    """The process that serves the first request is killed; the requests to another program are served, one at a time."""
    program = WEB[name]
    prepare(program, tmp_path)
    with ExitStack() as stack:
        machine = stack.enter_context(Machine())
        observer = Program(machine.program, "import locks\n")
        observer.ready()
        urls = [serve(stack, program, tmp_path, machine.environment)[1] for _ in range(2)]
        requests = [Requests(3, url) for url in urls]
        eventually(lambda: observer.do("len(locks.queue(('counter',)).waiting)") > 0)
        eventually(lambda: notes_in(tmp_path))  # who has the lock notes it a moment later
        (first,) = notes_in(tmp_path)
        os.kill(int(first[1]), signal.SIGKILL)
        eventually(lambda: len(notes_in(tmp_path)) == 2)
        (tmp_path / "go").touch()
        answers = [each.join() for each in requests]
    assert ["done"] * 3 in answers, answers
    assert check(tmp_path) == sum(each.count("done") for each in answers)


@pytest.mark.explore
@pytest.mark.parametrize("name", POOLS | WEB)
def test_several_processes_without_servers_are_refused(name: str, tmp_path: Path) -> None:
    """Each of them would have locks of its own, and exclude nobody. The error is in the program's log, and no step was counted."""
    program = (POOLS | WEB)[name]
    prepare(program, tmp_path)
    (tmp_path / "go").touch()
    with ExitStack() as stack:
        machine = stack.enter_context(Machine())
        environment = {**machine.environment, "LOCKS_SERVERS": ""}
        if name in WEB:
            made, url = serve(stack, program, tmp_path, environment)
            assert Requests(1, url).join() == ["500"]
        else:
            made = stack.enter_context(managed(program.start, tmp_path, environment))
            assert made.process.wait(LONG) != 0
        eventually(lambda: REFUSED in made.log)
    assert notes_in(tmp_path) == []


@pytest.mark.explore
def test_without_a_common_lock_the_check_fails(tmp_path: Path) -> None:
    """Programs whose locks exclude nobody count at the same time, and the check says so."""
    prepare(PROGRAMS["threads"], tmp_path)
    with ExitStack() as stack:
        machine = stack.enter_context(Machine())
        environment = {**machine.environment, "LOCKS_SERVERS": "here"}
        for _ in range(3):
            stack.enter_context(managed(PROGRAMS["threads"].start, tmp_path, environment))
        eventually(lambda: len(notes_in(tmp_path)) == 3)
        with pytest.raises(AssertionError):
            check(tmp_path)
