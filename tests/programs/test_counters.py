"""Programs that count together, each with several workers: no step is lost, and what a killed one held is free at once.

The programs are in `counters/`, those that serve requests in `web/`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.machine import Machine
from tests.cluster.managed import Managed, managed, post
from tests.engines.programs import Program
from tests.helpers import eventually, free_port
from tests.programs.counters.counting import ROUNDS, WORKERS

HERE = Path(__file__).parent
REFUSED = "can't have locks of its own"
LONG = 300.0  # seconds: pytest-xdist and notebooks start many processes


class Counter(NamedTuple):
    """A program.

    Attributes:
        needs: The packages that have to be installed.
        start: Starts it.
    """

    needs: str
    start: str


PROGRAMS = {
    "trio": Counter("trio", "python trio_counter.py"),
    "anyio on asyncio": Counter("anyio", "python anyio_counter.py asyncio"),
    "anyio on trio": Counter("anyio", "python anyio_counter.py trio"),
    "gevent": Counter("gevent", "python gevent_counter.py"),
    "Tornado": Counter("tornado", "python tornado_counter.py"),
    "Twisted": Counter("twisted", "python twisted_counter.py"),
    "Scrapy": Counter("scrapy", "python scrapy_counter.py"),
    "curio": Counter("curio", "python curio_counter.py"),
    "eventlet": Counter("eventlet", "python eventlet_counter.py"),
    "SQLAlchemy": Counter("sqlalchemy aiosqlite", "python sqlalchemy_counter.py"),
    "notebook": Counter("ipykernel nbclient", "python notebook_counter.py nbclient"),
    "papermill": Counter("ipykernel papermill", "python notebook_counter.py papermill"),
}
# Those of the standard library, and of what tests install, are run by `make explore`.
COMMON = {
    "threads": Counter("threading", "python threads_counter.py"),
    "asyncio": Counter("asyncio", "python asyncio_counter.py asyncio"),
    "uvloop": Counter("uvloop", "python asyncio_counter.py uvloop"),
}
POOLS = {
    "joblib": Counter("joblib", "python joblib_counter.py"),
    "loky": Counter("loky", "python pools_counter.py loky"),
    "pathos": Counter("pathos", "python pools_counter.py pathos.pools:ProcessPool"),
    "multiprocess": Counter("multiprocess", "python pools_counter.py multiprocess:spawn"),
    "mpire": Counter("mpire", "python pools_counter.py mpire:spawn"),
    "pebble": Counter("pebble", "python pools_counter.py pebble"),
    "billiard": Counter("billiard", "python pools_counter.py billiard:spawn"),
}
COMMON_POOLS = {
    "fork": Counter("multiprocessing", "python pools_counter.py multiprocessing:fork"),
    "spawn": Counter("multiprocessing", "python pools_counter.py multiprocessing:spawn"),
    "forkserver": Counter("multiprocessing", "python pools_counter.py multiprocessing:forkserver"),
    "ProcessPoolExecutor": Counter(
        "concurrent.futures", "python pools_counter.py concurrent.futures"
    ),
    "pytest-xdist": Counter(
        "xdist", "python -m pytest -n 3 -p no:cacheprovider --tb=line pytest_counter.py"
    ),
}
WEB = {
    "Flask, waitress": Counter(
        "flask waitress", "waitress-serve --listen=127.0.0.1:8000 flask_app:app"
    ),
    "Flask, gunicorn": Counter("flask gunicorn", "gunicorn -w 2 -b :8000 flask_app:app"),
    "Flask, gunicorn's threads": Counter(
        "flask gunicorn", "gunicorn -w 2 -k gthread --threads 2 -b :8000 flask_app:app"
    ),
    "Flask, gunicorn's gevent": Counter(
        "flask gunicorn", "gunicorn -w 2 -k gevent -b :8000 flask_app:app"
    ),
    "Bottle": Counter("bottle gunicorn", "gunicorn -w 2 -b :8000 bottle_app:app"),
    "Falcon": Counter("falcon gunicorn", "gunicorn -w 2 -b :8000 falcon_app:app"),
    "Pyramid": Counter(
        "pyramid waitress", "waitress-serve --listen=127.0.0.1:8000 pyramid_app:app"
    ),
    "CherryPy": Counter("cherrypy", "python cherrypy_app.py 8000"),
    "Django, gunicorn": Counter("django gunicorn", "gunicorn -w 2 -b :8000 django_app:wsgi"),
    "Django, daphne": Counter("django daphne", "daphne -p 8000 django_app:asgi"),
    "FastAPI, uvicorn": Counter(
        "fastapi uvicorn", "uvicorn --workers 2 --port 8000 fastapi_app:app"
    ),
    "Starlette, uvicorn": Counter(
        "starlette uvicorn", "uvicorn --workers 2 --port 8000 starlette_app:app"
    ),
    "Starlette, hypercorn": Counter(
        "starlette hypercorn", "hypercorn -b 127.0.0.1:8000 starlette_app:app"
    ),
    "Starlette, granian": Counter(
        "starlette granian", "granian --interface asgi --workers 2 --port 8000 starlette_app:app"
    ),
    "Litestar, uvicorn": Counter(
        "litestar uvicorn", "uvicorn --workers 2 --port 8000 litestar_app:app"
    ),
    "Quart, hypercorn": Counter("quart hypercorn", "hypercorn -b 127.0.0.1:8000 quart_app:app"),
    "Sanic": Counter("sanic", "sanic sanic_app:app --port 8000 --workers 2"),
    "aiohttp": Counter("aiohttp", "python -m aiohttp.web -H 127.0.0.1 -P 8000 aiohttp_app:make"),
    "Tornado": Counter("tornado", "python tornado_app.py 8000"),
}
EXPLORED = [
    pytest.param(each, marks=pytest.mark.explore) for each in {**COMMON, **COMMON_POOLS, **WEB}
]


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
        "gevent",
        *(
            pytest.param(each, marks=pytest.mark.explore)
            for each in {**PROGRAMS, **POOLS}
            if each != "gevent"
        ),
        *EXPLORED[: len(COMMON) + len(COMMON_POOLS)],
    ],
)
def test_a_killed_program_lets_go(name: str, tmp_path: Path) -> None:
    """Of three programs the one that counts first is killed while it does; the others go on at once, and each step of theirs is there."""
    program = {**PROGRAMS, **POOLS, **COMMON, **COMMON_POOLS}[name]
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


@pytest.mark.parametrize("name", EXPLORED[len(COMMON) + len(COMMON_POOLS) :])
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


def starts_several(program: Counter) -> bool:
    """Whether it has several processes."""
    return re.search(r" (-w|-n|--workers) \d", program.start) is not None


@pytest.mark.explore
@pytest.mark.parametrize(
    "name",
    [
        *POOLS,
        *COMMON_POOLS,
        *(
            name for name in WEB if starts_several(WEB[name]) and "Django" not in name
        ),  # it logs no errors
    ],
)
def test_several_processes_without_servers_are_refused(name: str, tmp_path: Path) -> None:
    """Each of them would have locks of its own, and exclude nobody. The error is in the program's log, and no step was counted."""
    program = {**POOLS, **COMMON_POOLS, **WEB}[name]
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
    prepare(COMMON["threads"], tmp_path)
    with ExitStack() as stack:
        machine = stack.enter_context(Machine())
        environment = {**machine.environment, "LOCKS_SERVERS": "here"}
        for _ in range(3):
            stack.enter_context(managed(COMMON["threads"].start, tmp_path, environment))
        eventually(lambda: len(notes_in(tmp_path)) == 3)
        with pytest.raises(AssertionError):
            check(tmp_path)
